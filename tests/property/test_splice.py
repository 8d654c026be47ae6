"""Adding to an array in JSON text keeps all other bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clia.values.documents import parse
from clia.values.json_text import append_to_array
from support.documents import values, words

documents = st.dictionaries(words.filter(lambda word: word != "entries"), values, max_size=3)
styles = st.sampled_from([None, 0, 1, 2, 4, "\t"])
endings = st.sampled_from(["\n", "\r\n"])


@given(
    documents,
    st.one_of(st.none(), st.just("missing"), st.lists(values, max_size=3)),
    st.lists(values, min_size=1, max_size=3),
    styles,
    endings,
)
def test_the_new_text_is_the_old_document_plus_the_items(
    document: dict[str, Any], entries: Any, items: list[Any], style: Any, ending: str
) -> None:
    if entries != "missing":
        document = {**document, "entries": entries}
    text = json.dumps(document, indent=style, ensure_ascii=False).replace("\n", ending)
    expected = {**document, "entries": [*(entries if isinstance(entries, list) else []), *items]}
    assert parse(append_to_array(text, "entries", items).encode(), "x") == expected


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize(
    "spelling", ["1.50", "1e2", "123456789012345678901234567890", '"\\u00e9"', "[ 1,2 , 3 ]", '{ "b":1,  "a":2 }']
)
def test_every_other_byte_is_kept(spelling: str, ending: str) -> None:
    lines = ["{", f'   "first":{spelling},', '   "entries" : [', '      {"old": 1}', "   ],", '   "last"  :  null', "}", ""]
    text = ending.join(lines)
    added = append_to_array(text, "entries", [{"new": 2}])
    at = text.index('{"old": 1}') + len('{"old": 1}')
    assert added.startswith(text[:at])
    assert added.endswith(text[at:])
    assert added[at : len(added) - len(text[at:])] == f',{ending}      {{{ending}        "new": 2{ending}      }}'


def test_an_array_on_one_line_stays_on_one_line() -> None:
    assert append_to_array('{"entries": [1, 2], "z": 1}', "entries", [3, "x"]) == '{"entries": [1, 2, 3, "x"], "z": 1}'


def test_a_nested_key_of_the_same_name_is_not_changed() -> None:
    text = '{"a": {"entries": [0]}, "entries": [1]}'
    assert append_to_array(text, "entries", [2]) == '{"a": {"entries": [0]}, "entries": [1, 2]}'

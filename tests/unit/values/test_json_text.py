from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from clia.values import json_text as edits
from clia.values.documents import parse
from support.documents import values, words


@given(st.data(), st.dictionaries(words, values, max_size=4), st.sampled_from([None, 1, 2, "\t"]), st.sampled_from(["\n", "\r\n"]))
def test_an_edit_of_json_text_changes_exactly_one_value(data: Any, document: dict[str, Any], style: Any, ending: str) -> None:
    """At any place of any document: the value is added or removed, and nothing else changes its meaning."""
    text = json.dumps(document, indent=style, ensure_ascii=False).replace("\n", ending)
    containers = list(_containers(document))
    path, container = data.draw(st.sampled_from(containers))
    if container and data.draw(st.booleans()):
        step = data.draw(st.sampled_from(sorted(container) if isinstance(container, dict) else range(len(container))))
        edited = edits.remove(text, (*path, step))
        del container[step]
    elif isinstance(container, dict):
        key = data.draw(words.filter(lambda word: word not in container))
        container[key] = added = data.draw(values)
        edited = edits.add(text, path, added, key)
    else:
        container.append(added := data.draw(values))
        edited = edits.add(text, path, added)
    assert parse(edited.encode(), "x") == document


def _containers(value: Any, path: tuple[str | int, ...] = ()) -> Any:
    if isinstance(value, (dict, list)):
        yield path, value
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _containers(child, (*path, key))

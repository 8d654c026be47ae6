"""Line numbers of findings."""

from __future__ import annotations

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from clia.identities.checks import line_of
from clia.values import documents, pointer


def test_the_line_of_a_pointer_is_that_of_the_value_or_its_nearest_parent() -> None:
    text = '\ufeff{\r\n "a": [\r\n  {"x": "}"},\r\n  {"y~/": 1}\r\n ],\r\n "b": 2\r\n}'
    lines = {"": 1, "/a": 2, "/a/0/x": 3, "/a/1/y~0~1": 4, "/a/7": 2, "/b": 6, "/b/c": 6, "/gone": 1}
    assert {at: line_of(text.encode(), "p", at) for at in lines} == lines
    assert line_of(b'{\n "a": 1\n "b": 2}', "p", None) == 3
    assert line_of(b"[]", "p", "/a") == 1


_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=10,
)


@given(st.dictionaries(st.text(max_size=3), _JSON, max_size=4))
def test_the_line_of_a_leaf_contains_it(value: dict[str, object]) -> None:
    text = json.dumps(value, indent=1)
    documents.parse(text.encode(), "p")
    lines = re.split("\n", text)
    for at, leaf in pointer.leaves(value):
        assert json.dumps(leaf) in lines[line_of(text.encode(), "p", at) - 1]

"""Strategies for triad documents, valid and invalid."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

words = st.sampled_from(["", "  ", "A", "B", "Ship it", "T (due: D)", "é", "🎛️", "a/b~c"])
scalars = st.one_of(st.none(), st.booleans(), st.integers(-3, 2**70), st.floats(allow_nan=False, allow_infinity=False), words)
values = st.recursive(
    scalars, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(words, inner, max_size=3)), max_leaves=6
)
items = st.one_of(
    words,
    st.fixed_dictionaries({"title": words}, optional={"due": st.just("D"), "items": st.lists(words, max_size=3), "x": values}),
    values,
)
contributions = st.one_of(
    words, st.fixed_dictionaries({"type": st.sampled_from(["code", "doc", "test"])}, optional={"weight": scalars})
)
links = st.one_of(words, st.fixed_dictionaries({}, optional={"title": words, "url": words, "href": words, "kind": words}))
entries = st.one_of(
    st.fixed_dictionaries(
        {"timestamp": st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"])}, optional={"summary": words, "x": values}
    ),
    values,
)


def _document(**fields: Any) -> st.SearchStrategy[dict[str, Any]]:
    common = {
        "title": st.one_of(words, scalars),
        "status": words,
        "updated": st.one_of(st.none(), words),
        "notes": values,
        "extensions": st.one_of(st.dictionaries(words, values, max_size=2), scalars),
        "links": st.one_of(st.lists(links, max_size=4), scalars),
        "tags": st.one_of(st.lists(words, max_size=4), words),
        "x-unknown": values,
        "a/b~c": values,
    }
    return st.fixed_dictionaries({}, optional={**common, **fields})


def agents() -> st.SearchStrategy[dict[str, Any]]:
    mix = st.lists(contributions, max_size=4)
    grouped = st.fixed_dictionaries({}, optional={"primary": mix, "secondary": mix, "x": values})
    return _document(
        guardrails=st.one_of(st.lists(items, max_size=4), words, scalars),
        sections=st.lists(items, max_size=4),
        contributionMix=st.one_of(mix, grouped, scalars),
        persona=st.one_of(st.dictionaries(words, values, max_size=3), scalars),
        rootChain=st.one_of(st.dictionaries(words, values, max_size=2), scalars),
        profileType=words,
    )


def agendas() -> st.SearchStrategy[dict[str, Any]]:
    return _document(
        agent=st.one_of(st.dictionaries(words, values, max_size=3), scalars),
        milestones=st.lists(items, max_size=4),
        backlog=st.one_of(st.lists(items, max_size=4), words),
    )


def agencies() -> st.SearchStrategy[dict[str, Any]]:
    return _document(entries=st.one_of(st.lists(entries, max_size=5), scalars))

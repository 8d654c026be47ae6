"""A commit's message and open fields are read back unchanged by clia and by stock git, whatever they contain."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import clia
from clia.errors import InvalidInput
from clia.testing import components
from clia.values.canonical import canonical_bytes
from clia.values.commit_messages import compose, parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

SCISSORS = "------------------------ >8 ------------------------"
HOSTILE = [
    "",
    " ",
    "\t",
    "\r",
    "\u2028",
    "\x0b\x0c\x1c\x85",
    "\ufeffbom",
    "   leading spaces",
    "Signed-off-by: Mallory <m@example.org>",
    "Clia-Agent: mallory",
    "Clia-Type: decision",
    'Clia-Meta: {"forged":true}',
    "Clia-Agent:mallory",
    "Clia-Agent : mallory",
    " a continuation: of what",
    "(cherry picked from commit 0000000000000000000000000000000000000000)",
    "Conflicts:",
    "key: value\r",
    "---",
    "--- ",
    "---\t",
    "---\r",
    "---\u00a0x",
    "--- a/file",
    " ---",
    "     ---",
    "----",
    "-- ",
    SCISSORS,
    f"# {SCISSORS}",
    f"; {SCISSORS}",
    f" {SCISSORS}",
    "--- 8< ---",
    "# a comment",
    "#",
    "diff --git a/x b/x",
    "é \U0001f600 \u202e",
    "x" * 3000,
]
lines = st.sampled_from(HOSTILE) | st.text(st.characters(exclude_characters="\0\n", exclude_categories=["Cs"]), max_size=12)
messages = st.builds(str.join, st.sampled_from(["\n", "\n\n", "\r\n"]), st.lists(lines, max_size=6))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(["\n---\n", "a\r\nClia-Type: b", "\u2028"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(-1e9, 1e9) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
metas = st.dictionaries(texts, values, max_size=3)
trailers = st.lists(
    st.tuples(
        st.sampled_from(["Clia-Agent", "Clia-Type", "Clia-Meta"]),
        st.text(st.characters(exclude_characters="\n\0", exclude_categories=["Cs"]), max_size=8),
    ),
    min_size=1,
    max_size=4,
)


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Iterator[clia.Space]:
    chosen = clia.Settings(
        durable=False, redact=False, person=("Tess", "tess@example.org"), clock=lambda: datetime(2025, 1, 1, tzinfo=UTC)
    )
    with clia.init(tmp_path_factory.mktemp("messages"), settings=chosen) as opened:
        opened.spawn("scout", clia.Briefing("read messages"))
        yield opened


def stock_git(space: clia.Space, *words: str, data: bytes = b"") -> bytes:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    git_directory = f"--git-dir={components(space).git.handle.common_dir}"
    return subprocess.run(["git", git_directory, *words], input=data, env=environment, capture_output=True, check=True).stdout


def on_disk(space: clia.Space) -> tuple[bytes, list[str]]:
    """Every ref and the id of every object."""
    objects = stock_git(space, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
    return stock_git(space, "for-each-ref"), sorted(objects.decode().split())


@given(messages, trailers)
def test_a_composed_message_is_parsed_back_unchanged(text: str, trailer_list: list[tuple[str, str]]) -> None:
    assert parse(compose(text, trailer_list, "default")) == (text.strip("\n") if text.strip(" \t\r\n") else "default", trailer_list)


def check_with_stock_git(space: clia.Space, batch: Sequence[tuple[str, dict[str, Any]]], folder: Path) -> None:
    """Commit a batch, and have stock git read all of it in two processes."""
    cids = [space.commit("scout", "finding", changes={}, message=text, meta=meta) for text, meta in batch]
    briefing = space.show(cids[0]).briefing
    expected = []
    for cid, (text, meta) in zip(cids, batch, strict=True):
        commit = space.show(cid)
        assert (commit.message, commit.meta) == (text.strip("\n") if text.strip(" \t\r\n") else "finding by scout", meta)
        trailer_block = f"Clia-Agent: scout\nClia-Type: finding\nClia-Briefing: {briefing}\n"
        expected.append(trailer_block + (f"Clia-Meta: {canonical_bytes(meta).decode()}\n" if meta else ""))
    log = ["log", "--no-walk=unsorted", "--stdin", "--format=%H%x00%(trailers:only,unfold)%x00"]
    output = stock_git(space, *log, data="\n".join(cids).encode()).decode().split("\0")[:-1]
    assert [cid.strip("\n") for cid in output[::2]] == cids
    assert output[1::2] == expected
    files = []
    for number, cid in enumerate(cids):
        files.append(folder / str(number))
        files[-1].write_bytes(components(space).core.objects.commit(cid).message.encode())
    parsed = stock_git(space, "interpret-trailers", "--no-divider", "--parse", *map(str, files)).decode()
    assert parsed == "".join(expected)


def test_stock_git_reads_exactly_our_trailers_after_each_hostile_line(space: clia.Space, tmp_path: Path) -> None:
    single_lines = [(line, {"n": number}) for number, line in enumerate(HOSTILE)]
    as_last = [(f"subject\n\nbody\n{line}", {"line": line}) for line in HOSTILE]
    as_paragraph: list[tuple[str, dict[str, Any]]] = [(f"subject\n\n{line}\n\n{line}", {}) for line in HOSTILE]
    check_with_stock_git(space, [*single_lines, *as_last, *as_paragraph], tmp_path)


BATCHES = max(4, (settings.default.max_examples if settings.default else 100) // 25)


@settings(
    max_examples=BATCHES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.large_base_example],
)
@given(batch=st.lists(st.tuples(messages, metas), min_size=8, max_size=20))
def test_stock_git_reads_exactly_our_trailers_after_any_message(
    space: clia.Space, tmp_path: Path, batch: list[tuple[str, dict[str, Any]]]
) -> None:
    check_with_stock_git(space, batch, tmp_path)


@pytest.mark.parametrize(
    ("message", "meta"),
    [
        ("a\0b", None),
        ("\0", None),
        ("a \ud800 b", None),
        ("\udcff", None),
        ("fine", {"a": "\ud800"}),
        ("fine", {"\udfff": 1}),
        ("fine", {"a": ["\udc80"]}),
        ("fine", {"a": float("nan")}),
        ("fine", {"a": 2**60, "b": float("nan")}),
        ("fine", {"a": {1, 2}}),
        ("fine", {"a": b"bytes"}),
        ("fine", [1]),
    ],
)
def test_text_that_git_or_json_cannot_represent_is_refused_and_nothing_is_written(
    space: clia.Space, message: str, meta: Any
) -> None:
    before = on_disk(space)
    with pytest.raises(InvalidInput) as refused:
        space.commit("scout", "finding", changes={"new": f"{message!r} {meta!r}".encode()}, message=message, meta=meta)
    assert refused.value.code in {"invalid-text", "invalid-meta"}
    assert on_disk(space) == before

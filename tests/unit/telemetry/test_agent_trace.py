"""Agent Trace records: the lines that commits add, by contributor, as https://agent-trace.dev describes them."""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from clia.telemetry.agent_trace import AgentTraceExport, model_id
from support import git
from support.plain_git import commit_file, fast_import, rev
from support.spaces import BRIEFING, commit_with_trace

if TYPE_CHECKING:
    from pathlib import Path

    import clia

_OBJECT = {"type": "object"}
_CONTRIBUTOR = {
    **_OBJECT,
    "required": ["type"],
    "properties": {"type": {"enum": ["human", "ai", "mixed", "unknown"]}, "model_id": {"type": "string", "maxLength": 250}},
}
_LINE = {"type": "integer", "minimum": 1}
_RANGE = {
    **_OBJECT,
    "required": ["start_line", "end_line"],
    "properties": {"start_line": _LINE, "end_line": _LINE, "content_hash": {"type": "string"}, "contributor": _CONTRIBUTOR},
}
_URI = {"type": "string", "pattern": "^[a-z][a-z0-9+.-]*:[^ ]+$"}
_RELATED = {**_OBJECT, "required": ["type", "url"], "properties": {"type": {"type": "string"}, "url": _URI}}
_CONVERSATION = {
    **_OBJECT,
    "required": ["ranges"],
    "properties": {
        "url": _URI,
        "contributor": _CONTRIBUTOR,
        "ranges": {"type": "array", "items": _RANGE},
        "related": {"type": "array", "items": _RELATED},
    },
}
_FILE = {
    **_OBJECT,
    "required": ["path", "conversations"],
    "properties": {"path": {"type": "string"}, "conversations": {"type": "array", "items": _CONVERSATION}},
}
SCHEMA = {
    **_OBJECT,
    "required": ["version", "id", "timestamp", "files"],
    "properties": {
        "version": {"type": "string", "pattern": r"^[0-9]+\.[0-9]+\.[0-9]+$"},
        "id": {"type": "string", "pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"},
        "timestamp": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"},
        "vcs": {**_OBJECT, "required": ["type", "revision"], "properties": {"type": {"enum": ["git", "jj", "hg", "svn"]}}},
        "tool": {**_OBJECT, "properties": {"name": {"type": "string"}, "version": {"type": "string"}}},
        "files": {"type": "array", "items": _FILE},
        "metadata": _OBJECT,
    },
}
"""The fields of version 0.1.0 of the specification."""


@pytest.fixture
def people(space: clia.Space, repo: Path) -> Path:
    """The space's repository, with a turn of ``scout`` that wrote three lines of ``b``."""
    commit_file(repo, "a", "1\n")
    space.spawn_at("scout", BRIEFING._replace(meta={"model": "claude-opus-4-5-20251101"}), "main")
    return repo


@pytest.fixture
def turn(space: clia.Space, people: Path) -> str:
    return commit_with_trace(space, "why", b=b"one\ntwo\nthree\n")


def records(space: clia.Space, text: str = "main", **options: Any) -> list[dict[str, Any]]:
    """The records, as a program that reads the output gets them."""
    exported = AgentTraceExport(space, "1.2.3", options.pop("forge", None)).records(text, **options)
    values = [json.loads(json.dumps(record._asdict())) for record in exported]
    for value in values:
        jsonschema.validate(value, SCHEMA)
    return values


def ranges(conversation: dict[str, Any]) -> list[tuple[int, int]]:
    return [(part["start_line"], part["end_line"]) for part in conversation["ranges"]]


def test_a_commit_of_a_person_becomes_a_record_with_each_added_line_once(space: clia.Space, people: Path, turn: str) -> None:
    commit = commit_file(people, "b", "one\nmine\nthree\nmine too\n")
    (record,) = records(space)
    assert record["version"] == "0.1.0"
    assert record["vcs"] == {"type": "git", "revision": commit}
    assert record["tool"] == {"name": "clia", "version": "1.2.3"}
    assert record["metadata"] == {"clia": {"space": space.id}}
    (file,) = record["files"]
    assert file["path"] == "b"
    agent, person = file["conversations"]
    assert agent["contributor"] == {"type": "ai", "model_id": "anthropic/claude-opus-4-5-20251101"}
    assert ranges(agent) == [(1, 1), (3, 3)]
    assert person["contributor"] == {"type": "human"}
    assert ranges(person) == [(2, 2), (4, 4)]
    assert agent["ranges"][0]["content_hash"] == f"sha256:{hashlib.sha256(b'one').hexdigest()}"


def test_a_conversation_names_the_agents_commit_its_trace_and_briefing(space: clia.Space, people: Path, turn: str) -> None:
    commit_file(people, "b", "one\n")
    (record,) = records(space)
    related = {item["type"]: item["url"] for item in record["files"][0]["conversations"][0]["related"]}
    briefing, trace = space.show(turn).briefing, space.trace_cid_for(turn)
    assert related == {"commit": f"swh:1:rev:{turn}", "trace": f"swh:1:cnt:{trace}", "briefing": f"swh:1:cnt:{briefing}"}
    assert "why" in git("cat-file", "blob", str(trace), cwd=people)


def test_a_forge_adds_links(space: clia.Space, people: Path, turn: str) -> None:
    commit_file(people, "b", "one\n")
    (record,) = records(space, forge="https://forge.example.org/s/shop/")
    conversation = record["files"][0]["conversations"][0]
    assert conversation["url"] == f"https://forge.example.org/s/shop/commits/{turn}#trace"
    assert {"type": "agent", "url": "https://forge.example.org/s/shop/agents/scout"} in conversation["related"]


def test_commits_of_agents_are_records_too_and_commits_of_people_alone_are_not(space: clia.Space, people: Path, turn: str) -> None:
    commit_file(people, "mine", "1\n")
    git("merge", "-q", "--no-edit", "agents/scout", cwd=people)
    (record,) = records(space)
    assert record["vcs"]["revision"] == turn
    assert ranges(record["files"][0]["conversations"][0]) == [(1, 3)]


def test_a_commit_has_the_same_id_each_time_and_another_one_another(space: clia.Space, people: Path, turn: str) -> None:
    commit_file(people, "b", "one\n")
    commit_file(people, "b", "one\ntwo\n")
    first, second = records(space), records(space)
    assert first == second
    assert len({record["id"] for record in first}) == 2
    assert [record["id"] for record in records(space, limit=1)] == [first[0]["id"]]
    assert records(space, "main~1..main") == first[:1]


def test_the_ranges_are_those_that_blame_gives_to_agents(space: clia.Space, people: Path, turn: str) -> None:
    """The way that the specification looks up a line: git blame, the record of that commit, the range with the line."""
    commit_file(people, "b", "one\nmine\ntwo\n")
    commit_file(people, "b", "zero\none\nmine\n  two\nthree\n")
    by_commit = {record["vcs"]["revision"]: record["files"][0]["conversations"] for record in records(space)}
    types: list[str] = []
    for line in git("blame", "--porcelain", "main", "--", "b", cwd=people).splitlines():
        words = line.split(" ")
        if len(words) >= 3 and len(words[0]) == 40:
            types += [
                conversation["contributor"]["type"]
                for conversation in by_commit[words[0]]
                if any(start <= int(words[1]) <= end for start, end in ranges(conversation))
            ]
    assert types == [{"agent": "ai", "person": "human"}[line.by] for line in space.blame("main", "b")]
    assert types == ["human", "ai", "human", "ai", "ai"]


def test_lines_that_could_not_be_compared_are_unknown(
    space: clia.Space, people: Path, turn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clia.space.attribution.attributions.FILE_MAX", 3)
    commit_file(people, "b", "one\ntwo\n")
    (record,) = records(space)
    (conversation,) = record["files"][0]["conversations"]
    assert conversation["contributor"] == {"type": "unknown"}
    assert ranges(conversation) == [(1, 2)]


def test_a_path_that_is_not_utf8_is_escaped(space: clia.Space, people: Path, tmp_path: Path) -> None:
    space.checkout("scout", tmp_path / "work")
    (tmp_path / "work" / os.fsdecode(b"na\xefve%")).write_text("x()\n")
    space.commit_dir("scout", "finding", tmp_path / "work")
    fast_import(people, "refs/heads/odd", {b"na\xefve%": b"x()\n"}, parent=rev(people, "main"))
    (record,) = records(space, "odd")
    assert [file["path"] for file in record["files"]] == ["na\\xefve%"]


@pytest.mark.parametrize(
    ("name", "identifier"),
    [
        ("claude-opus-4-5-20251101", "anthropic/claude-opus-4-5-20251101"),
        ("gpt-5.2-codex", "openai/gpt-5.2-codex"),
        ("gemini-3-pro", "google/gemini-3-pro"),
        ("openrouter/qwen3-coder", "openrouter/qwen3-coder"),
        ("local-model", "local-model"),
        ("", None),
        ("two words", None),
        ("x" * 251, None),
        (7, None),
        (None, None),
    ],
)
def test_models_are_named_as_models_dev_names_them(name: object, identifier: str | None) -> None:
    assert model_id(name) == identifier

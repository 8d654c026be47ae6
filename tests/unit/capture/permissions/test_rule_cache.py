"""The compiled rules that hooks read: a stale cache is never used."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from clia.capture.permissions import rule_cache
from clia.capture.permissions.answers import cache_content, cache_file, cache_key, read_cache, signature
from clia.capture.permissions.rule_cache import compile_rules
from support import git
from support.effects import made_space

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import clia

KEY = b"claude-code\0/x\0s1"
RULE = {"on": "tool", "match": {"command": "deploy *"}, "do": "deny"}


def write_profile(root: Path, slug: str, *rules: Any) -> Path:
    home = root / ".clia" / "agents" / slug
    home.mkdir(parents=True, exist_ok=True)
    file = home / f"{slug}@x.agent.triad.json"
    file.write_text(json.dumps({"slug": slug, "guardrails": [{"text": "Rule.", "rules": list(rules)}]}), "utf-8")
    return file


@pytest.fixture
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[clia.Space]:
    monkeypatch.setattr(rule_cache, "_RACY_NANOSECONDS", 0)
    root = tmp_path / "space"
    root.mkdir()
    git("init", "--quiet", cwd=root)
    write_profile(root, "scout", RULE)
    with made_space(root, "scout", "other") as made:
        yield made


def cached(space: clia.Space) -> list[Any] | None:
    found = read_cache(os.fsencode(os.path.dirname(space.home)), KEY)
    return None if found is None else json.loads(found[1])


def compiled(space: clia.Space, agent: str | None = "scout") -> list[str]:
    return [rule.do for rule in compile_rules(space, agent, KEY, forwards=False).rules]


def test_the_cache_has_the_rules(space: clia.Space) -> None:
    assert cached(space) is None
    assert compiled(space) == ["deny"]
    rows = cached(space)
    assert rows is not None
    assert [row[:2] for row in rows] == [[["tool"], "deny"]]


def test_every_change_of_what_was_read_ends_the_cache(space: clia.Space, tmp_path: Path) -> None:
    root = tmp_path / "space"
    file = root / ".clia/agents/scout/scout@x.agent.triad.json"
    text = file.read_text("utf-8")
    changes: list[Callable[[], object]] = [
        lambda: write_profile(root, "scout", RULE, RULE),
        lambda: file.write_text(text.replace("deny", "allo"), "utf-8"),
        lambda: write_profile(root, "root", RULE),
        file.unlink,
        lambda: write_profile(tmp_path, "scout", RULE),
        lambda: (root / ".git/clia/config.toml").write_text("", "utf-8"),
        lambda: (root / ".git/packed-refs").write_text("# pack-refs with: peeled fully-peeled sorted \n"),
    ]
    for change in changes:
        compiled(space)
        assert cached(space) is not None
        change()
        assert cached(space) is None


def test_a_file_that_changes_elsewhere_does_not_end_the_cache(space: clia.Space, tmp_path: Path) -> None:
    compiled(space)
    (tmp_path / "space" / "notes.txt").write_text("x", "utf-8")
    assert cached(space) is not None


def test_the_rules_of_the_record_outlive_the_documents(space: clia.Space, tmp_path: Path) -> None:
    (tmp_path / "space/.clia/agents/scout/scout@x.agent.triad.json").unlink()
    assert compiled(space) == ["deny"]


def test_root_rules_hold_for_agents_without_an_identity(space: clia.Space, tmp_path: Path) -> None:
    assert compiled(space, "other") == []
    assert compiled(space, None) == []
    write_profile(tmp_path / "space", "root", RULE)
    assert compiled(space, "other") == ["deny"]
    assert compiled(space, None) == ["deny"]


def test_a_document_that_cannot_be_read_asks(space: clia.Space, tmp_path: Path) -> None:
    (tmp_path / "space/.clia/agents/scout/scout@x.agent.triad.json").write_text("{", "utf-8")
    assert set(compiled(space)) == {"ask", "deny"}


def test_an_allowance_that_the_record_lacks_is_left_out(space: clia.Space, tmp_path: Path) -> None:
    write_profile(tmp_path / "space", "scout", RULE, {"on": "tool", "do": "allow"})
    assert compiled(space) == ["deny"]


def test_what_changed_just_now_is_not_cached(space: clia.Space, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_cache, "_RACY_NANOSECONDS", 10**18)
    compiled(space)
    assert cached(space) is None


def test_a_cache_counts_for_its_key_and_time_only(tmp_path: Path) -> None:
    common = os.fsencode(tmp_path)
    sources = {os.fsencode(tmp_path / "a\n%b"): (True, signature(os.fsencode(tmp_path / "a\n%b")))}
    file = cache_file(common, KEY)
    os.makedirs(os.path.dirname(file))
    for until, key, is_used in ((2**40, KEY, True), (1, KEY, False), (2**40, b"other", False)):
        with open(file, "wb") as out:
            out.write(cache_content(key, until, True, sources, b"[]"))
        assert (read_cache(common, KEY) == (True, b"[]")) is is_used
    with open(file, "r+b") as out:
        out.truncate(20)
    assert read_cache(common, KEY) is None


def test_the_key_has_the_session_the_sub_agent_and_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLIA_AGENT", raising=False)
    event = b'{"session_id": "s1", "hook_event_name": "PreToolUse"}'
    keys = {
        cache_key("claude-code", b"/x", event),
        cache_key("codex", b"/x", event),
        cache_key("claude-code", b"/y", event),
        cache_key("claude-code", b"/x", event.replace(b"s1", b"s2")),
        cache_key("claude-code", b"/x", b'{"session_id": "s1", "agent_id": "sub", "x": {"agent_id": "y"}}'),
        cache_key("claude-code", b"/x", b'{"session_id": "s1", "x": {"agent_id": "sub"}, "agent_id": "z"}'),
    }
    monkeypatch.setenv("CLIA_AGENT", "scout")
    keys.add(cache_key("claude-code", b"/x", event))
    assert len(keys) == 7

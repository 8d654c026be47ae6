"""Lists of agents, a page at a time."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

import clia
from clia.testing import components
from support.fake_secrets import ALNUM, HEX
from support.plain_git import git_in
from support.spaces import BRIEFING, refused, settings

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_pages_of_agent_states_add_up_to_the_whole_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the library and on the command line; pending trace entries are counted as in the whole list."""
    from clia.cli.main import main

    with clia.init(tmp_path, settings=settings()) as space:
        for name in ("a0", "a1", "a2", "b"):
            space.spawn(name, BRIEFING)
        space.trace("a1", "console", "waits")
        whole, last, states = space.states(), "", []
        while page := space.states(after=last, limit=3):
            states += page
            last = page[-1].agent
        assert states == whole
        assert [state.pending for state in states] == [0, 1, 0, 0]
        assert space.agents(after="a1") == ["a2", "b"]
    assert main(["list", "--limit", "2", "--after", "a0", "--json", "--path", str(tmp_path)]) == 0
    assert [row["agent"] for row in json.loads(capsys.readouterr().out)] == ["a1", "a2"]


def test_pages_of_agent_names_add_up_to_the_whole_list(scout: clia.Space) -> None:
    for number in range(5):
        scout.spawn(f"a{number}", BRIEFING)
    git_in(scout, "pack-refs", "--all")
    for name in ("UPPER", "a2-and-more"):  # the first is not a valid agent name
        git_in(scout, "update-ref", f"refs/heads/agents/{name}", scout.head("scout"))
    pages = [components(scout).agents.names(limit=2)]
    while pages[-1]:
        pages.append(components(scout).agents.names(after=pages[-1][-1], limit=2))
    assert pages == [["a0", "a1"], ["a2", "a2-and-more"], ["a3", "a4"], ["scout"], []]
    refused("invalid-limit", lambda: components(scout).agents.names(limit=-1))


def test_an_agent_name_that_contains_a_secret_is_refused_without_repeating_it(scout: clia.Space) -> None:
    for name in ("ghp_" + ALNUM[:36], "pul-" + HEX[:40], "scout-pul-" + HEX[:40]):
        error = refused("secret-in-name", partial(scout.spawn, name, BRIEFING))
        assert name[-36:] not in str(error.to_json())
    assert scout.spawn("pul-request-12", BRIEFING).agent == "pul-request-12"


def test_a_token_in_a_path_is_redacted_in_messages_and_traces(scout: clia.Space) -> None:
    path = f"keys/backup-ghp_{ALNUM[:36]}.txt"
    scout.trace("scout", "tool-call", f"cat {path}", data={"path": path})
    commit = scout.show(
        scout.commit_with_trace("scout", "finding", changes={"a": b"1"}, message=f"Read {path}", meta={"path": path})
    )
    assert commit.message == "Read keys/backup-[redacted:github-token].txt"
    assert ALNUM[:36] not in str(scout.traces.of(commit.cid)) + str(commit.meta)

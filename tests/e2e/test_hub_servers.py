"""Two machines work on one space over each kind of git server, with the same result."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING

import pytest

import clia
from clia.errors import StaleRef
from clia.testing import components
from support import git
from support.git_hubs import HUBS, NoServer
from support.space_driver import settings
from support.spaces import BRIEFING, refused, texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.git_hubs import Hub

HEAD = "refs/clia/agents-published/scout"


@contextmanager
def server(kind: str, top: Path) -> Iterator[Hub]:
    top.mkdir()
    try:
        with HUBS[kind](top) as hub:
            yield hub
    except NoServer as err:
        pytest.fail(str(err), pytrace=False)


def machine(root: Path, hub: Hub, reached: Callable[[str], None] | None = None) -> clia.Space:
    environment = {**(settings().environment or {}), **hub.environment}
    return clia.init(root, settings=settings(environment=environment, reached=reached), hub=hub.url)


def at_hub(hub: Hub) -> dict[str, str]:
    lines = git("for-each-ref", "--format=%(refname) %(objectname)", cwd=hub.repository).splitlines()
    return dict(line.split(" ") for line in lines)


def share_an_agent(hub: Hub, tmp_path: Path) -> None:
    """One creates an agent, the other joins and continues its work; the loser of a race changes nothing and sees the winner."""
    meanwhile: list[Callable[[], object]] = []
    with ExitStack() as opened:
        first_machine = opened.enter_context(machine(tmp_path / "one", hub))
        first_machine.spawn("scout", BRIEFING)
        first_machine.trace("scout", "console", "looked around")
        finding = first_machine.commit_with_trace("scout", "finding", changes={"found.txt": b"slow\n"})

        two = opened.enter_context(machine(tmp_path / "two", hub, partial(at_step, "intent-recorded", meanwhile)))
        trace = two.traces.of(finding)
        assert trace is not None
        assert (two.id, two.head("scout"), texts(trace.entries)) == (first_machine.id, finding, ["looked around"])
        two.agents.claim("scout")
        follow_up = two.commit("scout", "finding", changes={"mine.txt": b"1\n"})

        two.trace("scout", "console", "in a race")
        meanwhile.append(lambda: first_machine.commit("scout", "finding", changes={"quicker.txt": b"\n"}))
        before = at_hub(hub)
        with pytest.raises(StaleRef):
            two.commit_with_trace("scout", "finding", changes={"late.txt": b"\n"})
        after = at_hub(hub)
        assert {ref for ref in after if after[ref] != before.get(ref)} == {HEAD}  # only by the winner
        assert [commit.cid for commit in two.log("scout")][:3] == [after[HEAD], follow_up, finding]
        assert texts(two.traces.pending("scout")) == ["in a race"]
        assert not components(two).envelope.unfinished()
        again = two.commit_with_trace("scout", "finding", changes={"late.txt": b"\n"})
        assert at_hub(hub)[HEAD] == again
        assert two.verify().clean
    git("fsck", "--strict", cwd=hub.repository)


def at_step(step: str, interfering: list[Callable[[], object]], name: str) -> None:
    if name == step and interfering:
        interfering.pop()()


@pytest.mark.parametrize("kind", ["path", "http", "ssh"])
def test_two_machines_share_an_agent(kind: str, tmp_path: Path) -> None:
    with server(kind, tmp_path / "server") as hub:
        share_an_agent(hub, tmp_path)


def test_a_server_with_access_rules_is_a_hub_if_they_allow_every_ref(tmp_path: Path) -> None:
    """gitolite with rights on all refs, and with rights on branches only, which is reported as an error."""
    with server("gitolite", tmp_path / "server") as hub:
        share_an_agent(hub, tmp_path)
        branches_only = hub._replace(url=hub.url.replace("/hub", "/branches"))
        refused("hub-refused", lambda: machine(tmp_path / "three", branches_only))
        assert git("for-each-ref", cwd=hub.repository.with_name("branches.git")) == ""

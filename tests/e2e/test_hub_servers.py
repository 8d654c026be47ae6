"""Two machines work on one space over each kind of git server: the same short story, and the same outcome."""

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

HEAD = "refs/heads/agents/scout"


@contextmanager
def server(kind: str, top: Path) -> Iterator[Hub]:
    top.mkdir()
    try:
        with HUBS[kind](top) as made:
            yield made
    except NoServer as err:
        pytest.fail(str(err), pytrace=False)


def machine(root: Path, hub: Hub, reached: Callable[[str], None] | None = None) -> clia.Space:
    environment = {**(settings().environment or {}), **hub.environment}
    return clia.init(root, settings=settings(environment=environment, reached=reached), hub=hub.url)


def at_hub(hub: Hub) -> dict[str, str]:
    lines = git("for-each-ref", "--format=%(refname) %(objectname)", cwd=hub.repository).splitlines()
    return dict(line.split(" ") for line in lines)


def share_an_agent(hub: Hub, tmp_path: Path) -> None:
    """One makes it, the other joins, reads its work and goes on; who loses a race has changed nothing, and sees who won."""
    meanwhile: list[Callable[[], object]] = []
    with ExitStack() as opened:
        one = opened.enter_context(machine(tmp_path / "one", hub))
        one.spawn("scout", BRIEFING)
        one.trace("scout", "console", "looked around")
        found = one.commit_with_trace("scout", "finding", changes={"found.txt": b"slow\n"})

        two = opened.enter_context(machine(tmp_path / "two", hub, partial(at_step, "intent-recorded", meanwhile)))
        shown = two.trace_for(found)
        assert shown is not None
        assert (two.id, two.head("scout"), texts(shown.entries)) == (one.id, found, ["looked around"])
        two.claim("scout")
        mine = two.commit("scout", "finding", changes={"mine.txt": b"1\n"})

        two.trace("scout", "console", "in a race")
        meanwhile.append(lambda: one.commit("scout", "finding", changes={"quicker.txt": b"\n"}))
        before = at_hub(hub)
        with pytest.raises(StaleRef):
            two.commit_with_trace("scout", "finding", changes={"late.txt": b"\n"})
        after = at_hub(hub)
        assert {ref for ref in after if after[ref] != before.get(ref)} == {HEAD}  # by the winner alone
        assert [each.cid for each in two.log("scout")][:3] == [after[HEAD], mine, found]
        assert texts(two.trace_pending("scout")) == ["in a race"]
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


def test_a_server_with_rules_of_its_own_is_a_hub_where_they_let_every_ref_move(tmp_path: Path) -> None:
    """gitolite with rights on all refs; and with rights on branches alone, where nobody is told that all was well."""
    with server("gitolite", tmp_path / "server") as hub:
        share_an_agent(hub, tmp_path)
        branches_only = hub._replace(url=hub.url.replace("/hub", "/branches"))
        refused("hub-refused", lambda: machine(tmp_path / "three", branches_only))
        assert git("for-each-ref", cwd=hub.repository.with_name("branches.git")) == ""

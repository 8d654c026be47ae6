"""Types that a space registers, and their ids."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from clia.federation.statements import define_cid
from support.plain_git import git_in
from support.spaces import refused

if TYPE_CHECKING:
    import clia


def test_the_owners_event_has_the_id_that_peers_see(space: clia.Space) -> None:
    space.types.register("review", "agent-commit")
    expected = define_cid("review", "agent-commit")
    event = json.loads(git_in(space, "log", "-1", "--format=%(trailers:key=Clia-Event,valueonly)", "refs/clia/types"))
    assert (event["name"], event["parent"], event["cid"]) == ("review", "agent-commit", expected)
    assert space.types.ids() == {"review": expected}


def test_a_top_level_type_is_a_type_of_objects(space: clia.Space) -> None:
    space.types.register("report", None)
    space.types.register("audit-report", "report")
    assert space.types()["report"] is None
    assert space.is_a("audit-report", "report")
    cid = space.write({"type": "report", "title": "May"})
    assert space.read(cid) == {"type": "report", "title": "May"}
    assert list(space.types.ids()) == ["audit-report"]
    refused("already-exists", lambda: space.types.register("report", None))


def test_a_top_level_type_is_no_kind_of_commit(scout: clia.Space) -> None:
    scout.types.register("report", None)
    refused("unknown-kind", lambda: scout.commit("scout", "report", changes={}))


def test_commits_may_have_the_generic_kind(scout: clia.Space) -> None:
    cid = scout.commit("scout", "agent-commit", changes={"a": b"1"})
    assert scout.show(cid).kind == "agent-commit"

"""Invalid paths, kinds, values and types: refused without any change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia import errors
from support.plain_git import fast_import
from support.spaces import BRIEFING, refused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("parent", ["decision", "spawn", "session-merge"])
def test_kinds_derived_from_a_reserved_kind_are_reserved(scout: clia.Space, parent: str) -> None:
    scout.types.register("mine", parent)
    scout.types.register("mine-too", "mine")
    head = scout.head("scout")
    refused("reserved-kind", lambda: scout.commit("scout", "mine", {}))
    refused("reserved-kind", lambda: scout.commit("scout", "mine-too", {}))
    assert scout.head("scout") == head


@pytest.mark.parametrize("path", ["/".join(["d"] * 1000), "a" * 300, "d/" + "é" * 150], ids=["deep", "long", "long in bytes"])
def test_paths_that_a_file_system_could_not_hold_are_refused(scout: clia.Space, path: str) -> None:
    head = scout.head("scout")
    refused("unsafe-path", lambda: scout.commit("scout", "finding", {path: b"1"}))
    refused("unsafe-path", lambda: scout.commit("scout", "finding", changes={path: b"1"}))
    assert scout.head("scout") == head


def test_a_deep_tree_that_git_wrote_can_be_read_and_committed_to(space: clia.Space, repo: Path) -> None:
    path = "/".join(["d"] * 1500)
    fast_import(repo, "refs/heads/deep", {path.encode(): b"found\n", b"top": b"1\n"})
    assert space.files("deep") == {path: b"found\n", "top": b"1\n"}
    space.spawn_at("scout", BRIEFING, "deep")
    space.commit("scout", "finding", {**space.files("scout"), "top": b"2\n"})
    space.commit("scout", "finding", changes={"new": b"1\n"})
    assert space.files("scout") == {path: b"found\n", "top": b"2\n", "new": b"1\n"}
    assert space.blame("scout", "top")[0].agent == "scout"


DEEP: dict[str, Callable[[clia.Space], object]] = {
    "meta": lambda space: space.commit("scout", "finding", {}, meta={"x": nested(3000)}),
    "data": lambda space: space.trace("scout", "console", "x", data={"x": nested(3000)}),
    "briefing": lambda space: space.spawn("other", clia.Briefing("Deep", meta={"x": nested(3000)})),
    "write": lambda space: space.types.write({"type": "capability", "x": nested(3000)}),
    "attach": lambda space: space.traces.attach("scout", [{"text": "x", "data": {"x": nested(3000)}}]),
    "merge": lambda space: space.merge("scout", "lead", meta={"x": nested(3000)}),
}


@pytest.mark.parametrize("verb", DEEP)
def test_a_value_nested_too_deeply_is_refused(scout: clia.Space, verb: str) -> None:
    scout.spawn("lead", BRIEFING)
    head = scout.head("scout")
    with pytest.raises(errors.InvalidInput) as caught:
        DEEP[verb](scout)
    assert caught.value.code == "too-deep"
    assert scout.agents() == ["lead", "scout"]
    assert (scout.head("scout"), scout.traces.pending("scout"), scout.traces.of("scout")) == (head, [], None)


WRONG: dict[str, Callable[[Any], object]] = {
    "files as a list": lambda space: space.commit("scout", "finding", ["a"]),
    "changes as a list": lambda space: space.commit("scout", "finding", changes=["a"]),
    "a number as a path to remove": lambda space: space.commit("scout", "finding", changes={5: None}),
    "a number as a path": lambda space: space.commit("scout", "finding", {5: b"1"}),
    "a number as base": lambda space: space.commit("scout", "finding", {}, base=5),
    "a list as meta": lambda space: space.commit("scout", "finding", {}, meta=[1]),
    "a number as message": lambda space: space.commit("scout", "finding", {}, message=5),
    "a number as kind": lambda space: space.commit("scout", 5, {}),
    "a list as data": lambda space: space.trace("scout", "console", "x", data=[1]),
    "a number as text": lambda space: space.trace("scout", "console", 5),
    "nothing as entries": lambda space: space.traces.attach("scout", None),
    "a text as entries": lambda space: space.traces.attach("scout", "x"),
    "a number as an entry": lambda space: space.traces.attach("scout", [5]),
    "nothing as a commit": lambda space: space.spawn_at("other", BRIEFING, None),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_value_of_the_wrong_type_changes_nothing(scout: clia.Space, mistake: str) -> None:
    head = scout.head("scout")
    with pytest.raises(errors.InvalidInput):
        WRONG[mistake](scout)
    assert scout.agents() == ["scout"]
    assert (scout.head("scout"), scout.traces.pending("scout"), scout.traces.of("scout")) == (head, [], None)


@pytest.mark.parametrize("path", ["f/", "/f", "", "../f"])
def test_removing_an_invalid_path_is_refused(scout: clia.Space, path: str) -> None:
    head = scout.commit("scout", "finding", {"f": b"1"})
    refused("unsafe-path", lambda: scout.commit("scout", "finding", changes={path: None}))
    assert scout.head("scout") == head


def test_an_argument_of_the_wrong_type_raises_invalid_input(scout: clia.Space) -> None:
    space: Any = scout
    calls: list[Callable[[], object]] = [
        *(
            lambda verb=verb: getattr(space, verb)(None)
            for verb in ("find", "log", "show", "files", "trace_for", "diff", "archive")
        ),
        lambda: space.fork_point("scout", 5),
        lambda: space.land("scout", 5),
        lambda: space.traces.purge("scout", None),
        lambda: space.traces.search(5),
        lambda: space.types.read(5),
        lambda: space.types.write(5),
        lambda: space.commit("scout", ["x"], {}),
        lambda: space.types.is_a(["x"], "finding"),
        lambda: space.types.register("x", ["y"]),
        lambda: space.resolve("scout", "other", {}, ours=None, theirs=None),
        lambda: space.commit_dir("scout", "finding", 5),
        lambda: space.blame("scout", 5),
        lambda: space.maintain(archive_idle_days="x"),
        lambda: space.log("scout", limit="x"),
    ]
    for call in calls:
        with pytest.raises(clia.errors.InvalidInput):
            call()
    assert scout.verify().clean

"""A space with many agents: what keeps questions quick is never trusted over the refs."""

from __future__ import annotations

import os
import random
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from benchmarks import growth_space

import clia
from clia.git import refs as git_refs
from clia.space import relations
from clia.testing import components
from support import git
from support.session_spaces import root_of
from support.spaces import BRIEFING, refused, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HEADS = "refs/heads/agents/"


@pytest.fixture
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[clia.Space]:
    """One whose packed file counts as old at once, so that what was seen of it is trusted."""
    monkeypatch.setattr(git_refs, "time", SimpleNamespace(**vars(time) | {"time_ns": lambda: time.time_ns() + 10**10}))
    with clia.init(tmp_path / "repo", settings=settings()) as made:
        made.spawn("scout", BRIEFING)
        yield made


def run_git(space: clia.Space, *words: str) -> str:
    return git(*words, cwd=root_of(space)).strip()


def spawned_elsewhere(space: clia.Space, name: str, parent: str = "scout") -> str:
    """The commit of a sub-agent that no ref holds yet, as plain git would bring it."""
    cid = space.spawn_from(name, BRIEFING, parent).genesis
    for ref in (HEADS + name, f"refs/clia/agents/{name}"):
        run_git(space, "update-ref", "-d", ref)
    assert space.sub_agents(parent) == []
    return cid


# Refs


def test_every_page_of_the_refs_is_what_git_says(space: clia.Space) -> None:
    """Packed and loose, one over the other, with annotated tags between them, from every place and in every length."""
    head = space.head("scout")
    for number in range(12):
        run_git(space, "update-ref", f"refs/heads/agents/a{number}", head)
        run_git(space, "tag", "--annotate", "--message", "a tag", f"a{number}", head)
    run_git(space, "update-ref", "refs/heads/agents/é", head)
    run_git(space, "pack-refs", "--all")
    moved = space.commit("scout", "finding", changes={"a": b"a"})
    for name in ("a3", "a77", "é"):
        run_git(space, "update-ref", f"refs/heads/agents/{name}", moved)
    refs = space.core.refs
    for prefix in (HEADS, "refs/tags/", "refs/", "refs/none/", "refs/clia/"):
        listed = run_git(space, "for-each-ref", "--format=%(refname) %(objectname)", prefix).splitlines()
        told = sorted((line.split(" ")[0], line.split(" ")[1]) for line in listed)
        assert refs.under(prefix) == told
        for place in range(len(told)):
            assert refs.under(prefix, after=told[place][0]) == told[place + 1 :]
            assert refs.under(prefix, after=told[place][0], limit=2) == told[place + 1 : place + 3]
        assert refs.under(prefix, limit=0) == []
        assert refs.under(prefix, limit=3) == told[:3]


def test_a_packed_file_that_does_not_say_it_is_sorted_is_read_whole(space: clia.Space) -> None:
    head = space.head("scout")
    run_git(space, "pack-refs", "--all")
    lines = [f"{head} {HEADS}{name}" for name in ("zz", "mm", "scout", "aa")]
    (root_of(space) / "packed-refs").write_text("\n".join(lines) + "\n")
    assert [ref for ref, _ in space.core.refs.under(HEADS)] == [f"{HEADS}{name}" for name in ("aa", "mm", "scout", "zz")]
    assert components(space).agents.names(after="aa", limit=2) == ["mm", "scout"]


def test_a_look_names_what_plain_git_moved_with_the_same_times_and_sizes(space: clia.Space) -> None:
    refs, file = space.core.refs, root_of(space) / "packed-refs"
    first, second = space.head("scout"), space.commit("scout", "finding", changes={"a": b"a"})
    run_git(space, "pack-refs", "--all")
    seen = refs.look([HEADS]).seen
    assert refs.look([HEADS], seen) == (seen, [])
    # A loose ref over a packed one, with the packed file as it was.
    run_git(space, "update-ref", HEADS + "scout", first)
    loose = refs.look([HEADS], seen)
    assert loose.moved == [HEADS + "scout"]
    # The same loose file with another value, and the times of the old one.
    path, before = root_of(space) / HEADS / "scout", (root_of(space) / HEADS / "scout").stat()
    path.write_text(second + "\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert refs.look([HEADS], loose.seen).moved == [HEADS + "scout"]
    # Packed again to another value: a file of the same size and, as far as it can be set, the same age.
    age = file.stat()
    run_git(space, "update-ref", HEADS + "scout", first)
    packed = refs.look([HEADS], seen).seen
    run_git(space, "pack-refs", "--all")
    os.utime(file, ns=(age.st_atime_ns, age.st_mtime_ns))
    assert file.stat().st_size == age.st_size
    assert refs.look([HEADS], packed).moved is None
    # The same, where the disk gives the new file the number of the old one.
    packed, text = refs.look([HEADS]).seen, file.read_bytes()
    with file.open("r+b") as same:
        same.write(text.replace(first.encode(), second.encode()))
    os.utime(file, ns=(age.st_atime_ns, age.st_mtime_ns))
    assert refs.look([HEADS], packed).moved is None
    # One that had a file of its own, and went.
    run_git(space, "update-ref", HEADS + "brief", first)
    there = refs.look([HEADS], refs.look([HEADS]).seen)
    run_git(space, "update-ref", "-d", HEADS + "brief")
    assert refs.look([HEADS], there.seen).moved == [HEADS + "brief"]


def test_a_packed_file_of_a_moment_ago_is_not_trusted(space: clia.Space, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one may be written within the same tick of the disk's clock."""
    run_git(space, "pack-refs", "--all")
    assert space.core.refs.look([HEADS]).seen is not None
    monkeypatch.setattr(git_refs, "time", time)
    assert space.core.refs.look([HEADS]) == (None, None)


# Relations


@pytest.mark.parametrize("packed", [False, True])
def test_a_question_sees_what_plain_git_did_a_moment_ago(space: clia.Space, packed: bool) -> None:
    cid = spawned_elsewhere(space, "sub")
    for step in (("update-ref", HEADS + "sub", cid), ("update-ref", "-d", HEADS + "sub")):
        run_git(space, *step)
        if packed:
            run_git(space, "pack-refs", "--all")
        assert space.sub_agents("scout") == ([] if "-d" in step else ["sub"])
    run_git(space, "update-ref", "refs/clia/archive/agents/sub", cid)
    assert space.sub_agents("scout") == ["sub"]  # an archived agent is one, too
    assert components(space).relations.rebuild() == 1


def test_a_question_after_one_move_lists_no_refs_and_after_none_writes_nothing(
    space: clia.Space, monkeypatch: pytest.MonkeyPatch
) -> None:
    space.spawn_from("sub", BRIEFING, "scout")
    run_git(space, "pack-refs", "--all")
    assert space.agent_tree("scout") == ["sub"]
    space.spawn_from("deep", BRIEFING, "sub")

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("this costs what the space holds")

    monkeypatch.setattr(space.core.refs, "under", never)
    assert space.agent_tree("scout") == ["deep", "sub"]
    monkeypatch.setattr(space.core.store, "writing", never)
    assert space.agent_tree("scout") == ["deep", "sub"]


# Who moved last, and the newest commits


def test_the_newest_heads_are_known_whatever_happens_to_agents(space: clia.Space, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of five that must know three, against all heads sorted by their dates; now and then it cannot tell, and names all."""
    monkeypatch.setattr(relations, "RECENT_MAX", 5)
    monkeypatch.setattr(relations, "RECENT_MIN", 3)
    chance, known, told = random.Random(9), ["scout"], 0  # noqa: S311  # the same every time
    for number in range(60):
        name = chance.choice(known)
        what = chance.randrange(6)
        if what < 2:
            known.append(space.spawn(f"a{number}", BRIEFING).agent)
        elif what < 4:
            space.commit(name, "finding", changes={"n": b"%d" % number})
        elif what == 4 and len(known) > 4:
            known.remove(name)
            space.archive(name)
        else:
            run_git(space, "update-ref", HEADS + name, space.genesis(name))  # back to an older commit, by plain git
        dated = sorted((-space.show(name).committer.at, name) for name in known)
        found = components(space).relations.newest(3)
        told += len(found) == 3
        assert found == [name for _, name in dated][:3] or sorted(found) == sorted(known), number
    assert told > 40
    assert sorted(components(space).relations.newest(1_000)) == sorted(known)


def test_a_list_that_became_too_short_is_not_believed() -> None:
    listed = relations.RecencyIndex(
        [(9, "a"), (8, "b")] + [(1, f"c{number:03}") for number in range(relations.RECENT_MIN)], complete=False
    )
    assert listed.moved({"a": None}) == listed._replace(heads=listed.heads[1:])
    assert listed.moved({"a": None, "b": None, "c007": 0}) is None  # one that is older now than all in the list has left it, too
    assert listed._replace(complete=True).moved({"c007": 0}) is not None
    assert relations.RecencyIndex.from_json({"heads": [["?"]]}) is relations.RecencyIndex.from_json(None) is None


def test_the_first_commits_are_those_of_the_whole_walk(space: clia.Space) -> None:
    for number in range(8):
        space.spawn_from(f"a{number}", BRIEFING, "scout" if number < 3 else f"a{number - 3}")
        space.commit(f"a{number}", "finding", changes={f"f{number}": b"x"})
    space.merge("a7", "a2")
    graph, heads = space.core.graph, [space.head(name) for name in space.agents()]
    whole = list(graph.walk(heads))
    assert [graph.newest(heads, count) for count in range(len(whole) + 2)] == [whole[:count] for count in range(len(whole) + 2)]
    for names in ((), space.agents()):  # all of them, and more heads than commits are asked for
        assert [each.cid for each in space.window(names, 5)] == [each.cid for each in whole[:5]]
    assert space.log("a7", limit=4) == space.log("a7")[:4]


def test_no_parent_comes_before_its_child_where_clocks_differ(space: clia.Space) -> None:
    """Two children of one commit, one of them dated before it: by dates alone the parent would come between them."""
    core, tree = space.core, space.core.empty_tree()
    cids: dict[str, str] = {}
    for name, at, above in (("root", 50, []), ("late", 90, ["root"]), ("early", 10, ["root"]), ("both", 95, ["late", "early"])):
        by = core.person_stamp(at)
        cids[name] = core.objects.write_commit(tree, [cids[each] for each in above], by, by, f"{name}\n")
    found = [each.message.strip() for each in core.graph.newest([cids["both"], cids["root"]], 10)]
    assert found == ["both", "late", "early", "root"]


def test_names_of_agents_come_in_pages_that_leave_none_out(space: clia.Space) -> None:
    for number in range(5):
        space.spawn(f"a{number}", BRIEFING)
    run_git(space, "pack-refs", "--all")
    for name in ("UPPER", "a2-and-more"):  # the first is no name of an agent
        run_git(space, "update-ref", HEADS + name, space.head("scout"))
    pages = [components(space).agents.names(limit=2)]
    while pages[-1]:
        pages.append(components(space).agents.names(after=pages[-1][-1], limit=2))
    assert pages == [["a0", "a1"], ["a2", "a2-and-more"], ["a3", "a4"], ["scout"], []]
    refused("invalid-limit", lambda: components(space).agents.names(limit=-1))


# The generator of the growth benchmark


def test_a_generated_space_is_what_the_verbs_make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth_space, "FAMILY", 5)
    with growth_space.replay(tmp_path / "verbs", 12):
        pass
    growth_space.generate(tmp_path / "packs", 12)
    made, done = (
        {line for line in git("show-ref", cwd=tmp_path / name).splitlines() if not line.endswith(" refs/clia/space")}
        for name in ("packs", "verbs")
    )
    assert made == done
    assert len(done) == 1 + 12 * 3 + 2
    with clia.open(tmp_path / "packs", settings=settings()) as space:
        assert space.verify().clean
        edges = space.relations()
        assert (space.rebuild(), space.relations()) == (len(edges), edges)

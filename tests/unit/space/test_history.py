"""Blame, and the order of the newest commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import clia
from clia.space.attribution.authorship import in_words
from clia.testing import components
from support import git
from support.plain_git import commit_file, rev
from support.spaces import BRIEFING, commit_with_trace, settings

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("source_of_trace", ["relinked", "attached"])
def test_blame_names_the_agent_and_trace_behind_commits_of_people(space: clia.Space, people: Path, source_of_trace: str) -> None:
    if source_of_trace == "relinked":
        source = commit_with_trace(space, "why", b=b"1\n")
        git("commit", "-q", "--allow-empty", "-m", "meanwhile", cwd=people)
        git("cherry-pick", source, cwd=people)
        git("commit", "-q", "--amend", "-m", "as people say it", cwd=people)
        assert [relinked.commit for relinked in space.traces.relink()] == [rev(people, "main")]
    else:
        space.traces.attach(commit_file(people, "b", "1\n"), [{"text": "why"}], agent="scout")
    (line,) = space.blame("main", "b")
    assert (line.commit, line.agent, line.kind) == (rev(people, "main"), "scout", None)
    assert line.trace == space.traces.id_of("main") is not None
    (line,) = space.blame("main", "a")
    assert (line.agent, line.trace) == (None, None)


def test_blame_does_not_apply_gits_list_of_ignored_revisions(space: clia.Space, people: Path) -> None:
    commit = space.commit("scout", "finding", changes={"a": b"2\n"})
    (people / ".ignored").write_text(f"{commit}\n")
    git("config", "blame.ignoreRevsFile", ".ignored", cwd=people)
    assert space.blame("scout", "a")[0].commit == commit


@pytest.mark.parametrize("reachable", [True, False])
def test_a_partial_clone_fetches_what_it_needs_or_shows_what_is_missing(
    space: clia.Space, people: Path, tmp_path: Path, reachable: bool
) -> None:
    space.traces.attach(commit_file(people, "c", "1\n"), [{"text": "why"}], agent="scout")
    space.commit("scout", "finding", changes={"b": b"work_one()\nwork_two()\n"})
    commit_file(people, "b", "work_one()\nwork_two()\nmine()\n")
    git("mv", "a", "moved", cwd=people)
    commit_file(people, "moved", "moved by a person\n")
    summary = space.history.authorship("main", limit=9)
    assert [line.by for line in space.blame("main", "b")] == ["agent", "agent", "person"]
    git("config", "uploadpack.allowFilter", "true", cwd=people)
    git("clone", "-q", "--no-checkout", "--filter=blob:none", people.as_uri(), "partial", cwd=tmp_path)
    with clia.init(tmp_path / "partial", settings=settings()) as clone:
        if reachable:
            assert clone.history.authorship("main", limit=9) == summary
            for path in ("b", "c", "moved"):
                lines = [line._replace(title=None) for line in space.blame("main", path)]  # a briefing is not fetched
                assert [line._replace(title=None) for line in clone.blame("main", path)] == lines
            return
        git("cat-file", "blob", "main:b", cwd=tmp_path / "partial")
        people.rename(tmp_path / "away")
        assert {line.by for line in clone.blame("main", "b")} == {"unknown"}
        partial = clone.history.authorship("main", limit=9)
    assert (partial.lines, partial.unknown, partial.missing) == (3, 3, 3)
    assert in_words(partial) == "0 of 3 lines by agents, 3 lines unknown, 3 files missing here"


@pytest.mark.parametrize("omitted", ["blob:none", "tree:0", "blob:limit=1k"])
def test_a_line_is_unknown_and_gets_no_note_where_the_agents_version_of_it_is_missing(
    space: clia.Space, people: Path, tmp_path: Path, omitted: str
) -> None:
    lines = "".join(f"work_{number}()\n" for number in range(200))  # larger than the limit of the filter
    space.commit("scout", "finding", changes={"b": f"{lines}left_out()\n".encode()})
    commit_file(people, "b", f"{lines}mine()\n")
    git("config", "uploadpack.allowFilter", "true", cwd=people)
    git("config", "uploadpack.allowAnySHA1InWant", "true", cwd=people)
    git("clone", "-q", f"--filter={omitted}", people.as_uri(), "partial", cwd=tmp_path)
    with clia.init(tmp_path / "partial", settings=settings()) as clone:
        git("blame", "main", "--", "b", cwd=tmp_path / "partial")  # fetches the versions of people only
        people.rename(tmp_path / "away")
        components(clone).attributions.catch_up_branches()
        assert {line.by for line in clone.blame("main", "b")} == {"unknown"}
        assert components(clone).core.refs.get("refs/notes/clia/attribution") is None
        (tmp_path / "away").rename(people)
        assert [line.by for line in clone.blame("main", "b")] == ["agent"] * 200 + ["person"]


def test_the_newest_commits_are_the_first_of_the_whole_walk(scout: clia.Space) -> None:
    for number in range(8):
        scout.spawn_from(f"a{number}", BRIEFING, "scout" if number < 3 else f"a{number - 3}")
        scout.commit(f"a{number}", "finding", changes={f"f{number}": b"x"})
    scout.merge("a7", "a2")
    graph, heads = components(scout).core.graph, [scout.head(name) for name in scout.agents()]
    walk = list(graph.walk(heads))
    assert [graph.newest(heads, count) for count in range(len(walk) + 2)] == [walk[:count] for count in range(len(walk) + 2)]
    for names in ((), scout.agents()):  # all agents by default, and more heads than the limit
        assert [commit.cid for commit in scout.history.window(names, 5)] == [commit.cid for commit in walk[:5]]
    assert scout.log("a7", limit=4) == scout.log("a7")[:4]


def test_no_parent_comes_before_its_child_if_clocks_differ(space: clia.Space) -> None:
    """One of two children is dated before their parent; sorted by date alone, the parent would come between them."""
    core, tree = components(space).core, components(space).core.empty_tree()
    cids: dict[str, str] = {}
    for name, at, parents in (("root", 50, []), ("late", 90, ["root"]), ("early", 10, ["root"]), ("both", 95, ["late", "early"])):
        by = core.person_stamp(at)
        cids[name] = core.objects.write_commit(tree, [cids[parent] for parent in parents], by, by, f"{name}\n")
    messages = [commit.message.strip() for commit in core.graph.newest([cids["both"], cids["root"]], 10)]
    assert messages == ["both", "late", "early", "root"]

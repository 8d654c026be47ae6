"""``space.local`` and ``space.views``: what programs on the machine of a space read."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from clia.git.records import EXECUTABLE, FILE, FOLDER, LINK
from clia.sessions.records import ENDED
from clia.space.feed import ReaderPosition
from clia.values import refs as names
from support import git
from support.plain_git import commit_file
from support.spaces import BRIEFING, commit_with_trace, refused

if TYPE_CHECKING:
    from pathlib import Path

    import clia

ROW = "hook/ci"


def test_a_folder_lists_its_own_names_with_their_kinds(space: clia.Space, repo: Path) -> None:
    commit_file(repo, "a", "1\n")
    (repo / "folder" / "deeper").mkdir(parents=True)
    (repo / "folder" / "deeper" / "file").write_text("1")
    (repo / "folder" / "run").write_text("#!/bin/sh\n")
    (repo / "folder" / "run").chmod(0o755)
    (repo / "folder" / "link").symlink_to("run")
    git("add", "-A", cwd=repo)
    git("commit", "-qm", "files", cwd=repo)
    views, head = space.views, space.find("HEAD")
    root, folder = views.entry(head, ""), views.entry(head, "folder")
    assert root is not None
    assert folder is not None
    assert views.folder(root.cid) == {"a": FILE, "folder": FOLDER}
    assert views.folder(folder.cid) == {"deeper": FOLDER, "link": LINK, "run": EXECUTABLE}
    run = views.entry(head, "folder/run")
    assert run is not None
    assert views.blob(run.cid) == b"#!/bin/sh\n"
    assert views.entry(head, "folder/none") is None


def test_children_are_listed_up_to_a_limit_which_is_reported(scout: clia.Space) -> None:
    genesis = scout.head("scout")
    for name in ("one", "two"):
        scout.spawn_at(name, BRIEFING, genesis)
    children = {scout.agents.genesis("one"), scout.genesis("two")}
    assert set(scout.views.children(genesis, 100, 10).commits) == children
    assert not scout.views.children(genesis, 100, 10).more
    first = scout.views.children(genesis, 100, 1)
    assert (len(first.commits), first.more) == (1, True)
    assert scout.views.children(genesis, 1, 10).more, "the walk ended before the oldest commit"


def test_an_own_commit_that_a_peer_has_too_is_not_the_peers(scout: clia.Space, repo: Path) -> None:
    head = scout.head("scout")
    for ref in (f"{names.PEERS}ann", names.remote("ann", "agents/scout"), names.remote("ann", "agents/other")):
        git("update-ref", ref, head, cwd=repo)
    assert scout.views.peer_of("scout", head) is None
    assert scout.views.peer_of("other", head) == "ann"
    assert scout.views.has_agent("ann/other")
    assert not scout.views.has_agent("ann/nobody")
    assert scout.views.agent("ann/other") == ("ann/other", head, False)


def test_an_archived_agent_is_known_and_an_unknown_one_is_refused(scout: clia.Space) -> None:
    head = scout.head("scout")
    scout.agents.archive("scout")
    assert scout.views.has_agent("scout")
    assert scout.views.agent("scout") == ("scout", head, True)
    refused("no-such-agent", lambda: scout.views.agent("nobody"))


def test_the_last_question_is_found_unless_its_journal_is_damaged(scout: clia.Space) -> None:
    assert scout.views.last_question("scout") is None
    request = scout.ask("scout", {"question": "Go?"})
    scout.decide("scout", "yes", request_id=request.id)
    session = scout.views.last_question("scout")
    assert session is not None
    assert session.id == request.session
    with scout.local.store.writing() as transaction:
        for key, _ in transaction.values.scan(f"{ENDED}scout/"):
            transaction.values.put(key, "damaged")
    refused("damaged-row", lambda: scout.session("scout", request.session))
    assert scout.views.last_question("scout") is None


def test_the_marks_of_a_commit_follow_its_notes(scout: clia.Space) -> None:
    scout.sessions.define("wait", "def main(input):\n    return request('go')\n")
    plain, before = scout.commit("scout", "finding", {"a": b"1"}), scout.views.note_tips("scout")
    assert scout.views.marks("scout", plain) == (False, None)
    scout.start("scout", "wait")
    traced = commit_with_trace(scout, "text", b=b"2")
    assert scout.views.marks("scout", traced) == (True, "1")
    assert all(after != tip for after, tip in zip(scout.views.note_tips("scout"), before, strict=True))


def test_a_branch_that_is_checked_out_has_a_worktree(space: clia.Space, repo: Path) -> None:
    commit_file(repo, "a", "1\n")
    git("branch", "other", cwd=repo)
    assert space.views.worktree_of(f"{names.BRANCHES}main") == str(repo)
    assert space.views.worktree_of(f"{names.BRANCHES}other") is None


def test_a_named_reader_starts_at_the_end_and_continues_at_its_position(scout: clia.Space) -> None:
    with closing(scout.local.open_feed()) as feed:
        scout.ask("scout", {"question": "Go?"})
        start = feed.position_of(ROW)
        assert start.position == feed.end() > 0
        scout.ask("scout", {"question": "And now?"})
        assert feed.position_of(ROW) == start
        moved = feed.keep_position(ROW, start._replace(position=feed.end()))
        assert feed.position_of(ROW) == moved
        refused("stale-value", lambda: feed.keep_position(ROW, start))


def test_a_reader_ahead_of_the_feed_starts_at_its_end_again(scout: clia.Space) -> None:
    """The store was lost, and positions restarted."""
    with closing(scout.local.open_feed()) as feed:
        kept = feed.position_of(ROW)
        feed.keep_position(ROW, ReaderPosition(feed.end() + 5, kept.version))
        assert feed.position_of(ROW).position == feed.end()

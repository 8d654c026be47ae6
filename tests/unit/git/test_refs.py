from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from clia.git import ref_files
from clia.testing import components
from support.plain_git import git_in
from support.session_spaces import root_of

if TYPE_CHECKING:
    import clia

HEADS = "refs/heads/agents/"


pytestmark = pytest.mark.usefixtures("trusted_packed_refs")


def test_every_page_of_the_refs_matches_gits_listing(scout: clia.Space) -> None:
    """Packed refs, loose refs that override them, and annotated tags; pages from every start and of every length."""
    head = scout.head("scout")
    for number in range(12):
        git_in(scout, "update-ref", f"refs/heads/agents/a{number}", head)
        git_in(scout, "tag", "--annotate", "--message", "a tag", f"a{number}", head)
    git_in(scout, "update-ref", "refs/heads/agents/é", head)
    git_in(scout, "pack-refs", "--all")
    moved = scout.commit("scout", "finding", changes={"a": b"a"})
    for name in ("a3", "a77", "é"):
        git_in(scout, "update-ref", f"refs/heads/agents/{name}", moved)
    refs = components(scout).core.refs
    for prefix in (HEADS, "refs/tags/", "refs/", "refs/none/", "refs/clia/"):
        lines = git_in(scout, "for-each-ref", "--format=%(refname) %(objectname)", prefix).splitlines()
        expected = sorted((line.split(" ")[0], line.split(" ")[1]) for line in lines)
        assert refs.under(prefix) == expected
        for index in range(len(expected)):
            assert refs.under(prefix, after=expected[index][0]) == expected[index + 1 :]
            assert refs.under(prefix, after=expected[index][0], limit=2) == expected[index + 1 : index + 3]
        assert refs.under(prefix, limit=0) == []
        assert refs.under(prefix, limit=3) == expected[:3]


def test_a_packed_refs_file_without_the_sorted_header_is_read_whole(scout: clia.Space) -> None:
    head = scout.head("scout")
    git_in(scout, "pack-refs", "--all")
    lines = [f"{head} {HEADS}{name}" for name in ("zz", "mm", "scout", "aa")]
    (root_of(scout) / "packed-refs").write_text("\n".join(lines) + "\n")
    assert [ref for ref, _ in components(scout).core.refs.under(HEADS)] == [
        f"{HEADS}{name}" for name in ("aa", "mm", "scout", "zz")
    ]
    assert components(scout).agents.names(after="aa", limit=2) == ["mm", "scout"]


def test_a_scan_reports_refs_that_git_moved_without_a_change_of_time_or_size(scout: clia.Space) -> None:
    refs, file = components(scout).core.refs, root_of(scout) / "packed-refs"
    first, second = scout.head("scout"), scout.commit("scout", "finding", changes={"a": b"a"})
    git_in(scout, "pack-refs", "--all")
    first_scan = refs.look([HEADS]).state
    assert refs.look([HEADS], first_scan) == (first_scan, [])
    # A loose ref that overrides a packed one; the packed file is unchanged.
    git_in(scout, "update-ref", HEADS + "scout", first)
    loose_scan = refs.look([HEADS], first_scan)
    assert loose_scan.moved == [HEADS + "scout"]
    # The same loose file with another value and the old times.
    path, before = root_of(scout) / HEADS / "scout", (root_of(scout) / HEADS / "scout").stat()
    path.write_text(second + "\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert refs.look([HEADS], loose_scan.state).moved == [HEADS + "scout"]
    # Packed again with another value: a file of the same size and, as far as it can be set, the same age.
    age = file.stat()
    git_in(scout, "update-ref", HEADS + "scout", first)
    packed_scan = refs.look([HEADS], first_scan).state
    git_in(scout, "pack-refs", "--all")
    os.utime(file, ns=(age.st_atime_ns, age.st_mtime_ns))
    assert file.stat().st_size == age.st_size
    assert refs.look([HEADS], packed_scan).moved is None
    # The same, but the file system gives the new file the inode number of the old one.
    packed_scan, text = refs.look([HEADS]).state, file.read_bytes()
    with file.open("r+b") as overwritten:
        overwritten.write(text.replace(first.encode(), second.encode()))
    os.utime(file, ns=(age.st_atime_ns, age.st_mtime_ns))
    assert refs.look([HEADS], packed_scan).moved is None
    # A loose ref that was deleted.
    git_in(scout, "update-ref", HEADS + "brief", first)
    brief_scan = refs.look([HEADS], refs.look([HEADS]).state)
    git_in(scout, "update-ref", "-d", HEADS + "brief")
    assert refs.look([HEADS], brief_scan.state).moved == [HEADS + "brief"]


def test_a_packed_refs_file_written_a_moment_ago_is_not_trusted(scout: clia.Space, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version may be written within the same tick of the file system's clock."""
    git_in(scout, "pack-refs", "--all")
    assert components(scout).core.refs.look([HEADS]).state is not None
    monkeypatch.setattr(ref_files, "time", time)
    assert components(scout).core.refs.look([HEADS]) == (None, None)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("count", [3, 60])
def test_missing_refs_are_found_among_few_and_many(scout: clia.Space, count: int, *, packed: bool) -> None:
    head, names = scout.head("scout"), {f"a{number}" for number in range(count)}
    for name in names:
        git_in(scout, "update-ref", HEADS + name, head)
    refs = components(scout).core.refs
    assert refs.missing(HEADS, names | {"other"}) == {"other"}
    if packed:
        git_in(scout, "pack-refs", "--all")
    git_in(scout, "update-ref", "-d", f"{HEADS}a1")
    git_in(scout, "update-ref", "-d", f"{HEADS}a2")
    assert refs.missing(HEADS, names) == {"a1", "a2"}
    git_in(scout, "update-ref", f"{HEADS}a1", head)
    assert refs.missing(HEADS, names) == {"a2"}
    assert refs.missing("refs/nothing/", names) == names

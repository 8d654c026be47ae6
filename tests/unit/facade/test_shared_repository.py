"""A repository that several accounts use (``core.sharedRepository``): everything in it has the permissions that git would give."""

from __future__ import annotations

import codecs
import os
import stat
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pygit2
import pytest
from pygit2.enums import ConfigLevel

import clia
from clia.capture.spool import put, spool_of
from clia.testing import components
from support import git
from support.other_users import FIRST, GROUP, SECOND, STRANGER, give, needs_root, public_directory, run_as
from support.spaces import BRIEFING, refused, settings, texts, trace_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PRIVATE = {"keys", "work"}


@pytest.fixture(params=[0o077, 0o022, 0o002], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def repository(root: Path, shared: str | None) -> Path:
    """A repository with one commit."""
    git("init", "-q", "-b", "main", *([f"--shared={shared}"] if shared else []), str(root), cwd=root.parent)
    git("commit", "-q", "--allow-empty", "-m", "first", cwd=root)
    return root


def use_everything(space: clia.Space, root: Path, mark: str) -> None:
    """Verbs that write objects, refs, notes, reflogs, locks, the store, the archive repository, a checkout and hook events."""
    for name in (f"{mark}-one", f"{mark}-two"):
        space.spawn_at(name, BRIEFING, "main")
        space.trace(name, "console", f"{mark} trace")
        space.commit_with_trace(name, "finding", changes={f"deep/{name}/file.txt": mark.encode()}, message=mark)
    space.merge(f"{mark}-one", f"{mark}-two")
    space.relate(f"{mark}-one", "reviews", f"{mark}-two")
    space.agents.archive(f"{mark}-two")
    space.local.put_away([f"{mark}-two"])
    space.checkout(f"{mark}-one", root.parent / f"desk-{mark}")
    put([spool_of(os.fsencode(root / ".git"))], [b"{}"])
    space.maintain()


def modes(root: Path) -> dict[str, int]:
    """The permissions of everything below a git directory, except what stays private."""
    found = {}
    for parent, folders, files in os.walk(root):
        if Path(parent).name == "clia":
            folders[:] = [name for name in folders if name not in PRIVATE]
        for name in (*folders, *files):
            path = os.path.join(parent, name)
            found[os.path.relpath(path, root)] = os.lstat(path).st_mode
    return found


def wrong(found: dict[str, int], files: int, folders: int) -> dict[str, str]:
    """Those that lack permissions; objects, packs and templates are read-only."""
    lacking = {}
    for name, mode in found.items():
        if name.startswith(("hooks", "info", "description", "branches", "COMMIT_EDITMSG")):
            continue  # git itself does not share these
        wanted = folders if stat.S_ISDIR(mode) else files if mode & 0o200 else files & ~0o222
        if stat.S_IMODE(mode) & wanted != wanted:
            lacking[name] = oct(stat.S_IMODE(mode))
    return lacking


@pytest.mark.parametrize(
    ("shared", "files", "folders"),
    [("group", 0o660, 0o2770), ("all", 0o664, 0o2775), ("0660", 0o660, 0o2770), ("0640", 0o640, 0o2750)],
)
def test_everything_in_a_shared_repository_has_its_permissions(
    tmp_path: Path, umask: int, shared: str, files: int, folders: int
) -> None:
    root = repository(tmp_path / "repo", shared)
    with clia.init(root, settings=settings()) as space:
        use_everything(space, root, "one")
        space.ask("one-one", {"question": "Go on?"})
        found = modes(root / ".git")
        assert {"clia/space.db", "clia/space.db-wal", "clia/space.db.lock", "clia/locks", "clia/spool/new"} <= found.keys()
        assert wrong(found, files, folders) == {}
    if shared.isdigit():  # exactly these
        assert {name for name, mode in modes(root / ".git/clia").items() if mode & 0o007 and not stat.S_ISLNK(mode)} == set()


def test_a_repository_that_is_not_shared_stays_private(tmp_path: Path, umask: int) -> None:
    root = repository(tmp_path / "repo", None)
    (root / ".git").chmod(0o2775)  # a directory of a group is no setting
    with clia.init(root, settings=settings()) as space:
        use_everything(space, root, "one")
        space.peers.key()
        mode_of = {name: stat.S_IMODE(mode) for name, mode in modes(root / ".git/clia").items()}
        top = {name: mode for name, mode in mode_of.items() if "/" not in name}
        assert {name: oct(mode) for name, mode in top.items() if mode & 0o077 and name not in ("archive.git", "packs")} == {}
        assert stat.S_IMODE((root / ".git/clia").stat().st_mode) & 0o077 == 0


def test_a_space_follows_the_setting_when_its_owner_opens_it(tmp_path: Path, umask: int) -> None:
    root = repository(tmp_path / "repo", None)
    home = root / ".git/clia"
    with clia.init(root, settings=settings()) as space:
        use_everything(space, root, "one")
        space.peers.key()
    git("config", "core.sharedRepository", "group", cwd=root)
    clia.open(root, settings=settings()).close()
    assert wrong({f"clia/{name}": mode for name, mode in modes(home).items()}, 0o660, 0o2770) == {}
    private = [path for path in (home / "keys", *(home / "keys").rglob("*")) if path.stat().st_mode & 0o077]
    assert private == []
    git("config", "core.sharedRepository", "umask", cwd=root)
    clia.open(root, settings=settings()).close()
    assert [name for name, mode in modes(home).items() if mode & 0o077 and not stat.S_ISLNK(mode)] == []


def test_an_invalid_value_is_refused(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo", None)
    git("config", "core.sharedRepository", "0060", cwd=root)
    refused("invalid-setting", lambda: clia.init(root, settings=settings()))


# Two accounts


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory of a group, with a shared repository of its first member."""
    with public_directory() as place:
        (place / ".gitconfig").write_text("[safe]\n\tdirectory = *\n[user]\n\tname = Tess\n\temail = tess@example.org\n")
        project = place / "project"
        project.mkdir()
        repository(project / "repo", "group")
        give(project, FIRST, GROUP)
        for parent, _, _ in os.walk(project):
            Path(parent).chmod(0o2770)
        yield project / "repo"


def member(user: int, root: Path, work: Callable[[clia.Space], Any], umask: int = 0o077) -> Any:
    """Call a function with the open space, as a member of the group."""

    def run() -> Any:
        home = str(root.parent.parent)
        os.environ["HOME"] = home
        pygit2.settings.search_path[ConfigLevel.GLOBAL] = home
        with clia.init(root, settings=settings(environment={"PATH": os.environ["PATH"], "HOME": home})) as space:
            return work(space)

    codecs.lookup("ascii")  # the other user may not be able to read the interpreter's directory
    return run_as(user, GROUP, run, umask=umask)


@needs_root
@pytest.mark.parametrize("umask", [0o077, 0o022], ids=oct)
def test_members_of_a_group_work_on_the_same_agents(shared: Path, umask: int) -> None:
    def begin(space: clia.Space) -> None:
        use_everything(space, shared, "first")

    def go_on(space: clia.Space) -> str:
        use_everything(space, shared, "second")
        space.trace("first-one", "console", "by the second")
        commit = space.commit_with_trace("first-one", "finding", changes={"deep/first-one/more.txt": b"more\n"})
        space.agents.restore("first-two")
        space.merge("first-one", "second-one")
        return commit

    def look(space: clia.Space, commit: str) -> list[Any]:
        space.commit("second-one", "finding", changes={"back.txt": b"1\n"})
        space.maintain()
        space.rebuild()
        assert not components(space).envelope.unfinished()
        report = space.verify()
        assert report.clean, report.findings
        return [trace_texts(space, commit), texts(space.traces.pending("second-one")), sorted(space.agents())]

    member(FIRST, shared, begin, umask)
    commit = member(SECOND, shared, go_on, umask)
    found = member(FIRST, shared, partial(look, commit=commit), umask)
    assert found == [["by the second"], [], ["first-one", "first-two", "second-one"]]
    assert wrong(modes(shared / ".git"), 0o660, 0o2770) == {}
    assert {os.lstat(path).st_gid for path in (shared / ".git").rglob("*")} == {GROUP}


@needs_root
def test_others_read_nothing(shared: Path) -> None:
    member(FIRST, shared, lambda space: use_everything(space, shared, "first"))

    def readable() -> list[str]:
        names = (os.path.join(parent, name) for parent, _, files in os.walk(shared / ".git") for name in files)
        return [name for name in names if os.access(name, os.R_OK)]

    shared.parent.chmod(0o755)
    assert [name for name in run_as(STRANGER, STRANGER, readable) if "/clia/" in name or "/objects/" in name] == []


@needs_root
def test_the_private_key_stays_with_the_account_that_created_it(shared: Path) -> None:
    key = member(FIRST, shared, lambda space: space.peers.key())
    assert key.mine
    again = member(SECOND, shared, lambda space: space.peers.key())
    assert (again.key, again.mine) == (key.key, False)

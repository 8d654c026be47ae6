"""What encloses a working path, and what is never looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from clia.errors import FileError, NotFound
from clia.identities.files import LocalFiles
from clia.identities.lineage import Lineage
from clia.identities.working_path import inside, is_repository, parents, survey

if TYPE_CHECKING:
    from clia.identities.files import DirectoryEntry
    from support import Tree


class WatchedFiles(LocalFiles):
    """Remembers every path that was looked at."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def real(self, path: str) -> str:
        self.seen.append(path)
        return super().real(path)

    def kind(self, path: str) -> str:
        self.seen.append(path)
        return super().kind(path)

    def entries(self, directory: str) -> list[DirectoryEntry] | None:
        self.seen.append(directory)
        return super().entries(directory)

    def read(self, path: str, limit: int) -> bytes | None:
        self.seen.append(path)
        return super().read(path, limit)

    def owner(self, path: str) -> int | None:
        self.seen.append(path)
        return super().owner(path)


def test_a_submodule_that_does_not_contain_the_path_is_never_looked_at(tree: Tree) -> None:
    tree.repository("w")
    names = [f"m{number}" for number in range(200)]
    tree.write("w/.gitmodules", "".join(f'[submodule "{name}"]\n\tpath = libs/{name}\n' for name in names))
    for name in names[:5]:
        tree.agent(f"w/libs/{name}", guardrails=[name])
    tree.agent("w", guardrails=["outer"])
    files = WatchedFiles()
    found = Lineage(files, survey(files, tree.path("w/libs/m0")), "scout")
    assert found.profile()["guardrails"] == ["outer", "m0"]
    assert len(found.context().excluded) == 199
    siblings = tuple(tree.path(f"w/libs/{name}") for name in names[1:])
    assert [each for each in files.seen if any(inside(each, sibling) for sibling in siblings)] == []


def test_reading_looks_only_at_ancestors(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w/in", title="in")
    tree.agent("w/beside", title="beside")
    files = WatchedFiles()
    path = tree.path("w/in")
    found = Lineage(files, survey(files, path), "scout")
    found.context()
    own = parents(path)
    for each in files.seen:
        home = each.partition("/.clia")[0].partition("/.git")[0] or "/"
        assert home in own, each


class Failing(LocalFiles):
    """Refuses whatever ends with a name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def kind(self, path: str) -> str:
        if path.endswith(self.name):
            raise FileError(f"{path}: refused", fields={"path": path})
        return super().kind(path)


def test_a_gitmodules_that_cannot_be_read_is_named(tree: Tree) -> None:
    tree.repository("w")
    place = survey(Failing(".gitmodules"), tree.path("w"))
    assert {each.code for each in place.diagnostics} == {"unreadable"}


def test_a_gitmodules_that_is_no_text_is_named(tree: Tree) -> None:
    tree.repository("w")
    tree.write("w/.gitmodules", b"\xff\xfe")
    assert [each.code for each in survey(LocalFiles(), tree.path("w")).diagnostics] == ["invalid-gitmodules"]


def test_a_boundary_that_cannot_be_seen_is_none(tree: Tree) -> None:
    tree.repository("w")
    assert is_repository(LocalFiles(), tree.path("w"))
    assert not is_repository(Failing(".git"), tree.path("w"))


def test_a_path_with_nul_is_refused() -> None:
    with pytest.raises(FileError):
        LocalFiles().kind("a\0b")
    with pytest.raises(FileError):
        LocalFiles().read("a\0b", 1)
    with pytest.raises(FileError):
        LocalFiles().entries("a\0b")
    with pytest.raises((FileError, NotFound)):
        survey(LocalFiles(), "/a\0b")


def test_the_root_directory_is_its_own_parent() -> None:
    assert parents("/") == ["/"]
    assert parents("/a/b") == ["/a/b", "/a", "/"]
    assert inside("/a", "/")
    assert not inside("/ab", "/a")

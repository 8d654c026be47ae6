"""Directories around a working path, and which paths are never read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from clia.errors import FileError, NotFound
from clia.files import LocalFiles
from clia.identities.lineage import Lineage
from clia.identities.working_path import inside, is_repository, parents, survey

if TYPE_CHECKING:
    from clia.files import DirectoryEntry
    from support import Tree


class RecordingFiles(LocalFiles):
    """Records every path that is accessed."""

    def __init__(self) -> None:
        self.accessed: list[str] = []

    def real(self, path: str) -> str:
        self.accessed.append(path)
        return super().real(path)

    def kind(self, path: str) -> str:
        self.accessed.append(path)
        return super().kind(path)

    def entries(self, directory: str) -> list[DirectoryEntry] | None:
        self.accessed.append(directory)
        return super().entries(directory)

    def read(self, path: str, limit: int) -> bytes | None:
        self.accessed.append(path)
        return super().read(path, limit)

    def owner(self, path: str) -> int | None:
        self.accessed.append(path)
        return super().owner(path)


def test_a_submodule_that_does_not_contain_the_path_is_not_accessed(tree: Tree) -> None:
    tree.repository("w")
    names = [f"m{number}" for number in range(200)]
    tree.write("w/.gitmodules", "".join(f'[submodule "{name}"]\n\tpath = libs/{name}\n' for name in names))
    for name in names[:5]:
        tree.agent(f"w/libs/{name}", guardrails=[name])
    tree.agent("w", guardrails=["outer"])
    files = RecordingFiles()
    scout = Lineage(files, survey(files, tree.path("w/libs/m0")), "scout")
    assert scout.profile()["guardrails"] == ["outer", "m0"]
    assert len(scout.context().excluded) == 199
    siblings = tuple(tree.path(f"w/libs/{name}") for name in names[1:])
    assert [path for path in files.accessed if any(inside(path, sibling) for sibling in siblings)] == []


def test_reading_accesses_only_ancestors(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w/in", title="in")
    tree.agent("w/beside", title="beside")
    files = RecordingFiles()
    path = tree.path("w/in")
    scout = Lineage(files, survey(files, path), "scout")
    scout.context()
    ancestors = parents(path)
    for accessed in files.accessed:
        home = accessed.partition("/.clia")[0].partition("/.git")[0] or "/"
        assert home in ancestors, accessed


class FailingFiles(LocalFiles):
    """Fails for every path that ends with a name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def kind(self, path: str) -> str:
        if path.endswith(self.name):
            raise FileError(f"{path}: refused", fields={"path": path})
        return super().kind(path)


def test_an_unreadable_gitmodules_is_reported(tree: Tree) -> None:
    tree.repository("w")
    place = survey(FailingFiles(".gitmodules"), tree.path("w"))
    assert {diagnostic.code for diagnostic in place.diagnostics} == {"unreadable"}


def test_a_gitmodules_that_is_not_text_is_reported(tree: Tree) -> None:
    tree.repository("w")
    tree.write("w/.gitmodules", b"\xff\xfe")
    assert [diagnostic.code for diagnostic in survey(LocalFiles(), tree.path("w")).diagnostics] == ["invalid-gitmodules"]


def test_an_inaccessible_git_directory_is_not_a_boundary(tree: Tree) -> None:
    tree.repository("w")
    assert is_repository(LocalFiles(), tree.path("w"))
    assert not is_repository(FailingFiles(".git"), tree.path("w"))


def test_a_file_is_read_whole_or_one_byte_beyond_the_limit(tree: Tree) -> None:
    path = tree.write("long", "x" * 10_000)
    assert [len(LocalFiles().read(str(path), limit) or b"") for limit in (20_000, 10_000, 100)] == [10_000, 10_000, 101]


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

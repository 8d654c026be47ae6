"""``.gitmodules`` is read as git reads it, checked against git itself."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clia.identities.working_path import submodule_paths
from support import git

if TYPE_CHECKING:
    from support import Tree

pieces = st.sampled_from(
    [
        *('[submodule "a"]', '[submodule "b\\"c"]', "[core]", '[ submodule "x"]', '[submodule  "y" ]', "[submodule]", "[]"),
        *("\n", "\r\n", "\r", " ", "\t", "path", "Path", "PATH", " = ", "=", "pathology = no", "url = x"),
        *(
            "libs/one",
            '"quoted # path"',
            "with space",
            "# note",
            "; note",
            "\\\\",
            '\\"',
            "\\t",
            "\\q",
            "\\\n",
            '"',
            "-x",
            "../y",
            "é",
        ),
    ]
)


def by_git(text: str, path: str) -> list[str] | None:
    """Return the paths that git reads, or None if it refuses the file."""
    result = subprocess.run(
        ["git", "config", "--file", path, "--null", "--get-regexp", r"^submodule\..*\.path$"],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode not in (0, 1):
        return None
    last_value: dict[str, str | None] = {}
    for item in result.stdout.split("\0")[:-1]:
        key, separator, value = item.partition("\n")
        last_value[key] = value if separator else None
    return sorted({value for value in last_value.values() if value is not None})


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("gitmodules") / "config")


@given(text=st.lists(pieces, max_size=14).map("".join))
def test_clia_and_git_read_the_same_paths(scratch: str, text: str) -> None:
    with open(scratch, "w", encoding="utf-8", newline="") as out:
        out.write(text)
    expected = by_git(text, scratch)
    paths, diagnostics = submodule_paths(text, scratch)
    if expected is None:
        assert [diagnostic.code for diagnostic in diagnostics] == ["invalid-gitmodules"]
    else:
        assert "invalid-gitmodules" not in [diagnostic.code for diagnostic in diagnostics]
        safe = [path for path in expected if path and not path.startswith(("-", "/", "\\")) and ".." not in path.split("/")]
        assert set(paths) == {"/".join(part for part in path.split("/") if part not in ("", ".")) for path in safe}


@pytest.mark.parametrize("path", ["a", "a/b", "a b", "libs/x.y", "a./b", "é"])
def test_ordinary_paths_pass(path: str) -> None:
    assert submodule_paths(f'[submodule "s"]\n\tpath = {path}\n', "x") == ([path], [])


@pytest.mark.parametrize(
    ("path", "clean"), [("./a", "a"), ("a//b", "a/b"), ("a/", "a"), ("a/./b", "a/b"), (".hidden/x", ".hidden/x")]
)
def test_unusual_spellings_are_normalised(path: str, clean: str) -> None:
    assert submodule_paths(f'[submodule "s"]\n\tpath = {path}\n', "x") == ([clean], [])


@pytest.mark.parametrize("path", ["/a", "-a", "..", "a/../b", "../a", ".", "./", "C:/a", "\\\\a", ".git", "a/.GIT/b", "a/.git"])
def test_unsafe_paths_are_refused(path: str) -> None:
    paths, diagnostics = submodule_paths(f'[submodule "s"]\n\tpath = "{path}"\n', "x")
    assert paths == []
    assert [diagnostic.code for diagnostic in diagnostics] == ["unsafe-submodule-path"]


def test_a_line_that_git_refuses_is_reported(tree: Tree) -> None:
    path = tree.write(".gitmodules", '[submodule "s"]\n\tpath = ok\n[submodule "t"\n\tpath = no\n')
    with pytest.raises(subprocess.CalledProcessError):
        git("config", "--file", str(path), "--list", cwd=tree.root)
    paths, (diagnostic,) = submodule_paths(path.read_text(), str(path))
    assert paths == []
    assert "line 3" in diagnostic.message

"""``.gitmodules`` is read as git reads it: git itself is the judge."""

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
    """What git says, or None where it refuses the file."""
    done = subprocess.run(
        ["git", "config", "--file", path, "--null", "--get-regexp", r"^submodule\..*\.path$"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1):
        return None
    last: dict[str, str | None] = {}
    for item in done.stdout.split("\0")[:-1]:
        key, found, value = item.partition("\n")
        last[key] = value if found else None
    return sorted({value for value in last.values() if value is not None})


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("gitmodules") / "config")


@given(text=st.lists(pieces, max_size=14).map("".join))
def test_git_and_we_agree(scratch: str, text: str) -> None:
    with open(scratch, "w", encoding="utf-8", newline="") as out:
        out.write(text)
    expected = by_git(text, scratch)
    found, refused = submodule_paths(text, scratch)
    if expected is None:
        assert [each.code for each in refused] == ["invalid-gitmodules"]
    else:
        assert "invalid-gitmodules" not in [each.code for each in refused]
        safe = [each for each in expected if each and not each.startswith(("-", "/", "\\")) and ".." not in each.split("/")]
        assert set(found) == {"/".join(part for part in each.split("/") if part not in ("", ".")) for each in safe}


@pytest.mark.parametrize("path", ["a", "a/b", "a b", "libs/x.y", "a./b", "é"])
def test_ordinary_paths_pass(path: str) -> None:
    assert submodule_paths(f'[submodule "s"]\n\tpath = {path}\n', "x") == ([path], [])


@pytest.mark.parametrize(
    ("path", "clean"), [("./a", "a"), ("a//b", "a/b"), ("a/", "a"), ("a/./b", "a/b"), (".hidden/x", ".hidden/x")]
)
def test_odd_spellings_are_cleaned(path: str, clean: str) -> None:
    assert submodule_paths(f'[submodule "s"]\n\tpath = {path}\n', "x") == ([clean], [])


@pytest.mark.parametrize("path", ["/a", "-a", "..", "a/../b", "../a", ".", "./", "C:/a", "\\\\a", ".git", "a/.GIT/b", "a/.git"])
def test_unsafe_paths_are_refused(path: str) -> None:
    found, refused = submodule_paths(f'[submodule "s"]\n\tpath = "{path}"\n', "x")
    assert found == []
    assert [each.code for each in refused] == ["unsafe-submodule-path"]


def test_a_line_that_git_refuses_is_named(tree: Tree) -> None:
    path = tree.write(".gitmodules", '[submodule "s"]\n\tpath = ok\n[submodule "t"\n\tpath = no\n')
    with pytest.raises(subprocess.CalledProcessError):
        git("config", "--file", str(path), "--list", cwd=tree.root)
    found, (refused,) = submodule_paths(path.read_text(), str(path))
    assert found == []
    assert "line 3" in refused.message

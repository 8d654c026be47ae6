"""Running git."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from clia.errors import GitError
from clia.git.command import GitCommand, GitResult

if TYPE_CHECKING:
    from support import Tree
    from support.porcelain import BenchRepository


def test_without_git_the_error_says_how_to_install_it(repository: BenchRepository, tree: Tree) -> None:
    command = GitCommand(str(repository.git_dir), {"PATH": tree.path("home")})
    with pytest.raises(GitError, match="cannot run git") as caught:
        command.run("status")
    assert caught.value.hints


def test_an_error_names_the_subcommand_and_not_a_global_option(repository: BenchRepository) -> None:
    command = GitCommand(str(repository.git_dir), {"PATH": os.environ["PATH"]})
    with pytest.raises(GitError) as caught:
        command.run("--literal-pathspecs", "-c", "a.b=c", "rev-parse", "--verify", "nothing")
    assert caught.value.fields["command"] == "rev-parse"
    with pytest.raises(GitError, match="exit code 1"):
        command.run("config", "--get", "no.such.key")


def test_an_error_of_several_lines_is_one_line_without_the_advice_of_git() -> None:
    result = GitResult(1, b"", "The paths are ignored:\n.env\nhint: Use -f.")
    assert result.failure("add").message == "git add failed: The paths are ignored: .env"
    assert result.failure("add").fields["reason"] == result.err

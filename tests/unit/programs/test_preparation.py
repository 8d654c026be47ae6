"""What an agent's worktree gets before a program runs in it: submodules, files of the user, and a setup command."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

import clia
from clia.programs.preparation import prepare_checkout
from support import git
from support.programs import run
from support.spaces import refused, settings, trace_texts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PERSON = ("-c", "user.name=T", "-c", "user.email=t@t", "-c", "protocol.file.allow=always")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path.resolve() / "shop"
    with clia.init(root, settings=settings()):
        (root / "kept.txt").write_text("kept\n")
        git("add", ".", cwd=root)
        git(*PERSON, "commit", "--quiet", "-m", "One", cwd=root)
    return root


@pytest.fixture
def space(root: Path) -> Iterator[clia.Space]:
    with clia.open(root, settings=settings()) as opened:
        yield opened


def configured(root: Path, text: str) -> clia.Space:
    (root / ".git" / "clia" / "config.toml").write_text(f"[run]\n{text}\n")
    return clia.open(root, settings=settings())


# Files of the user


def test_files_are_copied_and_linked_and_never_committed(root: Path) -> None:
    (root / ".env").write_text("KEY=1\n")
    (root / "conf").mkdir()
    (root / "conf" / "local.ini").write_text("local\n")
    (root / "node_modules").mkdir()
    (root / "node_modules" / "left-pad.js").write_text("pad\n")
    before = git("status", "--porcelain", cwd=root)
    with configured(root, 'copy = [".env", "conf", "missing"]\nlink = ["node_modules"]') as space:
        script = "cat .env conf/local.ini node_modules/left-pad.js; echo KEY=2 > .env"
        report = run(space, "sh", "-c", script)
        assert report.commit is not None
        assert "KEY=1\nlocal\npad\n" in trace_texts(space, report.commit)
        assert any("missing does not exist" in text for text in trace_texts(space, report.commit))
        assert space.files("scout").keys() == {"kept.txt"}
        commit = (
            "git config user.name T; git config user.email t@t; git add -A; echo new > new.txt; git add new.txt; git commit -qm own"
        )
        report = run(space, "sh", "-c", commit)
        assert (report.problem, report.adopted) == (None, 1)
        assert space.files("scout").keys() == {"kept.txt", "new.txt"}
        assert {path for own in space.history.own("scout") for path in space.files(own.cid)} == {"kept.txt", "new.txt"}
        assert run(space, "grep", "-q", "KEY=2", ".env").exit_code == 0, "a copy of the agent is not overwritten"
        assert run(space, "true").left is None
    assert git("status", "--porcelain", cwd=root) == before
    assert (root / ".env").read_text() == "KEY=1\n"


def test_files_that_git_ignores_are_copied_and_linked_too(root: Path) -> None:
    (root / ".git" / "info" / "exclude").write_text(".env\nnode_modules\nlocal\\[1]\n/conf/\n")
    (root / ".env").write_text("KEY=1\n")
    for folder in ("node_modules", "local[1]", "conf/deep"):
        (root / folder).mkdir(parents=True)
        (root / folder / "file").write_text("file\n")
    with configured(root, 'copy = [".env", "local[1]", "conf/deep"]\nlink = ["node_modules"]') as space:
        report = run(space, "sh", "-c", "cat .env node_modules/file local*/file conf/deep/file > new.txt; echo x > local1")
        assert report.problem is None
        assert space.files("scout").keys() == {"kept.txt", "new.txt", "local1"}


def test_a_worktree_in_an_ignored_folder_is_left_out_of_a_commit(root: Path, space: clia.Space) -> None:
    (root / ".git" / "info" / "exclude").write_text("/trees\n")
    run(space, "true")
    prepare_checkout(space, "scout", str(root / "trees" / "scout"), os.environ, lambda _: False, print)
    (root / "new.txt").write_text("new\n")
    assert space.commit_dir("scout", "finding", str(root), base=space.head("scout"))
    assert space.files("scout").keys() == {"kept.txt", "new.txt"}


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", ".git/config", "a/../../b", ""])
def test_a_path_outside_the_repository_is_refused_in_the_configuration(root: Path, path: str) -> None:
    refused("invalid-config", lambda: configured(root, f'copy = ["{path}"]'))


def test_a_link_that_leads_out_of_the_repository_is_refused(root: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret\n")
    (root / "leak").symlink_to(tmp_path / "secret")
    with configured(root, 'copy = ["leak"]') as space:
        refused("unsafe-path", lambda: run(space, "true"))
    (root / "leak").unlink()
    (root / "folder").mkdir()
    (root / "folder" / "file").write_text("file\n")
    with configured(root, 'copy = ["folder/file"]') as space:
        space.commit("scout", "finding", changes={"folder": clia.Link(str(tmp_path))})
        refused("unsafe-path", lambda: run(space, "true"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret", "shop"]


def test_an_agent_of_another_clone_is_checked_out_although_nothing_can_be_traced_for_it(root: Path, tmp_path: Path) -> None:
    with clia.open(root, settings=settings()) as space:
        run(space, "true")
    clone = tmp_path.resolve() / "clone"
    git("clone", "--quiet", str(root), str(clone), cwd=tmp_path)
    with clia.init(clone, settings=settings()) as space:
        space.adopt()
    with configured(clone, 'copy = ["missing"]') as space:
        warnings: list[str] = []
        prepare_checkout(space, "scout", str(tmp_path / "mine"), os.environ, lambda _: False, warnings.append)
        assert (tmp_path / "mine" / "kept.txt").exists()
        assert len(warnings) == 1


# The setup command


def test_a_setup_command_is_asked_for_once_run_once_and_traced(root: Path) -> None:
    asked: list[str] = []

    def approve(setup: str) -> bool:
        asked.append(setup)
        return True

    with configured(root, 'setup = "echo preparing; echo x >> ran; echo ran > .git-not"') as space:
        error = refused("setup-not-approved", lambda: run(space, "true"))
        assert "--yes" in error.hints[0]
        assert space.agents() == []
        report = run(space, "cat", "ran", approve=approve)
        assert report.commit is not None
        assert "preparing\n" in trace_texts(space, report.commit)
        assert run(space, "grep", "-c", "x", "ran").exit_code == 0
        assert space.files("scout")["ran"] == b"x\n"
        assert asked == ["echo preparing; echo x >> ran; echo ran > .git-not"]
        directory = root.parent / "mine"
        prepare_checkout(space, "scout", str(directory), os.environ, lambda _: False, lambda _: None)
        assert (directory / "ran").read_text() == "x\nx\n"
    with configured(root, 'setup = "echo other"') as space:
        refused("setup-not-approved", lambda: run(space, "true"))


def test_a_setup_command_that_fails_is_reported_and_tried_again(root: Path) -> None:
    with configured(root, 'setup = "test -e ../../go"') as space:
        error = refused("setup-failed", lambda: run(space, "touch", "ran", approve=lambda _: True))
        assert "clia trace pending scout" in error.hints[0]
        assert "ran" not in space.files("scout")
        refused("setup-failed", lambda: run(space, "true"))


# Submodules


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A repository that is a submodule of another one."""
    library = tmp_path.resolve() / "library"
    git("init", "--quiet", str(library), cwd=tmp_path)
    (library / "lib.txt").write_text("lib\n")
    git("add", ".", cwd=library)
    git(*PERSON, "commit", "--quiet", "-m", "Lib", cwd=library)
    return library


def add_submodule(root: Path, url: str, path: str = "lib") -> None:
    git(*PERSON, "submodule", "--quiet", "add", url, path, cwd=root)
    git(*PERSON, "commit", "--quiet", "-m", f"Add {path}", cwd=root)


def gitlink(root: Path, commit: str, path: str = "lib") -> str:
    return git("ls-tree", commit, path, cwd=root).split()[2]


def test_submodules_are_checked_out_without_their_server_and_changed_ones_are_committed(root: Path, library: Path) -> None:
    middle = library.parent / "middle"
    git("init", "--quiet", str(middle), cwd=library.parent)
    add_submodule(middle, str(library), "inner")
    add_submodule(root, str(middle))
    git(*PERSON, "submodule", "--quiet", "update", "--init", "--recursive", cwd=root)
    middle.rename(middle.with_suffix(".away"))
    library.rename(library.with_suffix(".away"))
    before, config = git("status", "--porcelain", cwd=root), (root / ".git" / "config").read_text()
    with clia.open(root, settings=settings()) as space:
        report = run(space, "cat", "lib/inner/lib.txt")
        assert report.exit_code == 0
        assert report.files == 0
        identity = "git -c user.name=T -c user.email=t@t"
        report = run(space, "sh", "-c", f"cd lib && echo more > more.txt && git add . && {identity} commit -qm More")
        assert report.commit is not None
        new = git("rev-parse", "HEAD", cwd=f"{report.directory}/lib").strip()
        assert gitlink(root, report.commit) == new != gitlink(root, "HEAD")
        assert set(space.files(report.commit)) == {"kept.txt", ".gitmodules", "lib"}
        assert git("cat-file", "-t", new, cwd=root / "lib").strip() == "commit", "it outlives the worktree"
        report = run(space, "sh", "-c", "echo dirty > lib/dirty.txt")
        assert report.files == 0
        assert space.verify().findings == ()
    assert git("status", "--porcelain", cwd=root) == before
    assert (root / ".git" / "config").read_text() == config


def test_a_submodule_follows_the_agents_head(root: Path, library: Path) -> None:
    add_submodule(root, str(library))
    with clia.open(root, settings=settings()) as space:
        report = run(space, "true")
        (library / "next.txt").write_text("next\n")
        git("add", ".", cwd=library)
        git(*PERSON, "commit", "--quiet", "-m", "Next", cwd=library)
        new = git("rev-parse", "HEAD", cwd=library).strip()
        git(*PERSON, "fetch", "--quiet", str(library), cwd=root / "lib")
        space.commit("scout", "finding", changes={"lib": clia.Submodule(new)})
        assert run(space, "test", "-f", "lib/next.txt").exit_code == 0
        assert gitlink(root, space.head("scout")) == new
        assert git("status", "--porcelain", cwd=report.directory) == ""


def test_a_submodule_that_cannot_be_had_is_reported_and_its_gitlink_is_kept(root: Path, library: Path, tmp_path: Path) -> None:
    add_submodule(root, str(library))
    git("config", "--file", ".gitmodules", "submodule.lib.url", f"ext::sh -c touch% {tmp_path}/ran", cwd=root)
    git(*PERSON, "commit", "--quiet", "-am", "Address", cwd=root)
    clone = tmp_path.resolve() / "clone"
    git("clone", "--quiet", str(root), str(clone), cwd=tmp_path)
    with clia.init(clone, settings=settings()) as space:
        report = run(space, "touch", "new.txt", environment={**os.environ, "GIT_ALLOW_PROTOCOL": "ext"})
        assert report.commit is not None
        assert any(text.startswith("submodule lib is not checked out: ") for text in trace_texts(space, report.commit))
        assert gitlink(clone, report.commit) == gitlink(root, "HEAD")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("repaired", [True, False])
@pytest.mark.parametrize("has_old_link", [True, False])
def test_a_checkout_with_submodules_that_is_moved_by_hand_works(
    root: Path, library: Path, repaired: bool, has_old_link: bool
) -> None:
    middle = library.parent / "middle"
    git("init", "--quiet", str(middle), cwd=library.parent)
    add_submodule(middle, str(library), "deep/inner")
    add_submodule(root, str(middle))
    git(*PERSON, "submodule", "--quiet", "update", "--init", "--recursive", cwd=root)
    old, new = root.parent / "old", root.parent / "elsewhere" / "new"
    with clia.open(root, settings=settings()) as space:
        space.spawn_at("scout", clia.Briefing(title="Look"), "HEAD")
        prepare_checkout(space, "scout", str(old), os.environ, lambda _: False, lambda _: None)
        modules = [old / "lib", old / "lib" / "deep" / "inner"]
        if has_old_link:  # as git itself, and earlier versions of clia, link a submodule
            for module in modules:
                git("config", "core.worktree", str(module), cwd=module)
        new.parent.mkdir()
        old.rename(new)
        if repaired:
            git("worktree", "repair", str(new), cwd=root)
        if repaired and not has_old_link:
            assert git("status", "--porcelain", cwd=new) == ""
        inner = new / "lib" / "deep" / "inner"
        assert space.checkout("scout", str(new)) == space.head("scout")
        (inner / "more.txt").write_text("more\n")
        git("add", ".", cwd=inner)
        git(*PERSON, "commit", "--quiet", "-m", "More", cwd=inner)
        assert git("status", "--porcelain", cwd=new) == " M lib\n"
        git("worktree", "prune", cwd=root)
        git("add", ".", cwd=inner.parents[1])
        git(*PERSON, "commit", "--quiet", "-m", "Middle", cwd=inner.parents[1])
        commit = space.commit_dir("scout", "finding", str(new))
        assert gitlink(root, commit) == git("rev-parse", "HEAD", cwd=new / "lib").strip()


@pytest.mark.parametrize("has_copy", [True, False])
def test_the_first_commit_in_a_submodule_asks_about_no_guardrail(root: Path, library: Path, has_copy: bool) -> None:
    add_submodule(root, str(library))
    script = "cd lib && echo {0} > {0} && git add . && git -c user.name=T -c user.email=t@t commit -qm {0}"
    with clia.open(root, settings=settings()) as space:
        run(space, "true")
        if not has_copy:  # the user's clone has no submodule: the agent's worktree got it from the server
            git("submodule", "--quiet", "deinit", "--force", "lib", cwd=root)
            shutil.rmtree(root / ".git" / "modules")
        for name in ("one", "two"):
            report = run(space, "sh", "-c", script.format(name))
            assert report.files == 1
            assert space.pending() == []

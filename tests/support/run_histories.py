"""Random histories of real git with a program in an agent's worktree.

A person works in the repository, and a colleague in a clone. The program commits on other branches and in worktrees of its own,
merges, rebases, picks, reverts, amends and stashes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import clia
from support import git
from support.captured_histories import PERSON, TOOL, CapturedHistory, Verdict
from support.space_driver import settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.captured_histories import Words

AGENT = "scout"
_OPERATIONS = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply")


class RunHistory(CapturedHistory):
    """One repository with an agent's worktree, ``desk``, in which a program works."""

    def __init__(self, repo: Path, far: Path, desk: Path, seed: int) -> None:
        super().__init__(repo, far, seed)
        self._repo, self._desk, self._branches = repo, desk, 0
        for name in ("name", "email"):
            git("config", f"user.{name}", "program", cwd=repo)
        with clia.open(repo, settings=settings()) as space:
            space.spawn_at(AGENT, clia.Briefing("Work"), git("rev-parse", "main", cwd=repo).strip())

    def play(self, turns: int) -> None:
        for turn in range(turns):
            self._several(self._by_person, 3)
            self._several(self._by_colleague, 2)
            with clia.open(self._repo, settings=settings()) as space:
                space.checkout(AGENT, self._desk)
                space.captures.watch_programs(str(self._desk), running=True)
            self._root = self._desk
            self._several(self._by_tool, 5)
            self._finish_merge()
            self._root = self._repo
            with clia.open(self._repo, settings=settings()) as space:
                space.commit_dir(AGENT, "finding", self._desk, message=f"run {turn}")
                space.captures.watch_programs(str(self._desk), running=False)

    # Without events of a tool

    def _in_call(self, command: str, act: Callable[[], None]) -> None:
        del command
        act()

    def _call(self, *commands: Words) -> bool:
        return all(self._try(self._root, *words) for words in commands)

    def _in_progress(self, place: Path) -> bool:
        admin = Path(git("rev-parse", "--absolute-git-dir", cwd=place).strip())
        return any((admin / name).exists() for name in _OPERATIONS)

    # What people and the program do

    def _by_person(self) -> None:
        act = self._random.choice((self._edit, self._edit, self._commit, self._commit))
        act(self._repo, PERSON)

    def _by_tool(self) -> None:
        acts = (self._tool_edit, self._tool_edit, self._tool_move, self._tool_commit, self._tool_pick, self._tool_revert)
        more = (self._tool_amend, self._tool_stash, self._tool_branch, self._tool_worktree, self._tool_merge, self._tool_main)
        self._random.choice((*acts, *more, self._tool_merge, self._tool_main, self._tool_switch))()

    def _new_branch(self) -> str:
        self._branches += 1
        return f"side{self._branches}"

    def _side_branches(self) -> list[str]:
        return git("for-each-ref", "--format=%(refname:short)", "refs/heads/side*", cwd=self._repo).split()

    def _tool_branch(self) -> None:
        """Commit on another branch, which it may rebase, and go back."""
        self._commit(self._desk, TOOL)
        start = git("rev-parse", "HEAD", cwd=self._desk).strip()
        branch = git("rev-parse", "--abbrev-ref", "HEAD", cwd=self._desk).strip()
        if self._try(self._desk, "checkout", "-q", "-b", self._new_branch()):
            self._edit(self._desk, TOOL)
            self._commit(self._desk, TOOL)
            if self._random.random() < 0.3 and not self._try(self._desk, "rebase", "-q", "origin/main"):
                self._settle(self._desk, TOOL, "rebase")
            self._try(self._desk, "checkout", "-q", *(["--detach", start] if branch == "HEAD" else [branch]))

    def _tool_worktree(self) -> None:
        """Commit in another worktree, which it may remove again."""
        branch = self._new_branch()
        place = self._desk.parent / branch
        if self._try(self._desk, "worktree", "add", "-q", "-b", branch, str(place), "HEAD"):
            self._edit(place, TOOL)
            self._commit(place, TOOL)
            if self._random.random() < 0.5:
                self._try(self._desk, "worktree", "remove", str(place))

    def _tool_merge(self) -> None:
        branches = self._side_branches()
        self._commit(self._desk, TOOL)
        options = ["--no-ff"] if self._random.random() < 0.5 else []
        if branches and not self._try(self._desk, "merge", "-q", "--no-edit", *options, self._random.choice(branches)):
            self._settle(self._desk, TOOL, "merge")

    def _tool_main(self) -> None:
        """Merge the person's branch, or rebase onto it."""
        self._commit(self._desk, TOOL)
        how = self._random.choice(("merge", "rebase"))
        if not self._try(self._desk, how, "-q", *(["--no-edit"] if how == "merge" else []), "main"):
            self._settle(self._desk, TOOL, how)

    def _tool_switch(self) -> None:
        branches = self._side_branches()
        self._commit(self._desk, TOOL)
        if branches:
            self._try(self._desk, "checkout", "-q", self._random.choice(branches))

    # The truth

    def verdict(self, space: clia.Space) -> Verdict:
        """Compare ``blame`` of the agent's branch, the person's and the program's with the authors of the lines."""
        found, others, missed, stolen = 0, 0, [], []
        for branch in (f"agents/{AGENT}", "main", *self._side_branches()):
            for path in git("ls-tree", "-r", "--name-only", branch, cwd=self._repo).split():
                for line in (line for line in space.blame(branch, path) if line.text not in self._copied):
                    is_programs, place = line.text.startswith(TOOL), (branch, path, line.text)
                    found += is_programs and line.agent == AGENT
                    others += not is_programs and line.agent is None
                    missed += [place] if is_programs and line.agent != AGENT else []
                    stolen += [place] if not is_programs and line.agent is not None else []
        return Verdict(found, others, missed, stolen)

"""Random histories of real git, in which a captured tool, a person and a colleague work on the same files.

The tool and the person share a worktree; the colleague has a clone, which is the remote. Each line names its author, so the truth
can be read from a file. The tool pulls, merges, rebases, picks, stashes, reverts and moves files, and resolves the conflicts.
"""

from __future__ import annotations

import random
import subprocess
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from support import git
from support.tool_turns import agent_of, begin_call, end_call, prompt, start, stop

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import clia

    Words = tuple[str, ...]

TOOL, PERSON, COLLEAGUE = "tool", "person", "colleague"
_MARKERS = ("<<<<<<<", "=======", ">>>>>>>", "|||||||")
_WAYS = ("", "--no-rebase", "--rebase")


class Verdict(NamedTuple):
    """What a comparison of ``blame`` with the truth found: revision, path and text of each line."""

    found: int  # the tool's lines that are given to its agent
    others: int  # lines of others that are given to no agent
    missed: list[tuple[str, str, str]]  # the tool's lines that are not
    stolen: list[tuple[str, str, str]]  # lines of others that are given to the agent


class CapturedHistory:
    """One repository with a captured session, and a clone of a colleague."""

    def __init__(self, root: Path, far: Path, seed: int) -> None:
        self._root, self._far = root, far
        self._random = random.Random(seed)  # noqa: S311  # repeatable, not secret
        self._number = 0
        self._copied: set[str] = set()  # lines that were in two files at once: git takes them for those of who copied them
        self.actions: list[str] = []
        git("rm", "-q", "README.md", cwd=root)
        for name in ("a.txt", "b.txt", "c.txt"):
            (root / name).write_text("".join(self._line(PERSON) for _ in range(self._random.randrange(6, 16))))
        self._commit(root, PERSON)
        git("clone", "-q", str(root), str(far), cwd=root.parent)
        git("remote", "add", "origin", str(far), cwd=root)
        git("fetch", "-q", "origin", cwd=root)
        git("branch", "-q", "--set-upstream-to=origin/main", "main", cwd=root)

    def play(self, turns: int) -> None:
        start(self._root)
        for turn in range(turns):
            if turn:
                self._several(self._by_person, 3)
                prompt(self._root)
            self._several(self._by_colleague, 2)
            self._several(self._by_tool, 5)
            self._finish_merge()
            stop(self._root)

    def _several(self, act: Callable[[], None], most: int) -> None:
        for _ in range(self._random.randrange(most + 1)):
            act()
            for place in (self._root, self._far):
                self._note_copies(place)

    # Files

    def _line(self, author: str) -> str:
        self._number += 1
        return f"{author} {self._number} {self._random.randrange(10**6):x}\n"

    def _paths(self, place: Path) -> list[Path]:
        return sorted(path for path in place.rglob("*") if path.is_file() and ".git" not in path.parts)

    def _note_copies(self, place: Path) -> None:
        lines = Counter(line for path in self._paths(place) for line in {*path.read_text().splitlines()})
        self._copied |= {line for line, count in lines.items() if count > 1}

    def _edit(self, place: Path, author: str) -> None:
        paths = self._paths(place)
        if not paths or self._random.random() < 0.15:
            self._number += 1
            paths = [place / f"{author}{self._number}.txt"]
            paths[0].write_text("".join(self._line(author) for _ in range(3)))
        path = self._random.choice(paths)
        lines = path.read_text().splitlines(keepends=True)
        at, kind = self._random.randrange(len(lines) + 1), self._random.random()
        new = [self._line(author) for _ in range(self._random.randrange(1, 5))]
        if kind < 0.6 or not lines:
            lines[at:at] = new
        elif kind < 0.85 or len(lines) < 6:
            lines[at : at + 1] = new
        else:
            del lines[at : at + 2]
        path.write_text("".join(lines))

    def _move(self, place: Path) -> None:
        paths = self._paths(place)
        if paths:
            path = self._random.choice(paths)
            self._number += 1
            path.rename(place / f"moved{self._number}.txt")

    def _try(self, place: Path, *words: str) -> bool:
        """Run a git command that can fail, such as for a conflict."""
        try:
            git("-c", "core.editor=true", *words, cwd=place)
        except subprocess.CalledProcessError:
            return False
        return True

    def _commit(self, place: Path, author: str) -> None:
        git("add", "-A", cwd=place)
        self._number += 1
        words = ("commit", "-qm", f"{author} {self._number}", f"--author={author} <{author}@example.com>")
        self._try(place, *words)

    def _resolve(self, place: Path, author: str) -> None:
        """Keep both sides of each conflict, each line once, and add a line."""
        unmerged = sorted(set(git("diff", "--name-only", "--diff-filter=U", "-z", cwd=place).split("\0")) - {""})
        for name in unmerged:
            path = place / name
            if path.is_file():
                others = [other.read_text() for other in self._paths(place) if other != path]
                seen = {line for text in others for line in text.splitlines(keepends=True)}
                lines = [line for line in path.read_text().splitlines(keepends=True) if not line.startswith(_MARKERS)]
                lines = [line for line in dict.fromkeys(lines) if line not in seen]
                if lines and self._random.random() < 0.5:
                    lines.insert(self._random.randrange(len(lines) + 1), self._line(author))
                path.write_text("".join(lines)) if lines else path.unlink()
        git("add", "-A", cwd=place)

    def _settle(self, place: Path, author: str, how: str) -> None:
        """Continue an operation that stopped at a conflict, or abort it."""
        if self._random.random() < 0.15:
            self._try(place, how, "--abort")
        for _ in range(8):
            if not self._in_progress(place):
                return
            self._resolve(place, author)
            words = ("commit", "-q", "--no-edit") if how == "merge" else (how, "--continue")
            if not self._try(place, *words) and how != "merge":
                self._try(place, how, "--skip")
        self._try(place, how, "--abort")

    def _in_progress(self, place: Path) -> bool:
        names = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply")
        return any((place / ".git" / name).exists() for name in names)

    # People

    def _by_colleague(self) -> None:
        kind = self._random.choice(("edit", "edit", "move", "pull"))
        self.actions.append(f"colleague {kind}")
        if kind == "pull":
            if not self._try(self._far, "pull", "-q", "--no-edit", "--no-rebase", str(self._root), "main"):
                self._settle(self._far, COLLEAGUE, "merge")
            return
        if kind == "move":
            self._move(self._far)
        if kind == "edit" or self._random.random() < 0.5:
            self._edit(self._far, COLLEAGUE)
        self._commit(self._far, COLLEAGUE)

    def _by_person(self) -> None:
        kind = self._random.choice(("edit", "edit", "move", "commit", "stash", "pull"))
        self.actions.append(f"person {kind}")
        if kind == "edit":
            self._edit(self._root, PERSON)
        elif kind == "move":
            self._move(self._root)
        elif kind == "commit":
            self._commit(self._root, PERSON)
        elif kind == "stash":
            self._try(self._root, "stash", "-qu")
        elif not self._try(self._root, "pull", "-q", "--no-edit", "--no-rebase"):
            self._settle(self._root, PERSON, "merge")

    # The tool

    def _by_tool(self) -> None:
        acts = (self._tool_edit, self._tool_edit, self._tool_move, self._tool_commit, self._tool_commit, self._tool_pull)
        more = (self._tool_pull, self._tool_pick, self._tool_stash, self._tool_take, self._tool_revert, self._tool_amend)
        act = self._random.choice((*acts, *more))
        self.actions.append(act.__name__.strip("_").replace("_", " "))
        act()

    def _call(self, *commands: Words) -> bool:
        """A call of the tool that runs git commands until one fails."""
        call = begin_call(self._root, " && ".join(" ".join(("git", *words)) for words in commands))
        is_done = all(self._try(self._root, *words) for words in commands)
        end_call(self._root, call)
        return is_done

    def _in_call(self, command: str, act: Callable[[], None]) -> None:
        call = begin_call(self._root, command)
        act()
        end_call(self._root, call)

    def _tool_edit(self) -> None:
        self._in_call("edit", lambda: self._edit(self._root, TOOL))

    def _tool_move(self) -> None:
        self._in_call("mv", lambda: self._move(self._root))

    def _tool_commit(self) -> None:
        self._in_call("git add -A && git commit", lambda: self._commit(self._root, TOOL))

    def _tool_pull(self) -> None:
        way = self._random.choice(("--no-rebase", "--rebase"))
        self._in_call("git add -A && git commit", lambda: self._commit(self._root, TOOL))
        if not self._call(("pull", "-q", "--no-edit", way)):
            how = "merge" if way == "--no-rebase" else "rebase"
            self._in_call(f"git {how} --continue", lambda: self._settle(self._root, TOOL, how))

    def _tool_pick(self) -> None:
        revision = f"origin/main~{self._random.randrange(2)}"
        if not self._call(("fetch", "-q"), ("cherry-pick", revision)):
            self._in_call("git cherry-pick --continue", lambda: self._settle(self._root, TOOL, "cherry-pick"))

    def _tool_stash(self) -> None:
        self._call(("stash", "-qu")) if self._random.random() < 0.5 else self._call(("stash", "pop", "-q"))
        self._in_call("git add -A", self._finish_conflicts)

    def _finish_conflicts(self) -> None:
        if git("ls-files", "--unmerged", cwd=self._root):
            self._resolve(self._root, TOOL)

    def _tool_take(self) -> None:
        files = git("ls-tree", "-r", "--name-only", "origin/main", cwd=self._root).split()
        if files:
            self._call(("checkout", "origin/main", "--", self._random.choice(files)))

    def _tool_revert(self) -> None:
        if not self._call(("revert", "--no-edit", "HEAD")):
            self._in_call("git revert --continue", lambda: self._settle(self._root, TOOL, "revert"))

    def _tool_amend(self) -> None:
        """Amend a commit that is not in the remote."""
        if git("rev-list", "origin/main..HEAD", cwd=self._root) and not self._in_progress(self._root):
            self._call(("add", "-A"), ("commit", "-q", "--amend", "--no-edit"))

    def _finish_merge(self) -> None:
        for how in ("merge", "rebase", "cherry-pick", "revert"):
            if self._in_progress(self._root):
                self._call((how, "--abort"))

    # The truth

    def verdict(self, space: clia.Space) -> Verdict:
        """Compare ``blame`` of the agent's branch and the person's with the authors of the lines."""
        found, others, missed, stolen = 0, 0, [], []
        agent = agent_of(space)
        for revision in (agent, "main"):
            for path in sorted(space.files(agent) if revision == agent else self._committed()):
                for line in (line for line in space.blame(revision, path) if line.text not in self._copied):
                    is_tools, place = line.text.startswith(TOOL), (revision, path, line.text)
                    found += is_tools and line.agent == agent
                    others += not is_tools and line.agent is None
                    missed += [place] if is_tools and line.agent != agent else []
                    stolen += [place] if not is_tools and line.agent is not None else []
        return Verdict(found, others, missed, stolen)

    def _committed(self) -> list[str]:
        return git("ls-tree", "-r", "--name-only", "main", cwd=self._root).split()

"""Worktrees, through stock git and private indexes.

Invariant: a worktree of ours carries a record of its agent and base in its own git directory, and the record never names
a commit newer than the files. An index or file of people is changed by ``follow`` alone; what nobody has committed is
never overwritten.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from contextlib import contextmanager, suppress

from clia.errors import CliaError, Conflict, FileError, InvalidInput
from clia.git.command import GitPart
from clia.git.libgit2 import find_repository
from clia.git.records import Checkout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from clia.git.command import GitResult

_RECORD = "clia.json"
# A split index would leave shared files behind.
_PRIVATE = ("-c", "core.splitIndex=false")
# A nested repository is a gitlink, as git has it; a file outside the sparse cone is work like any other (`--sparse`).
_ADD = ("-c", "advice.addEmbeddedRepo=false", "-c", "add.ignoreErrors=false", "add", "-A", "--sparse", "--", ".")


class GitWorktrees(GitPart):
    """The calls of ``Workbench`` that are about worktrees and directories."""

    def add_worktree(self, directory: str, agent: str, commit: str) -> None:
        place = os.path.abspath(directory)
        words = ("worktree", "add", "--quiet", "--detach")
        done = self._command.attempt(*words, "--", place, commit)
        if done.code and "already registered worktree" in done.err:  # its directory is gone, so there is nothing to lose
            done = self._command.attempt(*words, "--force", "--", place, commit)
        if done.code:
            taken = "already exists" in done.err or "locked worktree" in done.err
            raise _in_use(place, done.err) if taken else done.failure(*words)
        try:
            self._record(place, agent, commit)
        except CliaError:
            self._command.attempt("worktree", "remove", "--force", "--", place)
            raise

    def checkout_of(self, directory: str) -> Checkout | None:
        try:
            place = os.path.abspath(directory)
            admin = self._admin_of(place)
            if admin is None:
                return None
            with open(os.path.join(admin, _RECORD), encoding="utf-8") as file:
                found = dict(json.load(file))
            tree = found.get("tree")
            return Checkout(str(found["agent"]), str(found["base"]), place, None if tree is None else str(tree))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def head_of(self, directory: str) -> str | None:
        place = os.path.abspath(directory)
        admin = self._admin_of(place) if os.path.isdir(place) else None
        if admin is None:
            return None
        done = self._command.attempt(
            "rev-parse", "--verify", "--quiet", "HEAD^{commit}", cwd=place, more=self._variables(place, admin)
        )
        return done.out.decode("ascii").strip() or None

    def top_of(self, path: str) -> str | None:
        found = find_repository(path)
        return found if found is not None and self._admin_of(found) is not None else None

    def claim_worktree(self, directory: str, agent: str) -> None:
        place = os.path.abspath(directory)
        admin = self._admin_of(place)
        head = self.head_of(place)
        attached = self._command.attempt("symbolic-ref", "--quiet", "HEAD", cwd=place).code == 0
        if admin is None or admin == self._handle.common_dir or head is None or attached:
            raise _in_use(place, "it is a worktree of yours")
        self._record(place, agent, head)

    def prepare(self, checkout: Checkout, tree: str) -> None:
        self._record(checkout.directory, checkout.agent, checkout.base, tree)

    def move_worktree(self, directory: str, agent: str, commit: str) -> None:
        place = self._require_ours(directory)
        words = ("-c", "advice.detachedHead=false", "checkout", "--quiet", "--detach", "--no-overwrite-ignore", commit, "--")
        done = self._command.attempt(*words, cwd=place)
        if done.code:
            raise _would_lose(place, done) if _is_about_work(done.err) else done.failure(*words)
        self._record(place, agent, commit)

    def snapshot(self, directory: str, tree: str) -> str:
        place = os.path.abspath(directory)
        if not os.path.isdir(place):
            raise FileError(f"{place} is not a directory", fields={"path": place, "reason": "not a directory"})
        admin = self._admin_if_top(place)
        with self._private_index(place, admin) as more:
            if not os.path.exists(more["GIT_INDEX_FILE"]):
                self._command.run(*_PRIVATE, "read-tree", tree, cwd=place, more=more)
            self._command.run(*_PRIVATE, *_ADD, cwd=place, more=more)
            return self._command.run(*_PRIVATE, "write-tree", cwd=place, more=more).decode("ascii").strip()

    def settle(self, directory: str, agent: str, old: str, new: str) -> None:
        place = self._require_ours(directory)
        # The record goes first. A death behind it leaves an index that is old, and the next snapshot works from the files.
        self._record(place, agent, new)
        self._command.run("update-ref", "--no-deref", "-m", f"clia: committed over {old}", "HEAD", new, cwd=place)
        self._command.run("reset", "--quiet", "--", ".", cwd=place)
        self._command.attempt("update-index", "-q", "--refresh", cwd=place)

    def can_follow(self, worktree: str, old: str, new: str) -> str | None:
        place = os.path.abspath(worktree)
        admin = self._admin_of(place)
        if admin is None:
            return None  # it was deleted without telling git: nothing there can be lost
        if os.path.lexists(os.path.join(admin, "index.lock")):
            return "its index is locked: a git process is at work there, or died"
        with self._private_index(place, admin) as more:
            self._command.attempt(*_PRIVATE, "update-index", "-q", "--refresh", cwd=place, more=more)
            words = (*_PRIVATE, "read-tree", "-m", "-u", "--dry-run", old, new)
            done = self._command.attempt(*words, cwd=place, more=more)
            if done.code:
                return done.err or f"git read-tree ends with {done.code}"
            hidden = self._ignored_in_the_way(place, old, new, more)
        return f"ignored files would be overwritten: {_listed(hidden)}" if hidden else None

    def follow(self, worktree: str, old: str, new: str) -> None:
        place = os.path.abspath(worktree)
        admin = self._admin_of(place)
        if admin is not None:
            more = self._variables(place, admin)
            self._command.attempt("update-index", "-q", "--refresh", cwd=place, more=more)
            self._command.run("read-tree", "-m", "-u", old, new, cwd=place, more=more)

    def _ignored_in_the_way(self, place: str, old: str, new: str, more: dict[str, str]) -> list[str]:
        """git overwrites ignored files without a word; to their owner they may be all there is."""
        out = self._command.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", "--diff-filter=A", old, new)
        added = map(os.fsdecode, out.split(b"\0")[:-1])
        present = sorted({found for path in added if (found := _obstacle(place, path))})
        listed: list[str] = []
        for start in range(0, len(present), 1000):
            words = ("--literal-pathspecs", "ls-files", "--others", "-z", "--", *present[start : start + 1000])
            out = self._command.run(*words, cwd=place, more=more)
            listed += [os.fsdecode(each) for each in out.split(b"\0")[:-1]]
        return sorted(listed)

    @contextmanager
    def _private_index(self, place: str, admin: str | None) -> Iterator[dict[str, str]]:
        """The variables that give git a copy of a worktree's index, or none yet; sparse bits and file times come along."""
        with tempfile.TemporaryDirectory(prefix="clia-") as folder:
            index = os.path.join(folder, "index")
            if admin is not None:
                with suppress(FileNotFoundError):
                    # With its time: git looks twice at files that are no older than the index.
                    shutil.copy2(os.path.join(admin, "index"), index)
            yield {**self._variables(place, admin), "GIT_INDEX_FILE": index}

    def _variables(self, place: str, admin: str | None) -> dict[str, str]:
        """What git must be told in a directory where it would not find this repository by itself."""
        if admin is not None and os.path.lexists(os.path.join(place, ".git")):
            return {}
        return {"GIT_DIR": self._handle.common_dir, "GIT_WORK_TREE": place}

    def _admin_of(self, top: str) -> str | None:
        """The git directory of a worktree of this repository; None for anything else, copies of worktrees included."""
        common = self._handle.common_dir
        pointer = os.path.join(top, ".git")
        if not os.path.lexists(pointer):  # `core.worktree` may say where the worktree is
            return self._handle.git_dir if os.path.realpath(top) == self._handle.work_dir else None
        admin = os.path.realpath(pointer if os.path.isdir(pointer) else _pointed_at(pointer, "gitdir: ") or top)
        if admin == common:
            return common
        registered = _pointed_at(os.path.join(admin, "gitdir"), "")
        if registered is None or os.path.dirname(os.path.dirname(admin)) != common:
            return None
        moved_by_hand = not os.path.lexists(registered)
        return admin if moved_by_hand or os.path.realpath(registered) == os.path.realpath(pointer) else None

    def _admin_if_top(self, place: str) -> str | None:
        """As ``_admin_of``, for a directory that must not lie inside a worktree or be a git directory."""
        admin = self._admin_of(place)
        above = find_repository(place)
        inside = admin is None and above is not None and above != os.path.realpath(place) and self._admin_of(above)
        if inside or os.path.realpath(place) == self._handle.common_dir:
            raise InvalidInput(
                f"{place} is not the top of a worktree",
                code="not-a-worktree-top",
                hints=["name the directory that holds the worktree's .git"],
                fields={"path": place},
            )
        return admin

    def _require_ours(self, directory: str) -> str:
        found = self.checkout_of(directory)
        if found is None:
            place = os.path.abspath(directory)
            message = f"{place} is not the checkout of an agent"
            raise InvalidInput(message, code="not-a-checkout", hints=["clia checkout"], fields={"path": place})
        return found.directory

    def _record(self, place: str, agent: str, base: str, tree: str | None = None) -> None:
        admin = self._admin_of(place)
        if admin is None:
            raise FileError(f"{place} is no worktree any more", fields={"path": place, "reason": "its .git is gone"})
        path = os.path.join(admin, _RECORD)
        facts = {"agent": agent, "base": base} | ({} if tree is None else {"tree": tree})
        text = json.dumps(facts, indent=2, sort_keys=True) + "\n"
        temporary = f"{path}.{os.getpid()}"
        try:
            with open(temporary, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                if self._handle.durable:
                    os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError as err:
            with suppress(OSError):
                os.unlink(temporary)
            raise FileError(f"{path}: {err.strerror}", fields={"path": path, "reason": str(err.strerror)}) from None


def _pointed_at(file: str, before: str) -> str | None:
    """The path that a one-line file of git's holds, which may be relative to the file."""
    try:
        with open(file, "rb") as content:
            line = os.fsdecode(content.read(8192).rstrip(b"\n"))
    except OSError:
        return None
    return os.path.join(os.path.dirname(file), line.removeprefix(before)) if line.startswith(before) else None


def _obstacle(place: str, path: str) -> str | None:
    """What stands where a path would be written: something of that name, or a file where a folder must be."""
    reached = ""
    for part in path.split("/"):
        reached = os.path.join(reached, part)
        full = os.path.join(place, reached)
        if not os.path.lexists(full):
            return None
        if os.path.islink(full) or not os.path.isdir(full):
            break
    return reached


def _is_about_work(err: str) -> bool:
    return "would be overwritten" in err or "would lose" in err or "would be removed" in err or "resolve your current index" in err


def _would_lose(place: str, done: GitResult) -> Conflict:
    files = sorted(line.strip() for line in done.err.splitlines() if line.startswith("\t"))
    return Conflict(
        f"{place} has uncommitted work that would be lost: {_listed(files) or done.err}",
        code="uncommitted-work",
        hints=["commit it with clia commit, or put it aside"],
        fields={"directory": place, "files": files, "reason": done.err},
    )


def _listed(files: Sequence[str]) -> str:
    return ", ".join(files[:10]) + (f" and {len(files) - 10} more" if len(files) > 10 else "")


def _in_use(place: str, reason: str) -> Conflict:
    return Conflict(
        f"{place} cannot become a worktree: {reason}",
        code="directory-in-use",
        hints=["name a directory that does not exist yet"],
        fields={"directory": place, "reason": reason},
    )

"""Worktrees, through the git command and private indexes.

Invariant: an agent's worktree has a record of its agent and base in its git directory, and the record never names a commit
newer than the files. Only ``follow`` changes a user's index or files; uncommitted work is never overwritten.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from contextlib import contextmanager, suppress
from functools import cached_property
from itertools import pairwise

from clia.errors import CliaError, Conflict, FileError, GitError, InvalidInput
from clia.git import worktree_links
from clia.git.libgit2 import find_repository
from clia.git.records import Checkout, Prepared, WorktreeHead

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from clia.git.command import GitCommand
    from clia.git.libgit2 import GitHandle
    from clia.git.program_worktrees import ProgramLogs
    from clia.git.reflogs import Reflogs
    from clia.git.submodules import Submodules
    from clia.git.worktree_repairs import WorktreeRepairs
    from clia.git.worktree_updates import WorktreeUpdates

_PREPARED = "clia-prepared.json"
# A split index would leave shared files behind.
PRIVATE = ("-c", "core.splitIndex=false")
_WOULD_LOSE = ("would be overwritten", "would lose", "would be removed", "resolve your current index")
# Files in a worktree's git directory while an operation is in progress.
_OPERATIONS = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG", "rebase-merge", "rebase-apply", "sequencer")
# Files that name the commits which an operation is bringing into a worktree.
_MERGE, _PICK, _REBASE = "MERGE_HEAD", "CHERRY_PICK_HEAD", "rebase-merge/stopped-sha"


class GitWorktrees:
    """Worktrees of one repository."""

    def __init__(self, handle: GitHandle, command: GitCommand) -> None:
        self._handle = handle
        self._command = command

    @property
    def reflogs(self) -> Reflogs:
        """The reflogs of people's worktrees and branches."""
        from clia.git.reflogs import Reflogs  # most commands read no reflog

        return Reflogs(self._handle.common_dir)

    def add_worktree(self, directory: str, agent: str, commit: str) -> None:
        """Create a linked worktree, detached at a commit, and record its base."""
        place = os.path.abspath(directory)
        self._updates.clear_unfinished(place)
        words = ("worktree", "add", "--quiet", "--detach", "--no-checkout")
        result = self._command.attempt(*words, "--", place, commit)
        if result.code and "already registered worktree" in result.err:  # its directory is gone: nothing can be lost
            result = self._command.attempt(*words, "--force", "--", place, commit)
        if result.code:
            is_taken = "already exists" in result.err or "locked worktree" in result.err
            raise _in_use(place, result.err) if is_taken else result.failure(*words)
        self._share_admin(place)
        try:
            self._bring_to(place, Checkout(agent, commit, place), commit, resumes=False)
        except CliaError:
            self._command.attempt("worktree", "remove", "--force", "--", place)
            raise

    def _share_admin(self, place: str) -> None:
        """Give the git directory of a new worktree the permissions of a shared repository: git does that for the index only."""
        admin = self._admin_of(place) if self._handle.sharing.bits else None
        for parent, _, files in os.walk(admin) if admin is not None else ():
            for path in (parent, *(os.path.join(parent, name) for name in files)):
                self._handle.sharing.apply(path)

    def checkout_of(self, directory: str) -> Checkout | None:
        """Return the record of a directory; None if it is not an agent's worktree."""
        place = os.path.abspath(directory)
        try:
            admin = self._admin_of(place)
        except ValueError:  # a NUL in the path
            return None
        return None if admin is None else worktree_links.read_record(admin, place)

    def worktrees_of(self, agent: str) -> list[Checkout]:
        """Return the registered worktrees of an agent, also those whose directory is gone or no longer names this repository."""
        links = [(admin, worktree_links.link_back(admin)) for admin in worktree_links.admin_dirs(self._handle.common_dir)]
        records = [worktree_links.read_record(admin, os.path.dirname(link)) for admin, link in links if link is not None]
        return [record for record in records if record is not None and record.agent == agent]

    def broken_worktrees(self) -> list[str]:
        """Return the directories of agents' worktrees whose ``.git`` names a missing directory: the repository was moved."""
        places = []
        for admin in worktree_links.admin_dirs(self._handle.common_dir):
            place = os.path.dirname(worktree_links.link_back(admin) or "")
            named = worktree_links.git_dir_of(place)
            if named is not None and not os.path.isdir(named) and worktree_links.read_record(admin, place) is not None:
                places.append(place)
        return places

    def repair(self, directory: str, agent: str, *, replaced: bool = False) -> str | None:
        """Restore the links of an agent's worktree, for example after the repository was moved; return what was wrong.

        A ``.git`` that names another existing repository is left alone. ``replaced``: a program in the worktree put its own
        repository there; it is moved into the worktree's git directory.
        """
        return self._repairs.repair(os.path.abspath(directory), agent, replaced=replaced)

    def relink(self, directory: str) -> None:
        """Restore the links between a worktree that was moved by hand, its submodules, and the repository."""
        place = os.path.abspath(directory)
        admin = self._admin_of(place)
        if admin is not None and admin != self._handle.common_dir:
            worktree_links.relink(place, admin)

    def guard(self, directory: str, *, running: bool) -> None:
        """Save what restores an agent's worktree before a program starts in it, or drop that when the program is recorded."""
        place = os.path.abspath(directory)
        self._repairs.save(place, self._admin_of(place) if running else None)

    def restore(self, directory: str, agent: str) -> bool:
        """Restore an agent's worktree that a program removed, at the commit where its HEAD was, if possible."""
        return self._repairs.restore(os.path.abspath(directory), agent)

    @property
    def _repairs(self) -> WorktreeRepairs:
        from clia.git.worktree_repairs import WorktreeRepairs  # few worktrees are damaged

        return WorktreeRepairs(self._handle, self._command, self._updates)

    def relocate(self, directory: str, new: str) -> None:
        """Move an agent's worktree to a directory that does not exist."""
        place = self._require_ours(directory)
        admin = self._admin_of(place)
        if admin is not None:
            worktree_links.relocate(place, admin, os.path.abspath(new))

    def head_of(self, directory: str) -> str | None:
        """Return the commit that a worktree of this repository is at; None if it is not a worktree or has no commit."""
        place = os.path.abspath(directory)
        admin = self._admin_of(place) if os.path.isdir(place) else None
        if admin is None:
            return None
        words = ("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        result = self._command.attempt(*words, cwd=place, variables=self._variables(place, admin))
        return result.out.decode("ascii").strip() or None

    def head_state(self, directory: str, expected: str) -> WorktreeHead | None:
        """Return the changes of a worktree's HEAD since it was at ``expected``; None if it did not move, or this is not a
        worktree."""
        place = os.path.abspath(directory)
        admin = self._admin_of(place) if os.path.isdir(place) else None
        logs = None if admin is None else self._logs_of_programs(admin)
        is_unmoved = admin is not None and _moved_by_clia(os.path.join(admin, "logs", "HEAD"), expected)
        if admin is None or (is_unmoved and logs is None and not self._stashes({expected})):
            return None
        from clia.git.reflogs import is_creation, is_replay

        symbolic = self._command.attempt("symbolic-ref", "--quiet", "HEAD", cwd=place).out.decode("utf-8", "replace").strip()
        busy = any(os.path.lexists(os.path.join(admin, name)) for name in _OPERATIONS)
        out = self._command.attempt("log", "-g", "-z", "--no-show-signature", "--format=%H %gs", "HEAD", "--", cwd=place).out
        moves = [entry.partition(" ")[::2] for entry in out.decode("utf-8", "replace").split("\0") if entry]
        visited = {cid for cid, _ in moves}
        gained = logs.entries(self._handle.common_dir, place, visited) if logs is not None else []
        pairs = [(cid, why, old) for (cid, why), (old, _) in pairwise(moves)]
        pairs += [(entry.new, entry.why, entry.old) for entry in gained]
        created = {cid for cid, why in (*moves, *(pair[:2] for pair in pairs)) if is_creation(why)} | self._stashes(visited)
        before = {cid: old for cid, why, old in pairs if is_creation(why) and cid != old}
        replayed = frozenset(cid for cid, why, _ in pairs if cid in before and is_replay(why))
        created_commits = frozenset(created) if moves else None
        return WorktreeHead(self.head_of(place), not symbolic and not busy, created_commits, symbolic or None, before, replayed)

    def watch_programs(self, directory: str, *, running: bool) -> None:
        """Record that a program starts in an agent's worktree, or has ended: worktrees that appear meanwhile are its own."""
        from clia.git.program_worktrees import ProgramLogs  # only `clia run` watches programs

        place, common_dir = self._require_ours(directory), self._handle.common_dir
        admin = self._admin_of(place) or ""
        logs = ProgramLogs.read(admin).ended(common_dir, place, admin)
        self._write(os.path.join(admin, worktree_links.LOGS), (logs.started(common_dir) if running else logs)._asdict())

    def _logs_of_programs(self, admin: str) -> ProgramLogs | None:
        """The record of a program that runs, or was killed."""
        if not os.path.lexists(os.path.join(admin, worktree_links.LOGS)):
            return None
        from clia.git.program_worktrees import ProgramLogs

        logs = ProgramLogs.read(admin)
        return None if logs.since is None else logs

    def _stashes(self, bases: set[str]) -> set[str]:
        """Return the stashes of files that were based on these commits. All worktrees share the stashes."""
        import pygit2

        try:
            with open(os.path.join(self._handle.common_dir, "logs", "refs", "stash"), encoding="utf-8", errors="replace") as log:
                stashes = {cid for line in log if (cid := line.split(" ", 2)[1]) in self._handle.repo}
        except (OSError, IndexError, ValueError):
            return set()
        commits = [self._handle.repo[cid].peel(pygit2.Commit) for cid in stashes]
        return {str(commit.id) for commit in commits if any(str(parent) in bases for parent in commit.parent_ids[:1])}

    def worktree_heads(self) -> set[str]:
        """Return the commits that worktrees have checked out."""
        out = self._command.attempt("worktree", "list", "--porcelain").out.decode("utf-8", "replace")
        heads = {line.removeprefix("HEAD ") for line in out.splitlines() if line.startswith("HEAD ")}
        return {cid for cid in heads if cid.strip("0")}

    def unfinished(self, directory: str) -> list[tuple[str, bool]]:
        """Return the commits that git is merging or picking in a worktree, and whether it merges them with their history."""
        admin, commits = self._admin_of(os.path.abspath(directory)), []
        for name in (_MERGE, _PICK, _REBASE) if admin is not None else ():
            with suppress(OSError), open(os.path.join(str(admin), name), encoding="ascii", errors="replace") as file:
                commits += [(line.strip(), name == _MERGE) for line in file if re.fullmatch(r"[0-9a-f]{40}\n?", line)]
        return commits

    def top_of(self, path: str) -> str | None:
        """Return the top of the worktree of this repository that contains a path, or None."""
        top = find_repository(path)
        return top if top is not None and self._admin_of(top) is not None else None

    def claim_worktree(self, directory: str, agent: str) -> None:
        """Record that a detached linked worktree belongs to an agent; ``Conflict`` if it is a user's."""
        place = os.path.abspath(directory)
        admin = self._admin_of(place)
        head = self.head_of(place)
        attached = self._command.attempt("symbolic-ref", "--quiet", "HEAD", cwd=place).code == 0
        if admin is None or admin == self._handle.common_dir or head is None or attached:
            raise _in_use(place, "it is not a detached linked worktree")
        self._updates.finish(admin)
        if os.path.lexists(os.path.join(admin, "index")):
            self.record(place, agent, head)
        else:  # it has no files yet, or some of them
            self._bring_to(place, Checkout(agent, head, place), head, resumes=True)

    def move_worktree(self, directory: str, agent: str, commit: str) -> None:
        """Move an agent's worktree to another commit; ``Conflict`` if uncommitted work would be lost."""
        place = self._require_ours(directory)
        checkout = self.checkout_of(place) or Checkout(agent, commit, place)
        if checkout.own is not None and checkout.own == self.head_of(place):
            self._point_head_at(place, checkout.own, checkout.base)  # the files are those of the base, which stands for it
        self._bring_to(place, checkout, commit, resumes=checkout.moving is not None)

    def _bring_to(self, place: str, checkout: Checkout, commit: str, *, resumes: bool) -> None:
        """Check out a commit in a worktree. If this process is killed, the record says that the next one resumes."""
        self.record(place, checkout.agent, checkout.base, checkout.own, checkout.pending, moving=commit)
        result = self._updates.check_out(place, self._admin_of(place) or "", commit, resumes=resumes)
        if result.code:
            if not resumes:  # nothing was changed
                self.record(place, checkout.agent, checkout.base, checkout.own, checkout.pending)
            if not any(text in result.err for text in _WOULD_LOSE):
                raise result.failure("checkout")
            files = sorted(line.strip() for line in result.err.splitlines() if line.startswith("\t"))
            raise Conflict(
                f"{place} has uncommitted work that would be lost: {_listed(files) or result.err}",
                code="uncommitted-work",
                hints=["commit it with clia commit, or move it away"],
                fields={"directory": place, "files": files, "reason": result.err},
            )
        self.record(place, checkout.agent, commit)

    def prepared(self, directory: str) -> Prepared:
        """Return what was put into an agent's worktree."""
        admin = self._admin_of(os.path.abspath(directory))
        try:
            with open(os.path.join(admin or "", _PREPARED), encoding="utf-8") as file:
                record = dict(json.load(file))
            return Prepared(tuple(record["paths"]), tuple(record["done"]), str(record["setup"]), dict(record["submodules"]))
        except (OSError, ValueError, KeyError, TypeError):
            return Prepared()

    def record_prepared(self, directory: str, prepared: Prepared) -> None:
        """Record what was put into an agent's worktree."""
        admin = self._admin_of(self._require_ours(directory))
        self._write(os.path.join(admin or "", _PREPARED), prepared._asdict())

    def user_worktree(self) -> str | None:
        """Return the user's worktree that files are copied from: the present one, or the main one if that is an agent's."""
        main = os.path.dirname(self._handle.common_dir) if os.path.basename(self._handle.common_dir) == ".git" else None
        present = self._handle.work_dir
        return present if present is not None and self.checkout_of(present) is None else main

    def update_submodules(self, directory: str) -> list[str]:
        """Check out the submodules of an agent's worktree; return warnings."""
        prepared = self.prepared(directory)
        submodules = self._submodules(directory)
        commits, warnings = submodules.update(prepared.submodules)
        if commits != prepared.submodules:
            self.record_prepared(directory, prepared._replace(submodules=commits))
        return warnings

    def keep_submodules(self, directory: str, agent: str) -> None:
        """Keep the commits in the submodules of an agent's worktree."""
        if self.prepared(directory).submodules:
            self._submodules(directory).keep(agent)

    def _submodules(self, directory: str) -> Submodules:
        from clia.git.submodules import Submodules  # few repositories have them

        place = self._require_ours(directory)
        common = self._handle.common_dir
        return Submodules(self._command, place, self._admin_of(place) or common, [common], self.user_worktree())

    def settle(self, directory: str, agent: str, own: str | None, new: str) -> None:
        """Tell an agent's worktree that its files were committed as ``new``, which stands for its HEAD ``own``.

        HEAD and index follow, unless HEAD is on a branch, an operation is in progress, or HEAD has moved since.
        """
        place = self._require_ours(directory)
        state = None if own is None else self.head_state(place, own)
        if state is not None and state.commit != new and not (state.can_follow and state.commit == own):
            self.record(place, agent, new, own)
            return
        # The record first: if we die after it, the index is old, and the next snapshot works from the files.
        self.record(place, agent, new)
        try:
            self._point_head_at(place, own, new)
        except GitError:
            self.record(place, agent, new, pending=None if own is None else (new, own))  # the next call tries again
            raise

    def _point_head_at(self, place: str, old: str | None, new: str) -> None:
        """Detach HEAD at a commit and set the index to it. No file is changed."""
        self._updates.point_head_at(place, self._admin_of(place) or "", old, new)

    @cached_property
    def _updates(self) -> WorktreeUpdates:
        from clia.git.worktree_updates import WorktreeUpdates  # most commands change no worktree

        return WorktreeUpdates(self._handle, self._command)

    def can_follow(self, worktree: str, old: str, new: str) -> str | None:
        """Return why a user's worktree cannot go from one commit to another without losing work, or None."""
        place = os.path.abspath(worktree)
        admin = self._admin_of(place)
        if admin is None:
            return None  # deleted without telling git: nothing can be lost
        if os.path.lexists(os.path.join(admin, "index.lock")):
            return "its index is locked: a git process is running there, or died"
        with self._private_index(place, admin) as variables:
            self._command.attempt(*PRIVATE, "update-index", "-q", "--refresh", cwd=place, variables=variables)
            words = (*PRIVATE, "read-tree", "-m", "-u", "--dry-run", old, new)
            result = self._command.attempt(*words, cwd=place, variables=variables)
            if result.code:
                return result.err or f"git read-tree ends with {result.code}"
            hidden = self._ignored_in_the_way(place, old, new, variables)
        return f"ignored files would be overwritten: {_listed(hidden)}" if hidden else None

    def follow(self, worktree: str, old: str, new: str) -> None:
        """Update a user's worktree after its branch was moved, as a fast-forward merge would."""
        place = os.path.abspath(worktree)
        admin = self._admin_of(place)
        if admin is not None:
            variables = self._variables(place, admin)
            self._command.attempt("update-index", "-q", "--refresh", cwd=place, variables=variables)
            self._command.run("read-tree", "-m", "-u", old, new, cwd=place, variables=variables)

    def _ignored_in_the_way(self, place: str, old: str, new: str, variables: dict[str, str]) -> list[str]:
        """Return ignored files that git would overwrite silently; they may be the only copy."""
        out = self._command.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", "--diff-filter=A", old, new)
        added = map(os.fsdecode, out.split(b"\0")[:-1])
        present = sorted({obstacle for path in added if (obstacle := _obstacle(place, path))})
        listed: list[str] = []
        for start in range(0, len(present), 1000):
            words = ("--literal-pathspecs", "ls-files", "--others", "-z", "--", *present[start : start + 1000])
            out = self._command.run(*words, cwd=place, variables=variables)
            listed += map(os.fsdecode, out.split(b"\0")[:-1])
        return sorted(listed)

    @contextmanager
    def _private_index(self, place: str, admin: str | None) -> Iterator[dict[str, str]]:
        """Yield the variables that give git a copy of a worktree's index, with its sparse bits and file times."""
        with tempfile.TemporaryDirectory(prefix="clia-") as folder:
            index = os.path.join(folder, "index")
            if admin is not None:
                with suppress(FileNotFoundError):
                    # With its time: git reads files again that are not older than the index.
                    shutil.copy2(os.path.join(admin, "index"), index)
            yield {**self._variables(place, admin), "GIT_INDEX_FILE": index}

    def _variables(self, place: str, admin: str | None) -> dict[str, str]:
        """Return the variables git needs in a directory where it would not find this repository."""
        if admin is not None and os.path.lexists(os.path.join(place, ".git")):
            return {}
        return {"GIT_DIR": self._handle.common_dir, "GIT_WORK_TREE": place}

    def _admin_of(self, top: str) -> str | None:
        """Return the git directory of a worktree of this repository; None for anything else, even a copied worktree."""
        common = self._handle.common_dir
        pointer = os.path.join(top, ".git")
        if not os.path.lexists(pointer):  # `core.worktree` may say where the worktree is
            return self._handle.git_dir if os.path.realpath(top) == self._handle.work_dir else None
        admin = os.path.realpath(pointer if os.path.isdir(pointer) else worktree_links.git_dir_of(top) or top)
        if admin == common:
            return common
        registered = worktree_links.link_back(admin)
        if registered is None or os.path.dirname(os.path.dirname(admin)) != common:
            return None
        moved_by_hand = not os.path.lexists(registered)
        return admin if moved_by_hand or os.path.realpath(registered) == os.path.realpath(pointer) else None

    def _require_ours(self, directory: str) -> str:
        checkout = self.checkout_of(directory)
        if checkout is None:
            place = os.path.abspath(directory)
            message = f"{place} is not an agent's checkout"
            raise InvalidInput(message, code="not-a-checkout", hints=["clia checkout"], fields={"path": place})
        return checkout.directory

    def record(
        self,
        place: str,
        agent: str,
        base: str,
        own: str | None = None,
        pending: tuple[str, str] | None = None,
        moving: str | None = None,
    ) -> None:
        """Record the agent and base of a worktree (see ``Checkout``)."""
        admin = self._admin_of(place)
        if admin is None:
            raise FileError(f"{place} is no longer a worktree", fields={"path": place, "reason": "its .git is gone"})
        facts = {"agent": agent, "base": base, "own": own, "pending": pending, "moving": moving}
        facts = {key: value for key, value in facts.items() if value is not None}
        for folder in (admin, worktree_links.saved_dir(self._handle.common_dir, place)):
            if folder == admin or os.path.isdir(folder):
                self._write(os.path.join(folder, worktree_links.RECORD), facts)

    def _write(self, path: str, facts: Mapping[str, object]) -> None:
        text = json.dumps(facts, indent=2, sort_keys=True) + "\n"
        temporary = f"{path}.{os.getpid()}"
        try:
            with open(temporary, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                if self._handle.durable:
                    os.fsync(file.fileno())
            self._handle.sharing.apply(temporary)
            os.replace(temporary, path)
        except OSError as err:
            with suppress(OSError):
                os.unlink(temporary)
            raise FileError(f"{path}: {err.strerror}", fields={"path": path, "reason": str(err.strerror)}) from None


def _moved_by_clia(log: str, commit: str) -> bool:
    """Return whether the last move in a reflog is clia's (``git worktree add`` gives no reason) and went to this commit."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
            line = file.read().rstrip(b"\n").rpartition(b"\n")[2]
    except OSError:
        return False
    move, _, why = line.partition(b"\t")
    return move.split(b" ")[1:2] == [commit.encode("ascii")] and (not why or why.startswith(b"clia: "))


def _obstacle(place: str, path: str) -> str | None:
    """Return what is in the way of writing a path: something with its name, or a file in place of a folder."""
    reached = ""
    for part in path.split("/"):
        reached = os.path.join(reached, part)
        full = os.path.join(place, reached)
        if not os.path.lexists(full):
            return None
        if os.path.islink(full) or not os.path.isdir(full):
            break
    return reached


def _listed(files: Sequence[str]) -> str:
    return ", ".join(files[:10]) + (f" and {len(files) - 10} more" if len(files) > 10 else "")


def _in_use(place: str, reason: str) -> Conflict:
    return Conflict(
        f"{place} cannot become a worktree: {reason}",
        code="directory-in-use",
        hints=["name a directory that does not exist yet"],
        fields={"directory": place, "reason": reason},
    )

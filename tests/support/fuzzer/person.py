"""What people do with git in the repository of a space, while agents work.

Each act is one shell command, so that it can be killed or stopped anywhere in it. ``disturbs`` names the agent whose branch it may
move back.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from support.fuzzer.traced import Ended, Fault, Run

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.fuzzer.place import Place

HEADS = "refs/heads/agents/"


class Chore(NamedTuple):
    """A shell command, and the agent whose history it may change."""

    script: str
    disturbs: str | None = None


class Person:
    """Chooses by the state of the repository."""

    def __init__(self, place: Place, seed: str) -> None:
        self.place = place
        self.order = Random(seed)  # noqa: S311  # not a secret
        self.text = place.token

    def agent(self) -> str | None:
        lines = self.place.git("for-each-ref", "--format=%(refname)", HEADS).splitlines()
        agents = [line.removeprefix(HEADS) for line in lines]
        return self.order.choice(agents) if agents else None

    def checkout(self, name: str) -> str:
        """Commands that go to a worktree of the person with an agent's branch."""
        directory = shlex.quote(str(Path(self.place.top, "disk", f"work-{name}")))
        add = f"[ -d {directory} ] || git worktree add -q {directory} agents/{name}"
        return f"{add}; cd {directory} && git reset -q --hard agents/{name} &&"


def pack_refs(person: Person) -> Chore:
    return Chore(f"git pack-refs --all {person.order.choice(('', '--no-prune'))}")


def gc(person: Person) -> Chore:
    return Chore("git -c gc.autoDetach=false gc -q")


def repack(person: Person) -> Chore:
    return Chore(f"git repack -{person.order.choice(('a', 'A'))} -d -q")


def update_ref(person: Person) -> Chore:
    branch = f"refs/heads/person/{person.order.randrange(3)}"
    return Chore(
        person.order.choice(
            (f"git update-ref {branch} main", f"git update-ref -d {branch}", f"git update-ref -m x {branch} main~1")
        )
    )


def commit(person: Person) -> Chore:
    file = f"people-{person.order.randrange(3)}"
    return Chore(f"git switch -q main; echo '{person.text}' >{file}; git add -A .; git commit -q -m '{person.text}'")


def stash(person: Person) -> Chore:
    return Chore(f"echo '{person.text}' >>README; git stash push -q && git stash pop -q; git checkout -q -- README")


def worktree(person: Person) -> Chore:
    directory, branch = shlex.quote(str(Path(person.place.top, "disk", "person"))), f"person/w{person.place.step}"
    remove = f"git worktree remove -f {directory}; git worktree prune; git branch -q -D {branch}"
    return Chore(f"git worktree add -q -b {branch} {directory} main; {remove}")


def switch(person: Person) -> Chore:
    name = person.agent()
    return Chore(f"git switch -q {'main' if name is None or person.order.random() < 0.6 else f'agents/{name}'}")


def delete_branch(person: Person) -> Chore:
    name = person.agent()
    return Chore("true") if name is None else Chore(f"git branch -q -D agents/{name}", name)


def reset(person: Person) -> Chore:
    name = person.agent()
    if name is None:
        return Chore("true")
    if person.order.random() < 0.5:
        return Chore(f"git branch -f agents/{name} agents/{name}~1", name)
    return Chore(f"{person.checkout(name)} git reset -q --hard HEAD~1", name)


def rebase(person: Person) -> Chore:
    name = person.agent()
    if name is None:
        return Chore("true")
    return Chore(f"{person.checkout(name)} git rebase -q --force-rebase HEAD~1 || git rebase --abort", name)


def amend(person: Person) -> Chore:
    name = person.agent()
    if name is None:
        return Chore("true")
    return Chore(f"{person.checkout(name)} echo more >>more && git add more && git commit -q --amend --no-edit", name)


def commit_on_branch(person: Person) -> Chore:
    """A person commits on an agent's branch: that is no commit of the agent."""
    name = person.agent()
    if name is None:
        return Chore("true")
    return Chore(f"{person.checkout(name)} echo '{person.text}' >>more && git add more && git commit -q -m '{person.text}'", name)


def drop_checkouts(person: Person) -> Chore:
    disk = shlex.quote(str(Path(person.place.top, "disk")))
    return Chore(f'for each in {disk}/work-*; do [ -d "$each" ] && git worktree remove -f "$each"; done; git worktree prune')


def expire(person: Person) -> Chore:
    return Chore("git reflog expire --expire=90.days --all; git prune --expire=2.weeks.ago; git fsck --connectivity-only")


def remote(person: Person) -> Chore:
    return Chore(
        person.order.choice(
            ("git fetch -q origin", "git push -q origin main", "git fetch -q --prune origin; git remote prune origin")
        )
    )


CHORES: dict[str, tuple[Callable[[Person], Chore], int]] = {
    "pack-refs": (pack_refs, 5),
    "gc": (gc, 4),
    "repack": (repack, 3),
    "update-ref": (update_ref, 3),
    "person-commit": (commit, 3),
    "stash": (stash, 2),
    "worktree": (worktree, 2),
    "switch": (switch, 2),
    "branch-D": (delete_branch, 1),
    "reset": (reset, 2),
    "rebase": (rebase, 2),
    "amend": (amend, 1),
    "commit-on-branch": (commit_on_branch, 1),
    "drop-checkouts": (drop_checkouts, 2),
    "expire": (expire, 1),
    "remote": (remote, 1),
}
"""What people do, and how often each comes."""


def chore_of(place: Place, name: str, seed: str) -> Chore:
    return CHORES[name][0](Person(place, seed))


def started(place: Place, chore: Chore, fault: Fault | None) -> Run:
    return Run(["sh", "-c", chore.script], fault, str(place.root), place.git_environment())


def remove_locks(root: Path) -> list[str]:
    """Remove the locks that killed processes of git left, as git tells its user to; those of clia stay. Nothing may be running."""
    own = {entry.stat().st_ino for entry in (root / ".git/clia/ref-locks").glob("*")}
    locks = [path for path in (root / ".git").rglob("*.lock") if "clia" not in path.relative_to(root / ".git").parts[:1]]
    removed = [str(path.relative_to(root)) for path in locks if path.stat().st_ino not in own]
    for path in removed:
        os.unlink(root / path)
    for name in ("packed-refs.new", "gc.pid"):
        (root / ".git" / name).unlink(missing_ok=True)
    return removed


def describe(ended: Ended) -> str:
    return f"exit {ended.code} after {ended.changes} changes {ended.out.decode(errors='replace').strip()[-300:]}"

"""What people do with git in the repository of a space and at its hub, while agents work.

Each act is one shell command, so that it can be killed or stopped anywhere in it. ``disturbs`` names the agent whose branch it may
move back.
"""

from __future__ import annotations

import os
import shlex
import shutil
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from support.fuzzer.traced import Ended, Fault, Run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.fuzzer.place import Place

HEADS = "refs/heads/agents/"


class Chore(NamedTuple):
    """A shell command, and the agent whose history it may change."""

    script: str
    disturbs: str | None = None
    at_hub: bool = False


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
        directory = shlex.quote(str(self.place.beside(f"work-{name}")))
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
    directory, branch = shlex.quote(str(person.place.beside("person"))), f"person/w{person.place.step}"
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
    listed = "git worktree list --porcelain | sed -n 's/^worktree //p'"
    return Chore(f'{listed} | grep /work- | while read -r each; do git worktree remove -f "$each"; done; git worktree prune')


def expire(person: Person) -> Chore:
    return Chore("git reflog expire --expire=90.days --all; git prune --expire=2.weeks.ago; git fsck --connectivity-only")


def remote(person: Person) -> Chore:
    return Chore(
        person.order.choice(
            ("git fetch -q origin", "git push -q origin main", "git fetch -q --prune origin; git remote prune origin")
        )
    )


def at_hub(person: Person) -> Chore:
    """The hub's administrator cleans up."""
    words = (
        "pack-refs --all",
        "-c gc.autoDetach=false gc -q",
        "repack -a -d -q",
        "reflog expire --all",
        "prune --expire=2.weeks.ago",
    )
    return Chore(f"git {person.order.choice(words)}", at_hub=True)


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
HUB_CHORES = {**CHORES, "at-hub": (at_hub, 6)}
"""The same with a hub."""


def chore_of(place: Place, name: str, seed: str) -> Chore:
    return HUB_CHORES[name][0](Person(place, seed))


def started(place: Place, chore: Chore, fault: Fault | None) -> Run:
    return Run(["sh", "-c", chore.script], fault, str(place.hub if chore.at_hub else place.root), place.git_environment())


def remove_locks(root: Path) -> list[str]:
    """Remove the locks that killed processes of git left, as git tells its user to; those of clia stay. Nothing may be running."""
    git_dir = root / ".git" if (root / ".git").exists() else root
    own = {entry.stat().st_ino for entry in (git_dir / "clia/ref-locks").glob("*")}
    locks = [path for path in git_dir.rglob("*.lock") if "clia" not in path.relative_to(git_dir).parts[:1]]
    removed = [str(path.relative_to(root)) for path in locks if path.stat().st_ino not in own]
    for path in removed:
        os.unlink(root / path)
    for name in ("packed-refs.new", "gc.pid"):
        (git_dir / name).unlink(missing_ok=True)
    return removed


def leave_branches(place: Place) -> None:
    """Remove the worktrees of people: a branch that is checked out does not follow the hub, and git fetches nothing if one is half
    made."""
    for top in (place.root.parent, place.root / ".git/worktrees"):
        for directory in [*top.glob("work-*"), *top.glob("person*")]:
            shutil.rmtree(directory)
    if place.git("symbolic-ref", "--quiet", "HEAD").startswith(HEADS):
        place.git("checkout", "--quiet", "--detach")


def describe(ended: Ended) -> str:
    return f"exit {ended.code} after {ended.changes} changes {ended.out.decode(errors='replace').strip()[-300:]}"

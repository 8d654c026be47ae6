"""Spaces with behaviours, and random walks over sessions, merges, landings, reverts and changes by plain git."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pygit2

import clia
from clia.errors import CliaError
from clia.git.records import FILE, Stamp, TreeEntry
from clia.testing import components
from clia.values.typed_objects import PROMPT
from support import git
from support.plain_git import git_with_input
from support.spaces import BRIEFING, settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

FLOW = """
def main(input):
    answer = request('human', {'q': input})
    if answer == 'break':
        raise ValueError('broken')
    return answer
"""
CHAINS = "refs/clia/behaviours/"
EVENTS = "refs/clia/events/"
AT = 1_780_000_000
"""The default time of commits by ``commit_to_ref``."""
NAMES = ("ada", "bob", "cleo", "dan")
SIGNATURE = pygit2.Signature("Tess", "tess@example.org", AT, 0)


def observed(space: clia.Space) -> tuple[Any, Any, int]:
    """The statistics, the sums with their commits, and the number of gaps."""
    return space.behaviours.stats(over="day"), components(space).observations.every(), space.behaviours.gaps()


def rebuilt(space: clia.Space) -> tuple[Any, Any, int]:
    """The observations, read again from git."""
    components(space).observations.rebuild()
    return observed(space)


def started(root: Path) -> clia.Space:
    """A space with a user's branch and a flow with two versions, one of them on trial."""
    git("init", "-q", "-b", "main", str(root), cwd=root.parent)
    git("commit", "-q", "--allow-empty", "-m", "start", cwd=root)
    git("branch", "side", cwd=root)
    git("switch", "-q", "-c", "desk", cwd=root)  # so that a landing updates no worktree
    space = clia.init(root, settings=settings())
    space.behaviours.add("review", FLOW, "session-flow")
    second = space.behaviours.propose("review", FLOW + "# with care\n")
    space.behaviours.adopt("review", second.cid, trial=True)
    return space


def check_flow(number: int) -> str:
    """A flow with two requests; each number is another version."""
    return f"def main(input):\n    return [request('check', {number}), request('check', 'more')]\n"


def commit_to_ref(
    space: clia.Space,
    ref: str,
    changes: Mapping[str, bytes | None],
    message: str = "by hand",
    *,
    at: int = AT,
    parents: Sequence[str] | None = None,
) -> str:
    """Commit to a ref as plain git could: its tree with some files changed, by default on top of its tip."""
    objects, refs = components(space).core.objects, components(space).core.refs
    tip = refs.get(ref)
    files = {path: None if data is None else TreeEntry(FILE, objects.write_blob(data)) for path, data in changes.items()}
    tree = objects.update_tree(objects.commit(tip).tree if tip else None, files)
    by = Stamp("Tess", "tess@example.org", at)
    commit = objects.write_commit(tree, ([tip] if tip else []) if parents is None else parents, by, by, message)
    refs.move(ref, tip, commit, "by hand")
    return commit


def spawn_with_prompt(space: clia.Space, agent: str, parent: str | None = None) -> str:
    """Spawn an agent with its own prompt, and return its first commit."""
    space.behaviours.add(agent, f"Look twice, {agent}.", PROMPT)
    briefing = space.behaviours.brief(agent, "work")
    if parent is None:
        space.spawn_at(agent, briefing, "main")
    else:
        space.spawn_from(agent, briefing, parent)
    return space.commit(agent, "finding", changes={f"{agent}.txt": b"1"}, message=agent)


def landed_and_reverted(space: clia.Space, name: str) -> tuple[int, int]:
    """The number of landings of a behaviour, and how many of them were reverted."""
    stats = space.behaviours.stats(name)[0]
    return stats.landed, stats.reverted


def remove_marks(root: Path, name: str) -> None:
    """Rewrite a chain as it was before proposals existed."""
    ref = f"{CHAINS}{name}"
    lines = [line for line in git("ls-tree", ref, cwd=root).splitlines() if not line.endswith("\tadopted")]
    tree = git_with_input(root, "\n".join([*lines, ""]), "mktree")
    git("update-ref", ref, git("commit-tree", tree, "-p", ref, "-m", "as it was", cwd=root).strip(), cwd=root)


class Walk:
    """Random steps; a step that clia refuses does not count."""

    def __init__(self, root: Path, seed: int) -> None:
        self.chance = Random(seed)  # noqa: S311  # the same each time
        self.space = started(root)
        self.repo = pygit2.Repository(str(root))
        self.versions = [version.cid for version in self.space.behaviours.get("review").versions]
        self.number = 0
        self.done: list[str] = []
        for name in NAMES[:2]:
            self.space.spawn(name, BRIEFING)

    def step(self) -> None:
        self.number += 1
        steps = (
            [self.session] * 4
            + [self.commit] * 4
            + [self.merge] * 4
            + [self.land] * 3
            + [self.revert] * 3
            + [self.spawn, self.archive, self.trace, self.trace, self.rewrite, self.rewrite, self.plain]
        )
        chosen = self.chance.choice(steps)
        try:
            chosen()
        except CliaError:
            return
        self.done.append(chosen.__name__)

    def _tip(self, ref: str) -> pygit2.Commit:
        return self.repo.references[ref].peel(pygit2.Commit)

    def agent(self) -> str:
        return self.chance.choice(self.space.agents())

    def spawn(self) -> None:
        name = self.chance.choice(NAMES)
        if self.chance.random() < 0.5:
            self.space.spawn_from(name, BRIEFING, self.agent())
        else:
            self.space.spawn(name, BRIEFING)

    def session(self) -> None:
        name = self.agent()
        if not self.space.pending(name):
            self.space.start(name, self.chance.choice(self.versions), self.number)
            if self.chance.random() < 0.3:
                return
            self.commit(name)
        if self.chance.random() < 0.2:
            self.space.cancel(name)
        else:
            self.space.decide(name, self.chance.choice(["yes", "no", "break", {"approved": True}, [1]]))

    def commit(self, name: str | None = None) -> None:
        outcome = self.chance.choice(["pass", "fail", {"status": "passed"}, 7, None])
        changes = {self.chance.choice(["one", "two", "three"]): b"%d\n" % self.chance.randrange(3)}
        name = name or self.agent()
        if self.chance.random() < 0.4:
            self.space.trace(name, "model", "thought", data={"usage": {"input_tokens": self.number, "output_tokens": 1}})
            self.space.commit_with_trace(name, "test", changes=changes, meta={"outcome": outcome})
        else:
            self.space.commit(name, "test", changes=changes, meta={"outcome": outcome})

    def merge(self) -> None:
        """Sometimes twice, because a refused merge is refused again."""
        into, from_ = self.agent(), self.agent()
        for _ in range(self.chance.choice([1, 1, 2])):
            self.space.merge(into, from_)

    def land(self) -> None:
        squash = self.chance.random() < 0.4
        how = "squash" if squash else self.chance.choice(["merge", "fast-forward"])
        self.space.land(self.agent(), self.chance.choice(["main", "main", "side"]), how=how)

    def revert(self) -> None:
        """With plain git, of a recent commit on the branch, which may be a revert itself."""
        ref = self.chance.choice(["refs/heads/main", "refs/heads/main", "refs/heads/side"])
        tip = self.repo.references[ref].target
        commits = [commit for commit, _ in zip(self.repo.walk(tip), range(8), strict=False)]
        target = self.chance.choice(commits[:3] if self.chance.random() < 0.7 else commits)
        text = f'Revert "something"\n\nThis reverts commit {target.id}.\n'
        self.repo.create_commit(ref, SIGNATURE, SIGNATURE, text, commits[0].tree_id, [tip])

    def archive(self) -> None:
        archived = sorted(set(self.space.agents(archived=True)) - set(self.space.agents()))
        if archived and self.chance.random() < 0.7:
            self.space.agents.restore(archived[0])
        elif len(self.space.agents()) > 2:
            self.space.agents.archive(self.agent())

    def trace(self) -> None:
        entries = [{"kind": "model", "text": f"again {self.number}", "data": {"usage": {"prompt_tokens": 5}}}]
        for commit in self.space.history.own(self.agent())[:1]:
            self.space.traces.attach(commit.cid, entries)

    def rewrite(self) -> None:
        """Reset an agent's or a user's branch with plain git."""
        ref = self.chance.choice([f"refs/heads/agents/{self.agent()}", "refs/heads/main"])
        tip = self._tip(ref)
        if tip.parents:
            self.repo.references[ref].set_target(tip.parents[0].id)

    def plain(self) -> None:
        """Commit on an agent's branch with plain git."""
        ref = f"refs/heads/agents/{self.agent()}"
        tip = self._tip(ref)
        self.repo.create_commit(ref, SIGNATURE, SIGNATURE, "by hand\n", tip.tree_id, [tip.id])

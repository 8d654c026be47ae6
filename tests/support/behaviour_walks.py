"""A space in which behaviours are at work, by chance: sessions, merges, landings, reverts, and what plain git does beside them."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pygit2

import clia
from clia.errors import CliaError
from clia.testing import components
from support import git
from support.spaces import BRIEFING, settings

if TYPE_CHECKING:
    from pathlib import Path

FLOW = """
def main(input):
    answer = request('human', {'q': input})
    if answer == 'break':
        raise ValueError('broken')
    return answer
"""
NAMES = ("ada", "bob", "cleo", "dan")
SIGNATURE = pygit2.Signature("Tess", "tess@example.org", 1_780_000_000, 0)


def observed(space: clia.Space) -> tuple[Any, Any, int]:
    """All that is known: what a person is told, what it is told from with the commits behind it, and the gaps."""
    return space.behaviour_stats(over="day"), components(space).observations.every(), space.observation_gaps()


def rebuilt(space: clia.Space) -> tuple[Any, Any, int]:
    """The same from git, with nothing remembered."""
    components(space).observations.rebuild()
    return observed(space)


def started(root: Path) -> clia.Space:
    """A space with a branch of people, and two versions of a behaviour that both may run."""
    git("init", "-q", "-b", "main", str(root), cwd=root.parent)
    git("commit", "-q", "--allow-empty", "-m", "start", cwd=root)
    git("branch", "side", cwd=root)
    git("switch", "-q", "-c", "desk", cwd=root)  # so that landing moves no worktree
    space = clia.init(root, settings=settings())
    space.add_behaviour("review", FLOW, "session-flow")
    second = space.propose_behaviour("review", FLOW + "# with care\n")
    space.adopt_behaviour("review", second.cid, trial=True)
    return space


class Walk:
    """One step after the other, each by chance; what clia refuses is no step."""

    def __init__(self, root: Path, seed: int) -> None:
        self.chance = Random(seed)  # noqa: S311  # the same each time
        self.space = started(root)
        self.repo = pygit2.Repository(str(root))
        self.versions = [each.cid for each in self.space.behaviour("review").versions]
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
        """Now and then twice: what is refused once is refused again."""
        into, from_ = self.agent(), self.agent()
        for _ in range(self.chance.choice([1, 1, 2])):
            self.space.merge(into, from_)

    def land(self) -> None:
        squash = self.chance.random() < 0.4
        no_ff = self.chance.random() < 0.5
        self.space.land(self.agent(), self.chance.choice(["main", "main", "side"]), squash=squash, no_ff=no_ff)

    def revert(self) -> None:
        """By plain git: of something that is on the branch, often the last but one, which may be a revert itself."""
        ref = self.chance.choice(["refs/heads/main", "refs/heads/main", "refs/heads/side"])
        tip = self.repo.references[ref].target
        there = [each for each, _ in zip(self.repo.walk(tip), range(8), strict=False)]
        target = self.chance.choice(there[:3] if self.chance.random() < 0.7 else there)
        text = f'Revert "something"\n\nThis reverts commit {target.id}.\n'
        self.repo.create_commit(ref, SIGNATURE, SIGNATURE, text, there[0].tree_id, [tip])

    def archive(self) -> None:
        gone = sorted(set(self.space.agents(archived=True)) - set(self.space.agents()))
        if gone and self.chance.random() < 0.7:
            self.space.restore(gone[0])
        elif len(self.space.agents()) > 2:
            self.space.archive(self.agent())

    def trace(self) -> None:
        said = [{"kind": "model", "text": f"again {self.number}", "data": {"usage": {"prompt_tokens": 5}}}]
        for commit in self.space.session_log(self.agent())[:1]:
            self.space.attach_trace(commit.cid, said)

    def rewrite(self) -> None:
        """Plain git sets a branch of an agent, or of people, back."""
        ref = self.chance.choice([f"refs/heads/agents/{self.agent()}", "refs/heads/main"])
        tip = self._tip(ref)
        if tip.parents:
            self.repo.references[ref].set_target(tip.parents[0].id)

    def plain(self) -> None:
        """Plain git commits on an agent's branch."""
        ref = f"refs/heads/agents/{self.agent()}"
        tip = self._tip(ref)
        self.repo.create_commit(ref, SIGNATURE, SIGNATURE, "by hand\n", tip.tree_id, [tip.id])

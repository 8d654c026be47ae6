"""Random histories of people and agents in one repository, whose lines all have a known author.

People and agents share a worktree. A turn of an agent becomes a commit on the agent's branch, as capture records it; files that
the agent found are a baseline commit of the person. People edit, stage parts, commit, amend, squash, rebase, cherry-pick, revert,
merge, reformat, move and rename. Lines are objects, so a merge of two histories is exact: it works on identities, not on texts.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

from clia.git.records import FILE, TreeEntry
from clia.space.model import AGENT, TYPE
from clia.testing import components
from clia.values import refs as names
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import clia

PERSON = ""
COMMON = (b"", b"}", b"    return None", b"else:", b"    pass", b"import os", b"")
"""Lines that people and agents both write."""


class Line:
    """One line. Two lines with the same text are different lines."""

    __slots__ = ("author", "text")

    def __init__(self, text: bytes, author: str) -> None:
        self.text = text
        self.author = author


Files = dict[str, list[Line]]


class Node(NamedTuple):
    """A commit of a person."""

    cid: str
    files: Files
    parents: tuple[Node, ...]


class Verdict(NamedTuple):
    """What a comparison of ``blame`` with the truth found."""

    found: int  # agents' lines that are given to their agent
    missed: list[tuple[str, int, bytes]]  # path, number and text of the others
    stolen: list[tuple[str, int, bytes]]  # lines given to an agent that never wrote them in that path


class RandomHistory:
    """A person's branch and the agents that worked on its files; ``prefix`` keeps paths and agents of one history apart."""

    def __init__(self, space: clia.Space, seed: int) -> None:
        self._space = space
        self._core = components(space).core
        self._random = random.Random(seed)  # noqa: S311  # repeatable, not secret
        self._prefix = f"h{seed}"
        self._agents: dict[str, Files] = {}  # the files that each agent saw last
        self._wrote: dict[str, dict[str, set[bytes]]] = {}  # path, agent, texts without whitespace
        self._names: dict[str, set[str]] = {}  # path, all names that its file has had
        self._number = 0
        self.actions: list[str] = []
        lines = [self._line(PERSON) for _ in range(self._random.randrange(3, 25))]
        self._files: Files = {f"{self._prefix}/main.c": lines}
        self._tip = self._commit(self._files, ())

    @property
    def tip(self) -> Node:
        return self._tip

    def play(self, steps: int) -> None:
        people = (
            *(self._edit, self._edit, self._commit_all, self._commit_all, self._commit_part, self._commit_part),
            *(self._amend, self._squash, self._rebase, self._cherry_pick, self._revert, self._merge, self._squash_merge),
            *(self._reformat, self._move_block, self._rename),
        )
        self._turn()
        for _ in range(steps):
            if not self._files:  # everything was deleted
                self._files = {f"{self._prefix}/main.c": [self._line(PERSON)]}
            action = self._turn if self._random.random() < 0.35 else self._random.choice(people)
            self.actions.append(action.__name__.strip("_"))
            action()
            self._note_lines(PERSON)
        self._commit_all()

    # Lines and files

    def _line(self, author: str) -> Line:
        self._number += 1
        if self._random.random() < 0.25:
            text = self._random.choice(COMMON)
            return Line(text and text + b" // " + self._prefix.encode() if text.strip(b"}") else text, author)
        indent = b"    " * self._random.randrange(3)
        return Line(indent + b"%s_%d = step(%d)" % (self._prefix.encode(), self._number, self._random.randrange(100)), author)

    def _change(self, files: Files, author: str) -> None:
        """Insert, replace and delete lines of one file."""
        path = self._random.choice(sorted(files))
        lines = files[path]
        for _ in range(self._random.randrange(1, 4)):
            at = self._random.randrange(len(lines) + 1)
            kind = self._random.random()
            new = [self._line(author) for _ in range(self._random.randrange(1, 7))]
            if kind < 0.6:
                lines[at:at] = new
            elif kind < 0.85:
                lines[at : at + len(new)] = new
            else:
                del lines[at : at + 2]

    def _copy(self, files: Files) -> Files:
        return {path: list(lines) for path, lines in files.items() if lines}

    # Agents

    def _turn(self) -> None:
        """An agent works; its turn becomes a commit on its branch."""
        if not self._agents or self._random.random() < 0.3:
            name = f"{self._prefix}-{len(self._agents)}"
            self._space.spawn_at(name, BRIEFING, self._tip.cid)
            self._agents[name] = self._tip.files
        name = self._random.choice(sorted(self._agents))
        if _texts(self._agents[name]) != _texts(self._files):
            self._advance(name, baseline=True)
        for _ in range(self._random.randrange(1, 3)):
            kind = self._random.random()
            if kind < 0.15:
                path = f"{self._prefix}/new{self._number}.py"
                self._files[path] = [self._line(name) for _ in range(self._random.randrange(2, 12))]
            elif kind < 0.2:
                path = self._rename()
                # If little of the file is left, git sees a new file, which the agent wrote.
                texts = self._wrote.setdefault(path, {}).setdefault(name, set())
                texts |= {_bare(line.text) for line in self._files[path]}
            else:
                self._change(self._files, name)
        self._note_lines(name)
        self._advance(name, baseline=False)

    def _note_lines(self, author: str) -> None:
        """Remember which texts an author has written to which paths."""
        for path, lines in self._files.items():
            texts = self._wrote.setdefault(path, {}).setdefault(author, set())
            texts |= {_bare(line.text) for line in lines if line.author == author}

    def _advance(self, name: str, *, baseline: bool) -> None:
        core = self._core
        head, tree = core.require_head(name), self._tree(self._files)
        if baseline:
            by = core.person_stamp()
            new = core.objects.write_commit(tree, [head], by, by, "the files when the session started\n")
        else:
            new = core.write_commit(name, tree, [head], "a turn", [(AGENT, name), (TYPE, "finding")], "a turn")
        core.refs.move(names.head(name), head, new, "a turn")
        self._agents[name] = self._copy(self._files)

    def _tree(self, files: Mapping[str, Sequence[Line]]) -> str:
        objects = self._core.objects
        blobs = {path: b"".join(line.text + b"\n" for line in lines) for path, lines in files.items() if lines}
        return objects.update_tree(None, {path: TreeEntry(FILE, objects.write_blob(data)) for path, data in blobs.items()})

    # People

    def _commit(self, files: Files, parents: tuple[Node, ...]) -> Node:
        by = self._core.person_stamp()
        cid = self._core.objects.write_commit(self._tree(files), [node.cid for node in parents], by, by, "a commit\n")
        return Node(cid, self._copy(files), parents)

    def _edit(self) -> None:
        self._change(self._files, PERSON)

    def _reformat(self) -> None:
        """Indent all lines of a file; their authors stay."""
        path = self._random.choice(sorted(self._files))
        self._files[path] = [Line(b"  " + line.text if line.text else b"", line.author) for line in self._files[path]]

    def _move_block(self) -> None:
        lines = self._files[self._random.choice(sorted(self._files))]
        start = self._random.randrange(len(lines)) if lines else 0
        block = lines[start : start + 4]
        del lines[start : start + 4]
        at = self._random.randrange(len(lines) + 1)
        lines[at:at] = block

    def _rename(self) -> str:
        path = self._random.choice(sorted(self._files))
        self._number += 1
        new = f"{self._prefix}/moved{self._number}.c"
        self._files[new] = self._files.pop(path)
        self._names[new] = self._names.setdefault(path, {path})
        self._names[new].add(new)
        return new

    def _commit_all(self) -> None:
        self._tip = self._commit(self._files, (self._tip,))

    def _commit_part(self) -> None:
        """Commit some of the changes, as ``git add -p`` does."""
        staged: Files = {}
        for path, lines in self._files.items():
            old = {id(line) for line in self._tip.files.get(path, ())}
            if not old and self._random.random() < 0.5:
                continue
            takes = self._random.random() < 0.5
            staged[path] = []
            for line in lines:
                if id(line) not in old and self._random.random() < 0.3:
                    takes = not takes
                if id(line) in old or takes:
                    staged[path].append(line)
        # A file that was renamed is committed under its new name or its old one.
        kept = {} if staged.keys() - self._tip.files.keys() else self._tip.files
        if any({**kept, **staged}.values()):
            self._tip = self._commit({**kept, **staged}, (self._tip,))

    def _amend(self) -> None:
        if self._tip.parents:
            self._tip = self._commit(self._files, self._tip.parents)

    def _chain(self, most: int) -> list[Node]:
        """The newest commits that are not merges, the oldest first; not the root."""
        chain: list[Node] = []
        node = self._tip
        while len(chain) < most and len(node.parents) == 1:
            chain.insert(0, node)
            node = node.parents[0]
        return chain

    def _squash(self) -> None:
        chain = self._chain(self._random.randrange(2, 5))
        if chain:
            self._tip = self._commit(self._tip.files, chain[0].parents)

    def _picked(self, node: Node, onto: Node) -> Node:
        return self._commit(_merged(node.parents[0].files, node.files, onto.files), (onto,))

    def _side(self, base: Node) -> Node:
        """A commit of another person."""
        files = self._copy(base.files)
        if files:
            self._change(files, PERSON)
        return self._commit(files or base.files, (base,))

    def _rebase(self) -> None:
        chain = self._chain(self._random.randrange(1, 4))
        if chain:
            new = self._side(chain[0].parents[0])
            for node in chain:
                new = self._picked(node, new)
            self._switch(new)

    def _cherry_pick(self) -> None:
        chain = self._chain(4)
        if len(chain) > 1:
            new = self._side(chain[0].parents[0])
            for node in self._random.sample(chain, self._random.randrange(1, len(chain) + 1)):
                new = self._picked(node, new)
            self._switch(new)

    def _revert(self) -> None:
        chain = self._chain(1)
        if chain:
            before = chain[0].parents[0].files
            if any(before.values()):
                self._switch(self._commit(before, (self._tip,)))

    def _merge(self) -> None:
        chain = self._chain(3)
        if chain:
            side = self._side(chain[0].parents[0])
            files = _merged(chain[0].parents[0].files, side.files, self._tip.files)
            self._switch(self._commit(files, (self._tip, side)))

    def _squash_merge(self) -> None:
        """Merge the work since a commit as one new commit, on top of another person's."""
        chain = self._chain(4)
        if chain:
            base = chain[0].parents[0]
            onto = self._side(base)
            self._switch(self._commit(_merged(base.files, self._tip.files, onto.files), (onto,)))

    def _switch(self, node: Node) -> None:
        """Make a commit the tip, and carry uncommitted changes over."""
        self._files = _merged(self._tip.files, self._files, node.files)
        self._tip = node
        if not self._files:
            self._files = self._copy(node.files)

    # The truth

    def verdict(self) -> Verdict:
        """Compare ``blame`` of the tip's files with the authors of their lines."""
        self._note_lines(PERSON)
        found, missed, stolen = 0, [], []
        for path, lines in self._tip.files.items():
            for line, blamed in zip(lines, self._space.blame(self._tip.cid, path), strict=True):
                place = (path, blamed.number, line.text)
                claimed = blamed.agent is not None and self._has_written(path, blamed.agent, line.text)
                if blamed.agent is not None and not claimed:
                    stolen.append(place)
                if line.author != PERSON and (claimed or self._has_written(path, PERSON, line.text)):
                    found += 1  # of two equal lines, one of a person, either may be the new one
                elif line.author != PERSON:
                    missed.append(place)
        return Verdict(found, missed, stolen)

    def _has_written(self, path: str, agent: str, text: bytes) -> bool:
        return any(_bare(text) in self._wrote.get(name, {}).get(agent, ()) for name in self._names.get(path, {path}))


def _bare(text: bytes) -> bytes:
    return b"".join(text.split())


def _texts(files: Files) -> dict[str, list[bytes]]:
    return {path: [line.text for line in lines] for path, lines in files.items() if lines}


def _merged(base: Files, theirs: Files, ours: Files) -> Files:
    """Apply the change from ``base`` to ``theirs`` to our files, line by line."""
    files: Files = {}
    for path in sorted({*ours, *theirs}):
        if path in base and path not in theirs:
            continue
        lines = _merged_lines(base.get(path, []), theirs.get(path, []), ours.get(path, []))
        if lines:
            files[path] = lines
    return files


def _merged_lines(base: list[Line], theirs: list[Line], ours: list[Line]) -> list[Line]:
    present, before = {id(line) for line in theirs}, {id(line) for line in base}
    merged = [line for line in ours if id(line) in present or id(line) not in before]
    at = 0
    for line in theirs:
        position = next((number for number, other in enumerate(merged) if other is line), None)
        if position is not None:
            at = position + 1
        elif id(line) not in before:
            merged.insert(at, line)
            at += 1
    return merged

"""Generate a large space: the objects and refs that the verbs would have written, as packs.

A space is a function of its size. ``plan`` lists the operations with their times; ``replay`` runs them with the verbs, ``generate``
writes their result, and a test checks that both give the same refs. The space builds its index from git; the few sessions are
started by the verb.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import zlib
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import clia
from clia.space.core import AGENT_EMAIL
from clia.space.model import AGENT, BRIEFING, EVENT, PARENT, TYPE
from clia.values import commit_messages as messages
from clia.values import refs
from clia.values.canonical import canonical_bytes
from clia.values.clock import timestamp
from clia.values.typed_objects import ConsoleTrace, trace_digest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COMMITS, ENTRIES, FAMILY, REVIEWS = 10, 10, 100, 10
"""Commits and trace entries per agent; agents of one family, descendants of its first; one agent in this many reviews."""
TRACED: tuple[int, ...] = (5, 9)
"""The commits of an agent that have a trace, counted from its genesis."""
PERSON = ("Bench", "bench@example.org")
BEGIN, STEP = 1_767_225_600, 30  # 2026-01-01; seconds from one action of the space to the next
PART = 10_000  # agents of one pack
_EMPTY = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
_CODES = {b"commit": 1, b"tree": 2, b"blob": 3}


def name_of(number: int) -> str:
    return f"agent-{number:06}"


def parent_of(number: int) -> int | None:
    """The parent of an agent: each has three children within its family; None for the first, which starts at the main branch."""
    place = number % FAMILY
    return None if place == 0 else number - place + (place - 1) // 3


def reviewed_by(number: int, size: int) -> int | None:
    return (number + 1) % size if number % REVIEWS == 0 and size > 1 else None


def at(step: int, number: int, size: int) -> int:
    """The time of a step: agents take turns, so that the newest commits belong to many agents."""
    return BEGIN + (step * size + number) * STEP


def kind_of(number: int, step: int) -> str:
    return ("finding", "finding", "test", "refactor")[(number + step) % 4]


def briefing_of(number: int) -> clia.Briefing:
    return clia.Briefing(f"Look into part {number}", f"Find out what part {number} does, and write it down.\n")


def work_of(number: int, step: int) -> bytes:
    """The file after a step: one step in three changes it; the others only add trace entries."""
    last = step - step % 3
    return b"Part %d, as seen in step %d.\n" % (number, last) + b"".join(b"line %d\n" % (number + line) for line in range(last))


def message_of(number: int, step: int) -> str:
    return f"{kind_of(number, step)}: part {number}, step {step}"


def said_of(number: int, step: int) -> list[str]:
    """The trace entries of an agent before a commit with a trace."""
    share = ENTRIES // len(TRACED)
    return [f"$ look --part {number} --step {step}\npart {number}: {part} of {share} looked at" for part in range(share)]


def _create(path: Path, settings: clia.Settings) -> None:
    """An empty space that does not sign: the same commits have the same ids each time, and packs are written without a key."""
    clia.init(path, settings=settings).close()
    for ref in subprocess.run(
        ["git", "-C", str(path), "for-each-ref", "--format=%(refname)", "refs/clia/keys", "refs/clia/log"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split():
        subprocess.run(["git", "-C", str(path), "update-ref", "-d", ref], check=True)
    shutil.rmtree(path / ".git" / "clia" / "signing")


# With verbs


def replay(path: Path, size: int) -> clia.Space:
    """The same space, created by the verbs."""
    now = [BEGIN]
    settings = clia.Settings(durable=False, person=PERSON, clock=lambda: datetime.fromtimestamp(now[0], UTC))
    _create(path, settings)
    space = clia.open(path, settings=settings)
    base = _Base(path)
    for number in range(size):
        now[0] = at(0, number, size)
        parent = parent_of(number)
        if parent is None:
            space.spawn_at(name_of(number), briefing_of(number), base.commit)
        else:
            space.spawn_from(name_of(number), briefing_of(number), name_of(parent))
    for step in range(1, COMMITS):
        for number in range(size):
            now[0] = at(step, number, size)
            for text in said_of(number, step) if step in TRACED else ():
                space.trace(name_of(number), "console", text)
            space.commit_with_trace(
                name_of(number),
                kind_of(number, step),
                changes={"work.md": work_of(number, step)},
                message=message_of(number, step),
            )
    for number in range(size):
        reviewed = reviewed_by(number, size)
        if reviewed is not None:
            now[0] = at(COMMITS, number, size)
            space.relations.add_review(name_of(number), name_of(reviewed))
    return space


# As packs


def generate(path: Path, size: int) -> None:
    """Write the space without a store: the index is built when it is first opened."""
    settings = clia.Settings(durable=False, person=PERSON, clock=lambda: datetime.fromtimestamp(BEGIN, UTC))
    _create(path, settings)
    base = _Base(path)
    git_dir = str(path / ".git")
    parts = [(git_dir, base.tree, base.commit, first, min(first + PART, size), size) for first in range(0, size, PART)]
    if len(parts) == 1:
        written = [_part(parts[0])]
    else:
        with ProcessPoolExecutor(2) as pool:
            written = list(pool.map(_part, parts))
    subprocess.run(["git", "-C", git_dir, "pack-refs", "--all"], check=True)
    _add_packed(git_dir, [ref for lines in written for ref in lines])


class _Base:
    """The main branch with a few files, from which agents start."""

    def __init__(self, path: Path) -> None:
        pack = _Objects()
        readme, code = pack.add(b"blob", b"# Parts\n"), [pack.add(b"blob", b"part = %d\n" % index) for index in range(20)]
        folder = pack.add(b"tree", b"".join(_entry("100644", f"part{index:02}.py", cid) for index, cid in enumerate(code)))
        self.entries = _entry("100644", "README.md", readme) + _entry("40000", "src", folder)
        self.tree = pack.add(b"tree", self.entries)
        by = _stamp(*PERSON, BEGIN)
        self.commit = pack.add(b"commit", _commit(self.tree, [], by, by, "Parts\n"))
        git_dir = path / ".git"
        pack.write(str(git_dir))
        subprocess.run(["git", "-C", str(git_dir), "update-ref", "refs/heads/main", self.commit], check=True)


class Written(NamedTuple):
    """A ref and what it points at."""

    ref: str
    cid: str


def _part(task: tuple[str, str, str, int, int, int]) -> list[Written]:
    """The pack of some families."""
    git_dir, tree, commit, first, end, size = task
    pack = _Objects()
    base = _raw_tree(git_dir, tree)
    pack.add(b"tree", b"")
    written: list[Written] = []
    genesis: dict[int, tuple[str, str]] = {}
    for number in range(first, end):
        written += _agent(pack, number, size, (tree, commit, base), genesis, git_dir.split("/")[-2])
    pack.write(git_dir)
    return written


def _agent(
    pack: _Objects, number: int, size: int, base: tuple[str, str, bytes], genesis: dict[int, tuple[str, str]], repository: str
) -> Iterator[Written]:
    """One agent's commits, record, traces and events."""
    name, parent = name_of(number), parent_of(number)
    briefing = pack.add(b"blob", canonical_bytes(briefing_of(number).to_object()))
    by, when = _stamp(name, AGENT_EMAIL.format(name), at(0, number, size)), _stamp(*PERSON, at(0, number, size))
    place = pack.add(b"blob", canonical_bytes({"type": "place", "repository": repository, "submodule": "", "path": ""}))
    record = pack.add(b"tree", _entry("100644", "briefing.json", briefing) + _entry("100644", "place.json", place))
    text = messages.compose(f"record of {name}", [(AGENT, name), (TYPE, "record")], "record")
    yield Written(refs.record(name), pack.add(b"commit", _commit(record, [], by, when, text)))
    trailers = [(AGENT, name), (TYPE, "spawn"), (BRIEFING, briefing)] + ([(PARENT, name_of(parent))] if parent is not None else [])
    text = messages.compose(f"spawn: {briefing_of(number).title}", trailers, "spawn")
    start = base[1] if parent is None else genesis[parent][0]
    head = pack.add(b"commit", _commit(base[0], [start], by, when, text))
    genesis[number] = (head, base[0])
    notes = _Notes(pack)
    for step in range(1, COMMITS):
        head = _step(pack, notes, (number, step, size), (head, briefing, base[2]))
    yield Written(refs.head(name), head)
    yield Written(refs.traces(name), notes.tip)
    reviewed = reviewed_by(number, size)
    if reviewed is not None:
        yield Written(refs.events(name), _review(pack, name, name_of(reviewed), at(COMMITS, number, size)))


def _step(pack: _Objects, notes: _Notes, position: tuple[int, int, int], on: tuple[str, str, bytes]) -> str:
    number, step, size = position
    parent, briefing, base = on
    name, when = name_of(number), at(step, number, size)
    work = pack.add(b"blob", work_of(number, step))
    tree = pack.add(b"tree", base + _entry("100644", "work.md", work))
    moment = timestamp(datetime.fromtimestamp(when, UTC))
    texts = said_of(number, step) if step in TRACED else ()
    entries = tuple({"at": moment, "kind": "console", "text": text} for text in texts)
    trailers = [(AGENT, name), (TYPE, kind_of(number, step)), (BRIEFING, briefing)]
    trailers += [(messages.TRACE, trace_digest(entries))] if entries else []
    text = messages.compose(message_of(number, step), trailers, "")
    by, person = _stamp(name, AGENT_EMAIL.format(name), when), _stamp(*PERSON, when)
    head = pack.add(b"commit", _commit(tree, [parent], by, person, text))
    if entries:
        trace = pack.add(b"blob", canonical_bytes(ConsoleTrace(head, name, entries).to_object()))
        notes.bind(head, trace, person, f"{kind_of(number, step)}: note of {head}\n")
    return head


def _review(pack: _Objects, name: str, reviewed: str, when: int) -> str:
    body = {"event": "edge", "src": name, "kind": "reviews", "dst": reviewed}
    text = messages.compose(f"relate: {name} reviews {reviewed}", [(EVENT, canonical_bytes(body).decode())], "event")
    return pack.add(b"commit", _commit(_EMPTY, [], _stamp(name, AGENT_EMAIL.format(name), when), _stamp(*PERSON, when), text))


class _Notes:
    """The notes of an agent, in the layout of our writer: few notes, so folders of two hex digits."""

    def __init__(self, pack: _Objects) -> None:
        self._pack = pack
        self._bound: dict[str, dict[str, str]] = {}
        self.tip = ""

    def bind(self, commit: str, blob: str, by: bytes, message: str) -> None:
        self._bound.setdefault(commit[:2], {})[commit[2:]] = blob
        folders = [
            (name, self._pack.add(b"tree", b"".join(_entry("100644", path, cid) for path, cid in sorted(notes.items()))))
            for name, notes in sorted(self._bound.items())
        ]
        tree = self._pack.add(b"tree", b"".join(_entry("40000", name, cid) for name, cid in folders))
        self.tip = self._pack.add(b"commit", _commit(tree, [self.tip] if self.tip else [], by, by, message))


class _Objects:
    """The objects of one pack."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()
        self._parts: list[bytes] = []

    def add(self, kind: bytes, data: bytes) -> str:
        digest = hashlib.sha1(b"%s %d\0" % (kind, len(data)), usedforsecurity=False)
        digest.update(data)
        if digest.digest() not in self._seen:
            self._seen.add(digest.digest())
            self._parts.append(_header(_CODES[kind], len(data)) + zlib.compress(data, 1))
        return digest.hexdigest()

    def write(self, git_dir: str) -> None:
        data = b"".join([b"PACK", (2).to_bytes(4, "big"), len(self._parts).to_bytes(4, "big"), *self._parts])
        data += hashlib.sha1(data, usedforsecurity=False).digest()
        words = ["git", "-C", git_dir, "index-pack", "--stdin", "--threads=1"]
        subprocess.run(words, input=data, check=True, stdout=subprocess.DEVNULL)


def _header(code: int, size: int) -> bytes:
    first, size = (code << 4) | (size & 15), size >> 4
    data = bytearray()
    while size:
        data.append(first | 0x80)
        first, size = size & 0x7F, size >> 7
    data.append(first)
    return bytes(data)


def _entry(mode: str, name: str, cid: str) -> bytes:
    return f"{mode} {name}\0".encode() + bytes.fromhex(cid)


def _stamp(name: str, email: str, when: int) -> bytes:
    return f"{name} <{email}> {when} +0000".encode()


def _commit(tree: str, parents: list[str], author: bytes, committer: bytes, message: str) -> bytes:
    above = "".join(f"parent {parent}\n" for parent in parents)
    return f"tree {tree}\n{above}".encode() + b"author %s\ncommitter %s\n\n" % (author, committer) + message.encode()


def _raw_tree(git_dir: str, tree: str) -> bytes:
    return subprocess.run(["git", "-C", git_dir, "cat-file", "tree", tree], check=True, stdout=subprocess.PIPE).stdout


def _add_packed(git_dir: str, written: list[Written]) -> None:
    """Write the refs packed, as after maintenance."""
    path = os.path.join(git_dir, "packed-refs")
    with open(path, encoding="ascii") as file:
        header, *present = file.read().splitlines()
    lines = sorted([*present, *(f"{entry.cid} {entry.ref}" for entry in written)], key=lambda line: line[41:])
    with open(path, "w", encoding="ascii") as file:
        file.write("\n".join([header, *lines]) + "\n")

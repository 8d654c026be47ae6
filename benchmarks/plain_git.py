"""A person's own git beside a space with 5,000 agents, against the same repository without clia.

``packed``: after upkeep. ``between upkeeps``: just before the number of ref moves that starts the next one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING, NamedTuple

import clia
from benchmarks import growth_space
from benchmarks.growth_space import PERSON, generate, name_of
from benchmarks.measure import Row, attempted, command, in_turns
from benchmarks.places import place
from clia.facade.opening import MOVES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.measure import NotRun

AGENTS, AGENT_COMMITS, PERSON_COMMITS = 5_000, 4, 2_000
COMMANDS: dict[str, tuple[str, ...]] = {
    "status": ("status",),
    "log": ("log", "-20", "--decorate", "--oneline"),
    "graph": ("log", "--graph", "--all", "-200", "--oneline"),
    "branch": ("branch", "-a"),
    "fetch": ("fetch",),
    "push": ("push", "--quiet", "--dry-run"),
    "name-rev": ("name-rev", "HEAD~50"),
    "contains": ("tag", "--contains", "HEAD~150"),
    "refs": ("for-each-ref",),
}
_PACKED, _BETWEEN = "packed", "between"


class _Repositories(NamedTuple):
    plain: Path
    packed: Path
    between: Path


def rows(rounds: int) -> Iterator[Row | NotRun]:
    keys = [f"git-{name}-{state}" for name in COMMANDS for state in (_PACKED, _BETWEEN)]
    with place(disk=True) as top:
        repositories = _prepare(top)
        yield from attempted(keys, lambda: _commands(repositories, rounds))
        yield from attempted(["git-clone", "git-commits"], lambda: _sizes(repositories, top))


def _commands(repositories: _Repositories, rounds: int) -> Iterator[Row]:
    for name, words in COMMANDS.items():
        works = [command(["git", "-C", str(path), *words]) for path in repositories]
        floor, packed, between = in_turns(works, rounds, repetitions=3)
        yield Row(f"git-{name}-{_PACKED}", packed, floor)
        yield Row(f"git-{name}-{_BETWEEN}", between, floor)


def _sizes(repositories: _Repositories, top: Path) -> Iterator[Row]:
    yield Row("git-clone", _cloned(repositories.packed, top / "with"), _cloned(repositories.plain, top / "without"))
    yield Row("git-commits", _commits(repositories.packed), _commits(repositories.plain))


def _cloned(path: Path, to: Path) -> int:
    """Bytes of a clone's objects and refs."""
    _git(path, "clone", "--quiet", "--bare", f"file://{path}", str(to))
    places = (to / "objects", to / "refs", to / "packed-refs")
    files = [file for item in places for file in ([item] if item.is_file() else item.rglob("*")) if file.is_file()]
    return sum(file.stat().st_size for file in files)


def _commits(path: Path) -> int:
    return int(_git(path, "rev-list", "--all", "--count"))


def _prepare(top: Path) -> _Repositories:
    """The three repositories, with a remote that has the person's branch."""
    plain, packed, between = (top / name for name in ("plain", _PACKED, _BETWEEN))
    _write_person(plain)
    shared = top / "shared.git"
    _git(top, "clone", "--quiet", "--bare", str(plain), str(shared))
    _git(plain, "remote", "add", "origin", str(shared))
    _git(plain, "fetch", "--quiet", "origin")
    _git(plain, "branch", "--quiet", "--set-upstream-to=origin/main")
    shutil.copytree(plain, packed, symlinks=True)
    before = growth_space.COMMITS, growth_space.TRACED
    growth_space.COMMITS, growth_space.TRACED = AGENT_COMMITS, (AGENT_COMMITS - 1,)
    try:
        generate(packed, AGENTS)
    finally:
        growth_space.COMMITS, growth_space.TRACED = before
    _git(packed, "update-ref", "refs/heads/main", "refs/remotes/origin/main")  # the generated space has another main branch
    with _space(packed) as space:
        space.maintain()
    shutil.copytree(packed, between, symlinks=True)
    _git(between, "config", "clia.upkeep", "false")
    with _space(between) as space:
        for number in range((MOVES - 1) // 2):  # a commit with its trace moves two refs
            name = name_of(AGENTS - 1 - number)
            space.trace(name, "console", "$ make\nok")
            space.commit_with_trace(name, "finding", changes={"work.md": b"more\n"}, message="finding: more")
    return _Repositories(plain, packed, between)


def _space(path: Path) -> clia.Space:
    return clia.open(path, settings=clia.Settings(durable=False, person=PERSON))


def _write_person(path: Path) -> None:
    """A branch with a tag, packed; git starts no gc of its own."""
    _git(path.parent, "init", "--quiet", "--initial-branch=main", str(path))
    for key, value in (("user.name", PERSON[0]), ("user.email", PERSON[1]), ("gc.auto", "0")):
        _git(path, "config", key, value)
    stream = []
    for number in range(PERSON_COMMITS):
        data = b"line %d\n" % number * 20
        stream.append(
            b"commit refs/heads/main\ncommitter P <p@example.org> %d +0000\ndata 4\nwork\n" % (1_700_000_000 + number * 60)
            + b"M 644 inline src/file%d\ndata %d\n%s\n" % (number % 50, len(data), data)
        )
    _git(path, "fast-import", "--quiet", data=b"".join(stream))
    _git(path, "reset", "--quiet", "--hard")
    _git(path, "tag", "v1", "HEAD~100")
    _git(path, "gc", "--quiet")


def _git(path: Path, *words: str, data: bytes = b"") -> bytes:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    words = ("git", "-C", str(path), *words)
    return subprocess.run(words, input=data, env=environment, check=True, stdout=subprocess.PIPE).stdout

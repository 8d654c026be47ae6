"""A person's own git beside a space with 5,000 agents, against the same repository without clia.

- ``packed``: after ``clia maintain``.
- ``between upkeeps``: after several upkeeps in the background, just before the number of loose refs that starts the next one.
- ``with a hub``: after ``clia maintain`` in a clone that has tracking refs of all agents.

Processor time: other processes change the time that a command of a millisecond takes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import clia
from benchmarks import growth_space
from benchmarks.growth_space import PERSON, generate, name_of
from benchmarks.measure import Row, attempted, cheapest_in_turns, command, fastest_in_turns, timed
from benchmarks.places import place
from clia.facade.opening import MOVES
from clia.git.records import Stamp
from clia.space.upkeep import RECENT
from clia.testing import components
from clia.trust.log_writer import LogWriter
from clia.trust.machine_keys import machine_key_of
from clia.trust.machine_log import LogEntry, LoggedMove
from clia.trust.superseded_logs import SupersededLogs
from clia.values import refs as names

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.measure import NotRun

AGENTS, AGENT_COMMITS, PERSON_COMMITS = 5_000, 4, 2_000
_APPENDED = 100  # moves that are logged at once
UPKEEPS, _AT_WORK = 12, 6  # upkeeps in the background, and agents that work before each
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
_PACKED, _BETWEEN, _HUB = "packed", "between", "hub"
PUBLISHED = ("refs/heads/agents/*", "refs/clia/*", "refs/notes/clia/*")


class _Repositories(NamedTuple):
    plain: Path
    packed: Path
    between: Path
    hub: Path


def rows(rounds: int) -> Iterator[Row | NotRun]:
    keys = [f"git-{name}-{state}" for name in COMMANDS for state in (_PACKED, _BETWEEN, _HUB)]
    with place(disk=True) as top:
        repositories = _prepare(top)
        yield from attempted(keys, lambda: _commands(repositories, rounds))
        yield from attempted(["git-clone", "git-commits"], lambda: _sizes(repositories, top))
        yield from attempted(["publish", "publish-again"], lambda: _publish(repositories.packed, top, rounds))


def _commands(repositories: _Repositories, rounds: int) -> Iterator[Row]:
    for name, words in COMMANDS.items():
        works = [command(["git", "-C", str(path), *words]) for path in repositories]
        floor, *times = cheapest_in_turns(works, rounds, repetitions=5)
        for state, cost in zip((_PACKED, _BETWEEN, _HUB), times, strict=True):
            yield Row(f"git-{name}-{state}", cost, floor)


def _sizes(repositories: _Repositories, top: Path) -> Iterator[Row]:
    yield Row("git-clone", _cloned(repositories.packed, top / "with"), _cloned(repositories.plain, top / "without"))
    yield Row("git-commits", _commits(repositories.packed), _commits(repositories.plain))


def _publish(path: Path, top: Path, rounds: int) -> Iterator[Row]:
    """Publish all agents; the floor pushes the same refs from a repository that has them all."""
    every, remotes = top / "every.git", [top / "published.git", top / "pushed.git"]
    for bare in (every, *remotes):
        _git(top, "init", "--quiet", "--bare", str(bare))
    for source in (path / ".git/clia/archive.git", path):
        _git(every, "fetch", "--quiet", str(source), *(f"+{refs}:{refs}" for refs in PUBLISHED))
    _git(path, "remote", "add", "all", str(remotes[0]))
    with _space(path) as space:
        agents = [*space.agents(), *space.agents(archived=True)]
        works = [
            lambda: space.publish(agents, "all"),
            lambda: _git(every, "push", "--quiet", str(remotes[1]), *(f"{refs}:{refs}" for refs in PUBLISHED)),
        ]
        first, first_floor = (timed(work) for work in works)  # the second time there is nothing new
        yield Row("publish", first, first_floor)
        again, again_floor = fastest_in_turns(works, rounds)
        yield Row("publish-again", again, again_floor)
    published = [set(_git(remote, "for-each-ref").splitlines()) for remote in remotes]
    assert published[0] <= published[1], "not everything was published"
    assert len(published[0]) > 3 * AGENTS


def _cloned(path: Path, to: Path) -> int:
    """Bytes of a clone's objects and refs."""
    _git(path, "clone", "--quiet", "--bare", f"file://{path}", str(to))
    places = (to / "objects", to / "refs", to / "packed-refs")
    files = [file for item in places for file in ([item] if item.is_file() else item.rglob("*")) if file.is_file()]
    return sum(file.stat().st_size for file in files)


def _commits(path: Path) -> int:
    return int(_git(path, "rev-list", "--all", "--count"))


def _prepare(top: Path) -> _Repositories:
    """The repositories, with a remote that has the person's branch."""
    plain, packed, between, hub = (top / name for name in ("plain", _PACKED, _BETWEEN, _HUB))
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
    _log_moves(packed)
    with _space(packed) as space:
        space.maintain()
    for copy in (between, hub):
        shutil.copytree(packed, copy, symlinks=True)
    _age(between)
    _work_until_upkeep(between)
    _track(hub)
    with _space(hub) as space:
        space.maintain()
    return _Repositories(plain, packed, between, hub)


def _log_moves(path: Path) -> None:
    """Write what the log of the machine has after as many verbs."""
    with _space(path) as space:
        git = components(space).git
        machine = machine_key_of(git)
        machine.make()  # a generated space is not signed
        writer = LogWriter(git, machine, SupersededLogs(git, os.path.join(git.handle.common_dir, "clia", "signing")))
        for start in range(0, AGENTS * AGENT_COMMITS, _APPENDED):
            by = Stamp(*PERSON, growth_space.BEGIN + start * growth_space.STEP)
            moves = (LoggedMove(*_move(number)) for number in range(start, start + _APPENDED))
            writer.append(machine.name(), [LogEntry(None, by.at, (move,)) for move in moves], by)


def _move(number: int) -> tuple[str, str, str, str]:
    return names.head(name_of(number % AGENTS)), f"{number:040x}", f"{number + 1:040x}", "clia: finding"


def _track(path: Path) -> None:
    """Add the tracking refs of a hub that has the same refs, packed."""
    with _space(path) as space:
        refs = dict(components(space).git.refs.under("refs/"))
    refs |= {names.tracking("hub", ref): cid for ref, cid in refs.items() if names.is_shared(ref) or ref.startswith(names.LOGS)}
    ref_names = [*_git(path, "for-each-ref", "--format=%(refname)").decode().split(), *(ref for ref in refs if "tracking" in ref)]
    lines = (f"{refs[ref]} {ref}\n" for ref in sorted(ref_names) if ref in refs)
    (path / ".git/packed-refs").write_text(f"# pack-refs with: sorted \n{''.join(lines)}")


def _age(path: Path) -> None:
    """Let agents work and become idle, with an upkeep each time."""
    for number in range(UPKEEPS):
        at = datetime.now(UTC) - timedelta(hours=UPKEEPS - number)
        with _space(path, at) as space:
            for turn in range(_AT_WORK):
                _work(space, name_of(number * _AT_WORK + turn))
        with _space(path, at + timedelta(seconds=RECENT)) as space:
            space.local.upkeep()


def _work(space: clia.Space, name: str) -> None:
    space.trace(name, "console", "$ make\nok")
    space.commit_with_trace(name, "finding", changes={"work.md": b"more\n"}, message="finding: more")


def _work_until_upkeep(path: Path) -> None:
    """Commit as one agent after the other, until the next commit would start upkeep."""
    loose: list[str] = []
    with _space(path) as space:
        for number in range(AGENTS):
            name = name_of(AGENTS - 1 - number)
            components(space).git.refs.counted = partial(loose.append, name)
            _work(space, name)
            if len(loose) + loose.count(name) >= MOVES:
                return


def _space(path: Path, at: datetime | None = None) -> clia.Space:
    clock = None if at is None else lambda: at
    return clia.open(path, settings=clia.Settings(durable=False, person=PERSON, clock=clock))


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

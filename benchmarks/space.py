"""A space, against plain libgit2, raw SQL, and stock git."""

from __future__ import annotations

import hashlib
import itertools
import sqlite3
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pygit2

import clia
from benchmarks.measure import REPETITIONS, Row, attempted, beside, in_turns
from benchmarks.places import place
from benchmarks.works import GIT, GIT_NOTES, LIBGIT2_NOTES, NAIVE
from clia.git.notes import CROWDED
from clia.git.records import FILE, Stamp, TreeEntry
from clia.store.interface import Edge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from benchmarks.measure import NotRun

FILES, NOTES, MANY_NOTES, EDGES = 1_000, 1_000, 100_000, 20_000
WRITERS, COMMITS = 40, 10
BY = Stamp("bench", "bench@example.org", 0)
SIGNATURE = pygit2.Signature(*BY)
TREE = {f"src/pkg{number % 20}/mod{number}.py": b"line %d\n" % number * 20 for number in range(FILES)}
CHANGED = "src/pkg3/mod3.py"


def rows(rounds: int) -> Iterator[Row | NotRun]:
    # libgit2 has one durability setting per process, which a durable space turns on permanently.
    with place() as quick:
        yield from attempted(["commit"], lambda: [_commits(quick / "commits", rounds, durable=False)])
        yield from attempted(["note", "note-many"], lambda: _notes(quick / "notes", rounds))
        yield from attempted(["descendants"], lambda: [_descendants(quick / "edges", rounds)])
    with place(disk=True) as durable:
        yield from attempted(["commit-durable"], lambda: [_commits(durable / "commits", rounds, durable=True)])
        yield from attempted(["lost-each", "parallel-each"], lambda: _parallel(durable, shared=False))
        yield from attempted(["lost-one", "parallel-one"], lambda: _parallel(durable, shared=True))


def _commits(top: Path, rounds: int, *, durable: bool) -> Row:
    space = clia.init(top / "ours", settings=clia.Settings(durable=durable, person=("Bench", "bench@example.org")))
    space.spawn("scout", clia.Briefing("bench"))
    space.commit("scout", "finding", TREE)
    count = itertools.count()

    def ours() -> None:
        space.commit("scout", "finding", TREE | {CHANGED: b"new %d\n" % next(count)})

    peers = {GIT: _stock_git(top / "git", count, durable=durable), NAIVE: _naive(top / "naive", count)}
    (cost, floor), theirs = beside([ours, _libgit2(top / "floor", count)], peers, rounds, REPETITIONS)
    return Row("commit-durable" if durable else "commit", cost, floor, theirs)


def _libgit2(path: Path, count: Iterator[int]) -> Callable[[], None]:
    repo = pygit2.init_repository(str(path))
    index = pygit2.Index()
    for name, data in TREE.items():
        index.add(pygit2.IndexEntry(name, repo.create_blob(data), pygit2.enums.FileMode.BLOB))
    head = [repo.create_commit("refs/heads/x", SIGNATURE, SIGNATURE, "start", index.write_tree(repo), [])]

    def commit() -> None:
        blob = repo.create_blob(b"new %d\n" % next(count))
        index.add(pygit2.IndexEntry(CHANGED, blob, pygit2.enums.FileMode.BLOB))
        head[0] = repo.create_commit(None, SIGNATURE, SIGNATURE, "next", index.write_tree(repo), [head[0]])
        repo.references["refs/heads/x"].set_target(head[0])

    return commit


def _naive(path: Path, count: Iterator[int]) -> Callable[[], None]:
    """A checkout that is written and read completely for each commit; nothing is cached."""
    repo = pygit2.init_repository(str(path))
    head: list[Any] = []

    def commit() -> None:
        for name, data in (TREE | {CHANGED: b"new %d\n" % next(count)}).items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(data)
        index = pygit2.Index()
        for name in TREE:
            blob = repo.create_blob_fromworkdir(name)
            index.add(pygit2.IndexEntry(name, blob, pygit2.enums.FileMode.BLOB))
        head[:] = [repo.create_commit(None, SIGNATURE, SIGNATURE, "next", index.write_tree(repo), head)]
        repo.references.create("refs/heads/x", head[0], force=True)

    return commit


def _stock_git(path: Path, count: Iterator[int], *, durable: bool) -> Callable[[], None]:
    for name, data in TREE.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    git = ["git", "-c", f"core.fsync={'all' if durable else 'none'}", "-c", "user.name=b", "-c", "user.email=b@example.org"]

    def run(*words: str) -> None:
        subprocess.run([*git, *words], cwd=path, check=True, stdout=subprocess.DEVNULL)

    run("init", "-q")
    run("add", "-A")
    run("commit", "-qm", "start")

    def commit() -> None:
        (path / CHANGED).write_bytes(b"new %d\n" % next(count))
        run("add", "-A")
        run("commit", "-qm", "next")

    return commit


def _notes(top: Path, rounds: int) -> Iterator[Row]:
    few, many = (_noted(top / name, count) for name, count in (("few", NOTES), ("many", MANY_NOTES)))
    own, theirs = _plain_writer(top / "floor"), _libgit2_notes(top / "peer")
    (at_few, at_many, floor), measured = beside([few, many, own], {LIBGIT2_NOTES: theirs}, rounds * 2, REPETITIONS)
    yield Row("note", at_few, floor, measured)
    yield Row("note-many", at_many, at_few)


def _ids() -> Iterator[str]:
    """Ids with the uniform distribution of commit ids."""
    return (hashlib.sha1(b"%d" % number, usedforsecurity=False).hexdigest() for number in itertools.count())


def _noted(path: Path, count: int) -> Callable[[], None]:
    """A space with this many notes in the layout that they would have grown to; each call binds one more."""
    space = clia.init(path, settings=clia.Settings(durable=False, person=("Bench", "bench@example.org")))
    core = space.core
    blob = core.objects.write_blob(b"{}")
    commits = _ids()
    sizes: dict[str, int] = {}
    entries: dict[str, TreeEntry | None] = {}
    for commit in itertools.islice(commits, count):
        sizes[commit[:2]] = sizes.get(commit[:2], 0) + 1
        crowded = sizes[commit[:2]] > CROWDED
        entries[f"{commit[:2]}/{commit[2:4]}/{commit[4:]}" if crowded else f"{commit[:2]}/{commit[2:]}"] = TreeEntry(FILE, blob)
    tree = core.objects.update_tree(None, entries)
    ref = "refs/notes/clia/trace/scout"
    core.refs.move(ref, None, core.objects.write_commit(tree, [], BY, BY, "notes\n"), "bench")
    subprocess.run(["git", "repack", "-adq"], cwd=path, check=True)
    for number in range(256):  # packing has removed them; a repository in use has them
        (path / ".git/objects" / f"{number:02x}").mkdir(exist_ok=True)
    texts = itertools.count()

    def bind() -> None:
        core.notes.bind(ref, next(commits), core.objects.write_blob(b"%d" % next(texts)), BY, "bench\n")

    return bind


def _plain_writer(path: Path) -> Callable[[], None]:
    """The minimal cost of a note: a blob, two trees, a commit and a ref."""
    repo = pygit2.init_repository(str(path))
    commits = _ids()
    tip: list[Any] = [None]

    def bind() -> None:
        commit = next(commits)
        root = repo[tip[0]].tree if tip[0] else None
        inner: Any = root[commit[:2]] if root is not None and commit[:2] in root else None
        folder = repo.TreeBuilder(inner) if inner is not None else repo.TreeBuilder()
        folder.insert(commit[2:], repo.create_blob(commit.encode()), FILE)
        top = repo.TreeBuilder(root) if root is not None else repo.TreeBuilder()
        top.insert(commit[:2], folder.write(), 0o040000)
        parents = [tip[0]] if tip[0] else []
        tip[0] = repo.create_commit(None, SIGNATURE, SIGNATURE, "note", top.write(), parents)
        if parents:
            repo.references["refs/notes/x"].set_target(tip[0])
        else:
            repo.references.create("refs/notes/x", tip[0])

    for _ in range(NOTES):
        bind()
    return bind


def _libgit2_notes(path: Path) -> Callable[[], None]:
    """libgit2's own notes, in one flat tree."""
    repo = pygit2.init_repository(str(path))
    blobs = (str(repo.create_blob(b"annotated %d" % number)) for number in itertools.count())

    def bind() -> None:
        repo.create_note("{}", SIGNATURE, SIGNATURE, next(blobs), "refs/notes/x", False)

    for _ in range(NOTES):
        bind()
    return bind


def _descendants(path: Path, rounds: int) -> Row:
    space = clia.init(path, settings=clia.Settings(durable=False))
    store = space.core.store
    edges = [Edge(f"a{number // 3}", "sub-agent-of", f"a{number + 1}", f"{number:040x}", "bench") for number in range(EDGES)]
    edges.append(Edge(f"a{EDGES}", "sub-agent-of", "a0", "f" * 40, "bench"))
    with store.writing() as transaction:
        transaction.edges.add(edges)
    raw = sqlite3.connect(":memory:")
    raw.execute("CREATE TABLE edges (src TEXT, dst TEXT)")
    raw.executemany("INSERT INTO edges VALUES (?, ?)", [(edge.src, edge.dst) for edge in edges])
    raw.execute("CREATE INDEX by_src ON edges (src, dst)")
    query = (
        "WITH RECURSIVE reached(name) AS (SELECT dst FROM edges WHERE src = 'a0' UNION "
        "SELECT dst FROM edges JOIN reached ON src = name) SELECT name FROM reached ORDER BY name"
    )

    def ours() -> None:
        with store.reading() as view:
            assert len(view.edges.reachable("a0", "sub-agent-of")) == EDGES + 1

    cost, floor = in_turns([ours, lambda: raw.execute(query).fetchall()], rounds)
    return Row("descendants", cost, floor)


WRITER = """
import sys, clia
from clia.errors import StaleRef
path, name, number, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
space = clia.open(path)
print("ready", flush=True)
sys.stdin.readline()
for each in range(count):
    space.commit(name, "finding", changes={f"w{number}": str(each).encode()})
"""


def _parallel(top: Path, *, shared: bool) -> Iterator[Row]:
    """40 concurrent processes must not lose anything. The time is per commit, over all processes."""
    which = "one" if shared else "each"
    path = top / f"parallel-{which}"
    with clia.init(path, settings=clia.Settings(person=("Bench", "bench@example.org"))) as space:
        for number in range(1 if shared else WRITERS):
            space.spawn(f"w{number}", clia.Briefing("bench"))
        elapsed = race(path, shared=shared)
        written = sum(len(space.history.own(name)) - 1 for name in space.agents())
        alone = _alone(space)
    wanted = WRITERS * COMMITS
    theirs, ended_well = _lost_notes(top / f"git-{which}", shared=shared)
    note = f"{wanted - written} of our {wanted} commits lost; {GIT_NOTES}: {theirs} of {WRITERS} notes, {ended_well} exited with 0"
    yield Row(f"lost-{which}", (wanted - written) / wanted * 100, 0, {GIT_NOTES: theirs / WRITERS * 100}, note)
    yield Row(f"parallel-{which}", elapsed / written, alone)


def race(path: Path, *, shared: bool) -> float:
    """The milliseconds in which 40 processes make their commits, on one agent or on one each."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), "w0" if shared else f"w{number}", str(number), str(COMMITS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(WRITERS)
    ]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()  # it has opened the space
    started = time.perf_counter()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.wait() for process in processes] == [0] * WRITERS
    return (time.perf_counter() - started) * 1000


def _alone(space: clia.Space) -> float:
    count = itertools.count()
    return in_turns([lambda: space.commit("w0", "finding", changes={"alone": b"%d" % next(count)})], 100)[0]


def _lost_notes(path: Path, *, shared: bool) -> tuple[int, int]:
    """Run 40 parallel `git notes add`: how many notes were lost, and how many commands reported success."""
    path.mkdir()
    git = ["git", "-c", "user.name=b", "-c", "user.email=b@example.org"]
    subprocess.run([*git, "init", "-q"], cwd=path, check=True)
    blobs = []
    for number in range(WRITERS):
        (path / "file").write_text(str(number))
        process = subprocess.run([*git, "hash-object", "-w", "file"], cwd=path, check=True, capture_output=True, text=True)
        blobs.append(process.stdout.strip())
    refs = ["x" if shared else f"x{number}" for number in range(WRITERS)]
    racing = [
        subprocess.Popen([*git, "notes", f"--ref={ref}", "add", "-m", "note", blob], cwd=path, stderr=subprocess.DEVNULL)
        for ref, blob in zip(refs, blobs, strict=True)
    ]
    ended_well = [process.wait() for process in racing].count(0)
    objects = 0
    for ref in set(refs):
        listed = subprocess.run([*git, "notes", f"--ref={ref}", "list"], cwd=path, check=False, capture_output=True, text=True)
        objects += len(listed.stdout.splitlines())
    return WRITERS - objects, ended_well

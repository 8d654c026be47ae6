"""Real coding tools: the installed packages, and a person's computer on which they run against the fake model.

Invariant: a tool has its own home, dummy keys and no other network than the loopback. The packages are installed by
``tools/test_tools.py``, which names their folder in ``CLIA_TEST_TOOLS``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import clia as library
from clia.users.service import users_of
from support import git
from support.forge_server import PERSON, Api, ForgeProcess
from support.space_driver import settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.model_server import ModelServer

PACKAGES = "CLIA_TEST_TOOLS"
DEADLINE = 300.0
"""Seconds for one run of a tool: far more than any needs, so that a busy machine fails no test."""
CLIA = Path(sys.executable).parent / "clia"
_INHERITED = ("LANG", "LC_ALL", "TMPDIR", "TERM")


class Ended(NamedTuple):
    """A run of a tool that ended."""

    code: int
    out: str
    err: str


class Computer:
    """A person's computer: a home, a repository that is a space, and tools that use the fake model."""

    def __init__(self, folder: Path, model: ModelServer, *, with_clia: bool = True) -> None:
        self.model, self.home, self.root = model, folder / "home", folder / "shop"
        self.packages = Path(os.environ[PACKAGES])
        self.programs = folder / "bin"
        for directory in (self.home, self.root, self.programs):
            directory.mkdir(parents=True)
        if with_clia:
            (self.programs / "clia").symlink_to(CLIA)
        self.path = [self.programs, self.packages / "node", Path("/usr/local/bin"), Path("/usr/bin"), Path("/bin")]
        self.variables: dict[str, str] = {}
        self.write(".gitconfig", "[user]\n\tname = Tess\n\temail = tess@example.org\n[init]\n\tdefaultBranch = main\n")
        git("init", "--quiet", "--initial-branch=main", "--template=", cwd=self.root)
        (self.root / "stock.txt").write_text("apples 3\n")
        git("add", "stock.txt", cwd=self.root)
        git("commit", "--quiet", "--message=Stock", cwd=self.root)
        library.init(self.root, settings=settings()).close()

    def add_program(self, name: str, package: str) -> None:
        """Put one of the installed packages on the path; an older version's name ends in ``-older``."""
        program = self.packages / "bin" / package
        assert program.exists(), program
        (self.programs / name).symlink_to(program)

    def write(self, name: str, text: str) -> None:
        """Write a file in the home."""
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def environment(self) -> dict[str, str]:
        proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), self.model.url)
        local = dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        own = {"HOME": str(self.home), "PATH": os.pathsep.join(map(str, self.path)), "GIT_CONFIG_NOSYSTEM": "1", "SHELL": "/bin/sh"}
        return inherited | proxies | local | own | self.variables

    def install(self, tool: str, *words: str) -> None:
        """Install the hooks as a person does, and commit the settings."""
        self.clia("hook", "install", tool, "--yes", *words)
        for command in (["add", "--all"], ["commit", "--quiet", "--message=Hooks"]):
            assert self.run(["git", *command]).code == 0

    def clia(self, *words: str, cwd: Path | None = None) -> str:
        done = self.run([str(CLIA), *words], cwd=cwd)
        assert done.code == 0, done
        return done.out

    def start(self, command: list[str], cwd: Path | None = None) -> subprocess.Popen[str]:
        """Start a program without input, in a separate process group."""
        return subprocess.Popen(
            command,
            cwd=cwd or self.root,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, command: list[str], cwd: Path | None = None) -> Ended:
        return finish(self.start(command, cwd))

    def record(self) -> Record:
        """Ingest what waits, and read the record."""
        self.clia("ingest")
        return read_record(self.root)

    def sessions(self) -> int:
        """The number of sessions that hooks have recorded."""
        with library.open(self.root, settings=settings()) as space:
            return sum(not captured.sub for captured in space.captures.sessions())

    def wait_for(self, condition: Callable[[Record], bool]) -> Record:
        """Ingest until the record is as expected."""
        end = time.monotonic() + DEADLINE
        while not condition(record := self.record()):
            assert time.monotonic() < end, record
        return record


class Forge(NamedTuple):
    """The forge of a computer's space, and a person who answers questions in it."""

    api: Api

    def questions(self) -> list[dict[str, Any]]:
        """What people have not answered, the oldest first."""
        questions: list[dict[str, Any]] = self.api.done("GET", "/api/v1/spaces/shop/pending")["items"]
        return questions

    def wait_for_questions(self, *processes: subprocess.Popen[str]) -> list[dict[str, Any]]:
        """The questions that agents ask while their programs run, one each."""
        end = time.monotonic() + DEADLINE
        while len(questions := self.questions()) < len(processes):
            for process in processes:
                assert process.poll() is None, finish(process)
            assert time.monotonic() < end
            time.sleep(0.1)  # the forge limits the requests of a minute
        return questions

    def answer(self, question: dict[str, Any], value: str) -> None:
        answer = self.api.decide(question, value, space="shop")
        assert answer.status == 200, answer


@contextmanager
def serving(computer: Computer) -> Iterator[Forge]:
    """A forge for the space of a computer."""
    with library.open(computer.root, settings=settings()) as space:
        users = users_of(space)
        users.add("tess", "admin", *PERSON)
        token = users.make_token("tess")[0]
    with ForgeProcess(computer.root) as process:
        yield Forge(Api(process.address, token))


def finish(process: subprocess.Popen[str]) -> Ended:
    """Wait until a program has ended."""
    try:
        out, err = process.communicate(timeout=DEADLINE)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"no end after {DEADLINE} seconds: {out[-3000:]}\n{err[-3000:]}") from None
    return Ended(process.returncode, out, err)


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a program with all that it started, as a crash does."""
    os.killpg(process.pid, 9)
    process.communicate()


# The record


class AgentRecord(NamedTuple):
    """What is recorded of one agent."""

    name: str
    commits: list[tuple[str, set[str]]]  # its own, oldest first: subject and files that changed
    entries: list[tuple[str, str]]  # kind and text of its trace entries
    merged: set[str]  # the sub-agents that it merged

    @property
    def kinds(self) -> Counter[str]:
        return Counter(kind for kind, _ in self.entries)

    def texts(self, kind: str) -> list[str]:
        return [text for entry_kind, text in self.entries if entry_kind == kind]

    @property
    def changes(self) -> list[tuple[str, set[str]]]:
        """Its commits that changed files; others have only a trace."""
        return [(subject, files) for subject, files in self.commits if files]

    @property
    def files(self) -> set[str]:
        """All files that its commits changed."""
        return set().union(*(files for _, files in self.commits))


class Record(NamedTuple):
    """All agents of a space; those of sub-agents in ``subs``, by the name of their starter."""

    agents: dict[str, AgentRecord]
    subs: dict[str, list[str]]
    parents: dict[str, str | None]  # the agent that one was started or forked from
    sessions: list[Any]

    def only(self) -> AgentRecord:
        """The one agent that no other started."""
        started = {name for names in self.subs.values() for name in names}
        (name,) = set(self.agents) - started
        return self.agents[name]

    def sub_agents(self, of: AgentRecord) -> list[AgentRecord]:
        return [self.agents[name] for name in self.subs.get(of.name, ())]


def read_record(root: Path) -> Record:
    with library.open(root, settings=settings()) as space:
        assert space.verify().clean
        agents, subs, parents = {}, {}, {}
        forked = {edge.src: edge.dst for edge in space.relations() if edge.kind == "forked-from"}
        for state in space.states():
            name = state.agent
            commits = [commit for commit in reversed(space.log(name)) if commit.agent == name and not is_baseline(commit.message)]
            changes = [(commit.message.splitlines()[0], _changed(root, commit.cid)) for commit in commits]
            agents[name] = AgentRecord(name, changes, _entries(space, name), set(space.relations.merged(name)))
            subs[name] = space.relations.sub_agents(name)
            parents[name] = space.relations.parent(name) or forked.get(name)
        return Record(agents, subs, parents, list(space.captures.sessions()))


def is_baseline(message: str) -> bool:
    """Whether a commit has the files that a session or a turn found, which are not its work."""
    return message.startswith(("the files when the session started", "the files when the turn started"))


def _entries(space: library.Space, agent: str) -> list[tuple[str, str]]:
    bound = [entry for trace in reversed(space.traces.of_agent(agent)) for entry in trace.trace.entries]
    return [(str(entry["kind"]), str(entry.get("text", ""))) for entry in [*bound, *space.traces.pending(agent)]]


def _changed(root: Path, commit: str) -> set[str]:
    """The files that a commit changed against its first parent."""
    words = ("-r", "-z", "--name-only", "--no-commit-id", "-m", "--first-parent", "--root")
    return set(filter(None, git("diff-tree", *words, commit, cwd=root).split("\0")))


# What belongs to the person


class PersonalState(NamedTuple):
    head: str
    branches: str
    staged: str
    config: str


def personal_state(root: Path) -> PersonalState:
    """What capture must not change: HEAD, branches, tags, stash, index and configuration."""
    refs = git("for-each-ref", "--format=%(refname) %(objectname)", cwd=root).splitlines()
    own = "\n".join(
        ref for ref in refs if not ref.startswith(("refs/heads/agents/", "refs/clia/", "refs/clia-local/", "refs/notes/clia/"))
    )
    head = git("rev-parse", "--symbolic-full-name", "HEAD", cwd=root) + git("rev-parse", "HEAD", cwd=root)
    return PersonalState(head, own, git("ls-files", "--stage", cwd=root), (root / ".git/config").read_text())


@contextmanager
def untouched(root: Path, created: str = "") -> Iterator[None]:
    """Check that nothing of the person's changes in this block but the files that the tool writes.

    ``created``: the tool itself creates branches that begin like this.
    """
    before = personal_state(root)
    yield
    after = personal_state(root)
    own = [ref for ref in after.branches.splitlines() if not created or not ref.startswith(f"refs/heads/{created}")]
    assert after._replace(branches="\n".join(own)) == before
    git("fsck", "--strict", "--no-dangling", cwd=root)


def json_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def write_rules(computer: Computer, *rules: dict[str, Any]) -> None:
    """State the rules in the root directives, which hold for every agent."""
    home = computer.root / ".clia" / "agents" / "root"
    home.mkdir(parents=True)
    document = {"slug": "root", "guardrails": [{"text": "A person decides about deploys.", "rules": list(rules)}]}
    (home / "root@shop.agent.triad.json").write_text(json.dumps(document))
    for command in (["add", "--all"], ["commit", "--quiet", "--message=Rules"]):
        assert computer.run(["git", *command]).code == 0

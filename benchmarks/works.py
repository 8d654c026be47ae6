"""All measured works: floor, peers and bars.

This is the whole table. A work without a result keeps its line, with the reason; a result without a work here is refused. Bars are
maximum values: of the ratio to the floor or to a peer, or of the cost itself.
"""

from __future__ import annotations

from typing import NamedTuple

FLOOR, COST = "floor", "cost"
LANGGRAPH, DBOS, ABSURD = "LangGraph, SQLite", "DBOS, PostgreSQL", "Absurd, PostgreSQL"
FORK_LANGGRAPH, FORK_DBOS = "LangGraph, in the same thread only", "DBOS, until the fork waits"
IMPORT_LANGGRAPH = "import langgraph"
GIT, NAIVE = "git add -A && git commit", "libgit2, rewriting every file"
GIT_NOTES, LIBGIT2_NOTES = "git notes add", "libgit2 create_note"
BARE, PARSED, WALK, LANES = "python -c pass", "json.loads of the same files", "libgit2's walk over them", "lanes of clia graph"
MONTY = "Monty + SQLite"
_SDK = "import of the MCP SDK"
_ENGINES = (LANGGRAPH, DBOS, ABSURD)
_ALONE, _PAGE, _SIGNATURES = "a single one without listeners", "the shortest answer, same login", "bare Ed25519 verifications"


class Bar(NamedTuple):
    most: float
    against: str = FLOOR  # the floor, a peer's name, or the cost itself, in the work's unit


class Work(NamedTuple):
    key: str
    title: str
    floor: str
    bars: tuple[Bar, ...] = ()
    peers: tuple[str, ...] = ()
    unit: str = "ms"


_WITHOUT, _PATTERNS = "the same repository without clia", "git push of the same refs, by patterns"
_PLAIN_GIT = {
    "status": "git status",
    "log": "git log -20 --decorate",
    "graph": "git log --graph --all -200",
    "branch": "git branch -a",
    "fetch": "git fetch, nothing new",
    "push": "git push, nothing to push",
    "name-rev": "git name-rev",
    "contains": "git tag --contains",
    "refs": "git for-each-ref",
}
_STATES = (("packed", "packed", Bar(1.2)), ("between", "between upkeeps", Bar(2)), ("hub", "with a hub", Bar(1.2)))
_HALF_OF_GIT = (Bar(1.5), Bar(0.5, GIT))
_TRIP = "start, suspend, resume on a fresh handle"

TABLE: dict[str, tuple[Work, ...]] = {
    "space": (
        Work("commit", "commit, 1,000 files as a value, one changed", "libgit2, incremental", _HALF_OF_GIT, (GIT, NAIVE)),
        Work(
            "commit-durable",
            "commit, 1,000 files as a value, one changed, fsync on",
            "libgit2, incremental",
            _HALF_OF_GIT,
            (GIT, NAIVE),
        ),
        Work("note", "bind a trace note, 1,000 there", "one-level writer on libgit2", (Bar(1.5),), (LIBGIT2_NOTES,)),
        Work("note-many", "bind a trace note, 100,000 there", "ours at 1,000", (Bar(1.5),)),
        Work("lost-each", "40 processes, a ref each: lost", "nothing", (Bar(0, COST),), (GIT_NOTES,), "%"),
        Work("lost-one", "40 processes on one ref: lost", "nothing", (Bar(0, COST),), (GIT_NOTES,), "%"),
        Work("parallel-each", "a durable commit of 40 processes, a ref each", "one process alone", (Bar(1.5),)),
        Work("parallel-one", "a durable commit of 40 processes on one ref", "one process alone", (Bar(1.5),)),
        Work("descendants", "descendants over 20,000 edges with a cycle", "recursive SQL in memory", (Bar(60, COST),)),
    ),
    "plain_git": (
        *(
            Work(f"git-{name}-{state}", f"{title}, 5,000 agents, {label}", _WITHOUT, (bar,))
            for name, title in _PLAIN_GIT.items()
            for state, label, bar in _STATES
        ),
        Work("git-clone", "git clone: size, 5,000 agents, packed", _WITHOUT, (Bar(1.05),), (), "B"),
        Work("git-commits", "git log --all: commits, 5,000 agents, packed", _WITHOUT, (Bar(1.2),), (), "commits"),
        Work("publish", "clia publish --all, 5,000 agents, to an empty remote", _PATTERNS, (Bar(2),)),
        Work("publish-again", "clia publish --all, 5,000 agents, nothing new", _PATTERNS, (Bar(5),)),
    ),
    "trust": (
        Work("signed-commit", "commit with signature and log entry", "the same, unsigned", (Bar(1.25),)),
        Work("signed-writers", "a durable commit of 40 processes, signed and logged", "the same, unsigned", (Bar(1 / 0.9),)),
        Work("verify-first", "verify 2,000 commits the first time", _SIGNATURES, (Bar(1200, COST),)),
        Work("verify-again", "verify the same, nothing new", _SIGNATURES, (Bar(20, COST),)),
        Work("verify-since", "verify the same since a checkpoint of now", _SIGNATURES),
        Work("proofs", "verify 1,000 decisions with passkeys", _SIGNATURES, (Bar(2000, COST),)),
        Work("checkpoint", "checkpoint of 200 agents, besides the commit before it", "the commit", (Bar(100, COST),)),
    ),
    "attribution": (
        Work("attribute", "find an agent's 1,000 lines in a person's commit", "record the turn and the commit", (Bar(20, COST),)),
        Work("blame", "blame, 5,000 lines, 2,000 commits with attribution", "git blame", (Bar(2),)),
    ),
    "sessions": (
        Work("round-trip", _TRIP, MONTY, (Bar(1.5), Bar(1 / 3, LANGGRAPH)), _ENGINES),
        Work("round-trip-durable", f"{_TRIP}, fsync on", MONTY, (Bar(1.5),), (LANGGRAPH,)),
        Work("round-trip-replayed", "the same, no run kept: replayed from the store", MONTY),
        Work("round-trip-end", "start, suspend, resume to the end: an event in git", MONTY),
        Work("resumes", "1,000 resumes of one session, one after the other", MONTY, (Bar(1.5),), _ENGINES),
        Work("resumes-flat", "the last 100 of 1,000 resumes", "our first 100", (Bar(1.3),), _ENGINES),
        Work("fan-out", "an answer while 3,000 requests of the session are pending", "with 300 pending", (Bar(1.5),)),
        Work("fan-out-store", "bytes of such an answer in the store", "with 300 pending", (Bar(2),), (), "B"),
        Work("fan-out-notes", "bytes of such an answer in git, a commit after every tenth", "with 300 pending", (Bar(2),), (), "B"),
        Work("fork", "fork after 100 resumes, besides the branch", "the branch", (Bar(3, COST),), (FORK_LANGGRAPH, FORK_DBOS)),
        Work("pending", "list 10,000 pending requests", "SELECT and json.loads", (Bar(60, COST),), (LANGGRAPH, ABSURD)),
        Work("bytes", "bytes of a suspended session in the store", f"{MONTY}, the dump", (), _ENGINES, "B"),
    ),
    "lineage": (
        Work("profile", "merged profile, 20 levels, 200 submodules", PARSED, (Bar(5, COST),)),
        Work("profile-all", "merged profile, plan and agency of the same", PARSED, (Bar(35, COST),)),
        Work("cold-profile", "cold start: clia agents profile --json", BARE, (Bar(5),), (IMPORT_LANGGRAPH,)),
        Work("cold-version", "cold start: clia --version", BARE, (Bar(5),), (IMPORT_LANGGRAPH,)),
    ),
    "hooks": (
        Work("cold-hook", "cold hook: clia hook claude-code, 4 kB", BARE, (Bar(2.5),), (IMPORT_LANGGRAPH,)),
        Work("cold-hook-large", "cold hook, an event of 1 MB", BARE),
        Work("hook-baseline", "hook at a prompt, which waits for its ingest", "clia ingest", (Bar(1.5),)),
        Work("ingest-turn", "ingest a turn of 42 events and a file", "git commit"),
    ),
    "prompts": (Work("prompts-p95", "answer of a person to one of 200 waiting tools: p95", "a single one", (Bar(300, COST),)),),
    "mcp": (
        Work("mcp-start", "start of clia mcp: initialize and tools/list", _SDK, (Bar(400, COST), Bar(0.5))),
        Work("mcp-start-first", "the same after an installation", _SDK),
        Work("mcp-call", "the same, and a first call (agents)", _SDK),
    ),
    "graph": (
        Work("graph", "graph of 5,000 commits, page's server time", f"{WALK}, packed", (Bar(150, COST),)),
        Work("graph-layout", "graph of 5,000 commits, its layout alone", LANES),
        Work("graph-collapsed", "graph of 5,000 commits, its layout collapsed", LANES),
        Work("graph-whole", "graph of 5,000 commits, its whole picture instead of 200 rows", LANES),
    ),
    "forge": (
        Work("forge-p99", "decide under 200 listeners and 20 deciders: p99", f"{_ALONE}: p99"),
        Work("forge-p50", "decide under 200 listeners and 20 deciders: p50", f"{_ALONE}: p50"),
        Work("page-overview", "page: overview of 100 agents", _PAGE),
        Work("page-inbox", "page: inbox of 100 questions", _PAGE),
        Work("page-graph", "page: graph of 5,000 commits, cached", _PAGE),
    ),
    "federation": (
        Work("announcements", "check 1,000 announcements", _SIGNATURES, (Bar(3),)),
        Work("announcements-gate", "check 1,000 announcements, and ask the gate about each", _SIGNATURES),
        Work("sync", "sync of 1,000 agents with one change each", "git fetch of the same heads", (Bar(5),)),
        Work("sync-nothing", "sync with nothing new", "the same fetch of 1,000 heads"),
    ),
    "behaviours": (
        Work("stats-rebuild", "rebuild the statistics of 100,100 commits, 11,111 traces", WALK, (Bar(25),)),
        Work("stats", "stats of a behaviour over them, from the index", WALK, (Bar(100, COST),)),
        Work("stats-weekly", "stats of all behaviours over them by week", WALK, (Bar(100, COST),)),
        Work("suggest", "suggest, with supporting commits", WALK, (Bar(100, COST),)),
        Work("stats-after", "commit once more, and stats again", "that commit alone"),
    ),
    "hub": (
        Work("hub-commit", "commit over a hub", "git fetch, git push --atomic of one ref", (Bar(1.5),)),
        Work("hub-trace", "commit with its trace over a hub", "git fetch, git push --atomic of two refs", (Bar(1.5),)),
        Work("hub-spawn", "spawn over a hub", "git fetch, git push --atomic of two refs", (Bar(1.5),)),
    ),
    "gate": (
        Work("gate-push", "gate: what it adds to a push of 10 commits", "git push of the same, without it", (Bar(100, COST),)),
    ),
    "workers": (
        Work("workers-1", "a session by 1 worker, hub and PostgreSQL", "one process without workers"),
        Work("workers-2", "a session by 2 workers on 2 machines", "1 worker"),
        Work("workers-3", "a session by 3 workers on 3 machines", "1 worker"),
    ),
}


def work_of(key: str) -> Work:
    return next(work for works in TABLE.values() for work in works if work.key == key)

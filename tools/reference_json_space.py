"""What the commands of a space print with ``--json``: real output on a small space that is made for it.

Invariant: ids, times and sizes, which differ from run to run, are replaced by made-up ones; everything else is as it was printed.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shlex
import subprocess
import tempfile
from contextlib import chdir, contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clia.cli import main

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

_COMMIT = {
    "cid": "the commit",
    "parents": "its parents",
    "tree": "its tree",
    "agent": "who made it; null: people did",
    "kind": "its kind; null as above",
    "message": "without trailers",
    "author": "the agent",
    "committer": "the accountable person",
    **{f"{who}.{key}": told for who in ("author", "committer") for key, told in (("name", "name"), ("email", "address"))},
    **{f"{who}.at": "seconds since the epoch" for who in ("author", "committer")},
    "briefing": "id of its briefing",
    "profile": "id of its profile, or null",
    "behaviour": "id of the flow whose session was live, else of its prompt, or null",
    "parent": "in a spawn: whose sub-agent",
    "merged": "in a session-merge: whose session",
    "landed": "in a landing: whose work",
    "range": "in a landing: `base..head`",
    "decisions": "in a landing: ids of decisions",
    "request": "in a decision: the request that it answers",
    "tag": "in a decision: the request's tag, if it has one",
    "value": "in a decision: the answer, as JSON text",
    "by": "in a decision: who decided",
    "forked": "in a spawn by `session fork`: the run that was copied",
    "own": "in an adopted commit: the original that a program made itself",
    "kept": "commits that the program made and left, for example by amending them; `refs/clia/own` keeps them",
    "meta": "open fields",
}
_HUB = {
    "remote": "what git calls the hub here",
    "address": "where it is, without any password",
    "heads": "where it keeps agents' heads: `branches` or `published`",
    "clone": "the id of this clone",
    "shared_store": "whether all machines have one store",
    "away_since": "since when it cannot be reached, or null",
    "away_reason": "why, or null",
    "refs": "how many refs here are shared",
    "owed": "refs that the hub has not as they are here",
    "behind": "refs that are newer at the hub, as far as it was read",
    "forks": "agents that went on here and there: objects with `agent`, `base`, `ours`, `theirs`, and how many commits only we "
    "(`ahead`) and only the hub (`behind`) have",
    "elsewhere": "work that other machines have not published: objects with `agent`, `clone` and `since`",
}
_CONFLICTS = {
    "into": "who takes the work in; with `land` the branch",
    "from": "whose work",
    "ours": "the head of the one",
    "theirs": "the head of the other",
    "paths": "what both changed",
    "paths[].path": "the path",
    **{
        f"paths[].{side}": f"{told}; null: no such file"
        for side, told in (("base", "content before"), ("ours", "content of `into`"))
    },
    "paths[].theirs": "content of `from`; null: no such file",
}
_FILES = {
    "files": "the files that changed",
    "files[].status": "`A`, `D`, `M`, `R`, `C` or `T`, as git says",
    "files[].path": "the path",
    "files[].old_path": "of a renamed file, or null",
    "files[].added": "lines; null: a binary file",
    "files[].removed": "lines; null: a binary file",
}
_ENTRY = {
    "at": "when",
    "kind": "of the entry",
    "text": "without secrets; `data` beside it where a program gave some; `cut` where it was cut: how many characters it had",
    "redacted": "how many secrets were taken out; only where some were",
}
_EDGE = {
    "src": "who",
    "kind": "does what",
    "dst": "to whom",
}
TOLD: dict[str, dict[str, str]] = {
    "Init": {
        "space": "the space's id",
        "path": "the repository",
        "created": "false: it was there, or came from a remote",
        "adopted": "refs that were taken over",
        "adopted[].ref": "the ref",
        "adopted[].what": "`new`, `ahead`, `united`, or `diverged`: left alone",
        "adopted[].cid": "the commit that the remote has",
        "remotes": "the remotes",
        "remotes[].name": "name",
        "remotes[].fetch": "what `git fetch` brings of the space",
        "hub": "as `clia hub status`; null: there is none",
        "published": "refs that the hub did not have, and has now",
        "moved": "what `--store` took along from the store beside the repository: live `sessions`, entries of pending `traces`, "
        "`users`; null: nothing was there to be moved",
    },
    "Spawn": {
        "agent": "the agent",
        "branch": "its branch",
        "briefing": "id of its briefing",
        "genesis": "its first commit",
        "profile": "id of its profile; null: lineage does not know it",
    },
    "Commit": {
        "commit": "the new commit",
        "parent": "the head before",
        "agent": "who",
        "kind": "the kind",
        "traced": "how many entries were bound to it",
        "adopted": "commits of the agent for those that a program made itself in the directory, oldest first",
        "kept": "commits that the program made and left, for example by amending them; `refs/clia/own` keeps them",
    },
    "Checkout": {"agent": "the agent", "directory": "the worktree", "commit": "what it stands on"},
    "Merge": {"result": "`merged`, `up-to-date` (then with `head`) or `conflicts`", "cid": "the session-merge commit"},
    "Conflicts": {"result": "`conflicts`; the exit code is 1", **_CONFLICTS},
    "Land": {
        "result": "`landed`, `up-to-date` (then with `head`) or `conflicts` (then as [above](#conflicts))",
        "cid": "the branch's new head",
        "how": "`fast-forward`, `merge` or `squash`",
        "warnings": "worktrees that have the branch checked out and could not be brought along, and what to do",
    },
    "Publish": {"ref": "the ref", "state": "`new`, `moved`, `same` or `refused`", "reason": "why it was refused"},
    "Agents": {
        "agent": "the agent",
        "head": "its newest commit",
        "kind": "of that commit",
        "subject": "of that commit",
        "at": "seconds since the epoch",
        "pending": "how many entries of its trace wait",
        "landed": "the branch that holds all of its work, or null",
    },
    "Log": {
        **_COMMIT,
        "trace": "with `--trace`: the entries of its trace",
        **{f"trace[].{key}": told for key, told in _ENTRY.items()},
    },
    "Show an agent": {
        "agent": "the agent",
        "archived": "whether it is archived",
        "branch": "its branch; null: it is archived",
        "head": "its newest commit",
        "genesis": "its first commit; null: not in this clone",
        "parent": "whose sub-agent it is",
        "sub_agents": "its own",
        "briefing": "what it was spawned from",
        "briefing.title": "in a line",
        "briefing.text": "in full",
        "briefing.behaviour": "id of the prompt it was made from, or null",
        "briefing.meta": "open fields, or null",
        "profile": "as merged when it was spawned, or null",
        "pending": "how many entries of its trace wait",
        "landings": "newest first",
        "landings[].event": "`landed`",
        "landings[].onto": "the branch",
        "landings[].cid": "its new head",
        "landings[].head": "the agent's head then",
        "landings[].base": "the branch's head before",
        "landings[].how": "`fast-forward`, `merge` or `squash`",
        "session": "the live [session](#session-start), else the last one; null: it never had one",
        "asks": "open [questions](#ask) beside its session",
    },
    "Show a commit": {
        **_COMMIT,
        **_FILES,
        "trace": "null: none is bound to it",
        "trace.cid": "id of the trace",
        "trace.entries": "how many entries it has",
    },
    "Diff": {"patch": "the patch; null with `--stat`", **_FILES},
    "Blame": {
        "number": "of the line",
        "text": "the line",
        "commit": "where it comes from",
        "agent": "who wrote it; null: people did",
        "kind": "of the commit",
        "briefing": "id of the briefing",
        "behaviour": "id of the prompt, or null",
        "trace": "id of the trace, or null",
    },
    "Tree": {"agent": "the agent", "archived": "whether it is archived", "parents": "above it", "children": "below it"},
    "Graph": {
        "nodes": "commits, newest first",
        "nodes[].id": "the commit",
        "nodes[].lane": "its column, from 0",
        "nodes[].agent": "who made it; null: people did",
        "nodes[].kind": "its kind, or null",
        "nodes[].subject": "first line of its message",
        "nodes[].at": "seconds since the epoch",
        "nodes[].heads": "agents and branches whose head it is",
        "edges": "from child to parent",
        "edges[].from": "the child",
        "edges[].to": "the parent; it may lie beyond the window",
        "edges[].lane": "the column in which the line leaves the child",
    },
    "Fork point": {"fork_point": "the commit; null, and exit code 1: they share none"},
    "Relate": {**_EDGE, "origin": "the commit that states or retracts it", "retracted": "whether it was retracted"},
    "Relations": {**_EDGE, "origin": "the commit that states it", "source": "the chain that it was read from"},
    "Trace add": {"agent": "whose trace", "kind": "of the entry", "position": "its number in the buffer"},
    "Trace pending": _ENTRY,
    "Trace show": {
        "cid": "id of the trace",
        "trace": "the trace; of an agent, a list of these",
        "trace.commit": "the commit it is bound to",
        "trace.agent": "whose it is",
        "trace.entries": "as in [pending](#trace-pending)",
    },
    "Trace attach": {"commit": "the commit", "cid": "id of the trace"},
    "Trace history": {
        "notes_commit": "the commit in the notes' own history",
        "trace": "what was bound then; null: the note was taken away",
        "by": "by whom",
        "by.name": "name",
        "by.email": "address",
        "by.at": "seconds since the epoch",
        "message": "why",
    },
    "Trace search": {
        "agent": "whose trace",
        "commit": "what it is bound to; null: it is pending",
        "position": "of the entry in its trace, from 0",
        "entry": "as in [pending](#trace-pending)",
    },
    "Trace purge": {
        "agent": "whose traces",
        "traces": "how many versions of traces were changed",
        "pending": "how many pending entries were changed",
        "remaining": "where the text may still be",
    },
    "Types": {},
    "Verify": {
        "clean": "whether nothing was found",
        "findings": "what is wrong",
        "findings[].code": "one of the [codes](space.md#findings)",
        "findings[].message": "one sentence for a person",
        "findings[].ref": "the ref it is about, or null",
        "findings[].cid": "the object it is about, or null",
        "agents": "how many were checked",
        "commits": "how many were checked",
        "traces": "how many were checked",
        "edges": "how many relations stand",
        "unseen": "what this clone does not hold",
    },
    "Hub status": _HUB,
    "Hub sync": {
        "synced": "what differed",
        "synced[].ref": "the ref",
        "synced[].what": "`new`, `ahead` or `united` here, `published` there, or `gone`; a `fork` is left, and so is what was "
        "`purged` here, `elsewhere` (another machine owes it) or `unreadable`. "
        "Any other word is the code of what was in the way: `hub-refused`, `branch-checked-out`",
        "synced[].cid": "the commit; null where there is none",
        "synced[].reason": "what was in the way, in words: the server's own where it refuses; empty where nothing was",
        "status": "as `clia hub status`, afterwards",
        **{f"status.{key}": told for key, told in _HUB.items()},
    },
    "Rebuild": {"edges": "how many relations stand"},
    "Relink": {
        "commit": "what has a trace now",
        "sources": "the commits whose traces it got",
        "by": "`patch-id` or `tree`: what is the same",
        "agent": "whose traces",
    },
    "Maintain": {
        "archived": "agents that were archived",
        "before": "bytes of objects before",
        "after": "bytes of objects after",
        "dry_run": "nothing was done",
    },
    "Archive": {"agent": "the agent", "archived": "false: it was brought back"},
    "Doctor": {
        "clia": "version",
        "python": "version",
        "git": "version; null: it was not found",
        "path": "where it looked",
        "repository": "the repository, or null",
        "space": "null: none here; with `error` in the place of the others: it cannot be opened",
        "space.id": "the space's id",
        "space.agents": "how many are at work",
        "space.ailments": "what is wrong with sessions: objects with `code`, `message`, `agent`, `session` and `repaired`",
        "space.beside": "live sessions in the SQLite store, where another store is in use",
        "agents": "as `clia agents doctor`",
        "peers": "each peer, with what is wrong with it",
        "hub": "as `clia hub status`; null: there is none",
        "hooks": "what tools tell clia",
        "hooks.tools": "each tool whose hooks are installed: where, for which events, and when its last event came",
        "hooks.spool": "events that hooks put down",
        "hooks.spool.waiting": "how many wait for `clia ingest`",
        "hooks.spool.oldest": "when the oldest of them came, or null",
        "hooks.spool.rejected": "how many could not be understood",
        "hooks.spool.elsewhere": "how many lie in the account's own folder",
        "hooks.findings": "what is wrong: objects with `code`, `severity`, `message` and `hint`",
    },
    "Ingest": {
        "events": "what hooks had put down",
        "entries": "trace entries that are new",
        "agents": "new agents",
        "sub_agents": "new sub-agents",
        "commits": "commits that were made",
        "merges": "work of sub-agents that was taken in",
        "rejected": "events that could not be understood, and are kept aside",
        "left": "events that wait because one before them could not be recorded",
        "unreadable": "lines of transcripts that could not be read",
        "trouble": "why events wait: errors",
    },
}
CLOSED = {"meta", "profile", "entry", "entries", "agents"}  # described elsewhere, or they name themselves
_SECRET = "ghp_" + "Zx9" * 12
_REFUSED = ("merge lead reviewer", "verify")  # a conflict, and a finding
_PERSON = {"NAME": "Ada", "EMAIL": "ada@example.org"}


def examples() -> list[tuple[str, str, Any]]:
    with tempfile.TemporaryDirectory() as directory:
        top = Path(directory).resolve()
        with newcomer(top), chdir(plant(top)):
            found = [(title, f"clia {words} --json", printed(words)) for title, words in _tour()]
        shown = json.dumps([each for each in found if each[0]], ensure_ascii=False).replace(f"{top}/", "/")
    loaded: list[tuple[str, str, Any]] = json.loads(made_up(shown))
    return loaded


@contextmanager
def newcomer(home: Path) -> Iterator[None]:
    """Somebody with a name and no settings."""
    before = dict(os.environ)
    for key in [key for key in before if key.startswith(("GIT_", "CLIA_"))]:
        del os.environ[key]
    os.environ |= {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in _PERSON.items()}
    os.environ |= {"HOME": str(home), "XDG_CONFIG_HOME": str(home), "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def plant(top: Path) -> Path:
    """A repository with a remote, and drafts of what agents will commit."""
    shop = top / "shop"
    for name, text in (("four", "apples 4\n"), ("nine", "apples 9\n"), ("both", "apples 13\n")):
        (top / f"{name}.txt").write_text(text, encoding="utf-8")
    (top / "seen.txt").write_text("seen afterwards\n", encoding="utf-8")
    git("init", "--quiet", "--bare", str(top / "hub.git"))
    git("init", "--quiet", "--initial-branch", "main", str(shop))
    (shop / "stock.txt").write_text("apples 3\n", encoding="utf-8")
    for words in (("add", "."), ("commit", "--quiet", "--message", "Stock"), ("remote", "add", "origin", "../hub.git")):
        git("-C", str(shop), *words)
    return shop


def _tour() -> Iterator[tuple[str, str]]:
    """(title, words); what has no title is only done."""
    yield "", "init"
    yield "Spawn", "spawn lead --title 'Lead the stock work'"
    yield "", "spawn scout --from lead --title 'Count the apples' --text 'Every box.'"
    yield "", "spawn reviewer --from lead --title 'Check the count'"
    yield "Trace add", f"trace add scout 'export GITHUB_TOKEN={_SECRET}'"
    yield "Trace pending", "trace pending scout"
    yield "Commit", "commit scout finding --set stock.txt=../four.txt --meta boxes=7 --trace --message 'One more apple'"
    yield "", "commit reviewer finding --set stock.txt=../nine.txt --message 'Nine apples'"
    yield "Checkout", "checkout scout ../scout"
    yield "Merge", "merge lead scout"
    yield "Conflicts", "merge lead reviewer"
    yield "", "resolve lead reviewer --file stock.txt=../both.txt"
    yield "Land", "land lead --onto main --squash"
    yield "Publish", "publish scout"
    git("clone", "--quiet", "../hub.git", "../bea")
    yield "Init", "init ../bea"
    yield "Agents", "list"
    yield "Log", "log scout --own --trace --number 1"
    yield "Show an agent", "show lead"
    yield "Show a commit", "show agents/scout"
    yield "Diff", "diff scout"
    yield "Blame", "blame scout stock.txt"
    yield "Tree", "tree"
    yield "Graph", "graph scout --number 2"
    yield "Fork point", "fork-point lead main"
    yield "Relate", "relate reviewer reviews scout"
    yield "Relations", "relations scout"
    yield "Trace show", "trace show agents/scout"
    yield "Trace attach", "trace attach agents/reviewer ../seen.txt"
    yield "Trace history", "trace history agents/reviewer"
    yield "Trace search", "trace search github"
    yield "Trace purge", "trace purge reviewer --text afterwards --yes"
    yield "Types", "types"
    yield "Rebuild", "rebuild"
    squashed = git("commit-tree", "agents/scout^{tree}", "-p", "main~1", "-m", "Counted")
    git("branch", "tidy", squashed)
    yield "Relink", "relink --onto tidy"
    yield "Archive", "archive reviewer"
    git("init", "--quiet", "--bare", "../meet.git")
    yield "", "init ../crew"
    yield "", "spawn scout --empty --title 'Count' --path ../crew"
    yield "", "hub set ../meet.git --path ../crew"
    yield "Hub status", "hub status --path ../crew"
    yield "Hub sync", "hub sync --path ../crew"
    git("update-ref", "-d", "refs/clia/agents/reviewer")
    yield "Verify", "verify"
    yield "Maintain", "maintain --archive-idle 30"
    yield "Ingest", "ingest"
    yield "Doctor", "doctor"


def git(*words: str) -> str:
    return subprocess.run(["git", *words], check=True, capture_output=True, text=True).stdout.strip()


def printed(words: str, refused: Container[str] = _REFUSED) -> Any:
    """What a command prints; of several lines the last one."""
    out = io.StringIO()
    with redirect_stdout(out):
        code = main.main([*shlex.split(words), "--json"])
    if code != (main.REFUSED if words in refused else main.DONE):
        raise SystemExit(f"reference: clia {words} exits {code}")
    text = out.getvalue()
    return json.loads(text if text[:2] in ("{\n", "[\n") or text.count("\n") == 1 else text.splitlines()[-1])


def made_up(text: str) -> str:
    """The same text, with what differs from run to run replaced by what does not."""
    known: dict[str, str] = {}

    def stand_in(match: re.Match[str]) -> str:
        return known.setdefault(match[0], hashlib.sha1(f"object {len(known)}".encode(), usedforsecurity=False).hexdigest())

    text = re.sub(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "5b1c0e5c-6f0e-4f6a-9d55-6a1f0c1d2e3f", text)
    text = re.sub(r"\b[0-9a-f]{40}\b", stand_in, text)
    text = re.sub(r'"at": \d+', '"at": 1769850000', text)
    text = re.sub(r'"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"', '"2026-01-31T09:00:00Z"', text)
    text = re.sub(r'"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"', '"2026-01-31T09:00:00.000Z"', text)
    text = re.sub(r'"(before|after)": \d+', r'"\1": 10240', text)
    return re.sub(r'"(clia|python|git)": "[\d.]+"', r'"\1": "1.2.3"', text)

"""Verbs that are killed at a rename, link or unlink, and then called again with the same arguments.

The rule for every verb: the second call succeeds, or answers as it does when the first one has ended (``already-exists``).
Afterwards the space is as after one call or, for a verb that adds something at each call, as after two.

A git command that is killed with its parent leaves locks whose owner nobody can prove dead, here or at a remote on the same
machine. A person removes them, as the message says; then the rule holds.
"""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import clia
from clia.errors import CliaError
from support import git
from support.crashes import run_all
from support.fuzzer.traced import KILL, Fault, Run
from support.space_crashes import make_template as make_space
from support.space_driver import settings

if TYPE_CHECKING:
    from collections.abc import Callable

    Verb = Callable[["clia.Space", Path], object]

BRIEFING = clia.Briefing(title="Look")
FLOW = 'def main(input):\n    return request("human", {"question": input})\n'
PROMPT = "Look at {{task}}."
_NEVER = 1 << 30


def _read(name: str, space: clia.Space) -> str:
    """The head that the caller has read."""
    return next(commit.cid for commit in space.history.own(name) if commit.message != "verb")


def _commit(space: clia.Space, root: Path, *, with_trace: bool = False) -> str:
    del root
    verb = space.commit_with_trace if with_trace else space.commit
    return verb("scout", "finding", changes={"verb.txt": b"verb\n"}, message="verb", base=_read("scout", space))


def _commit_desk(space: clia.Space, root: Path) -> str:
    (root.parent / "desk/verb.txt").write_text("verb\n")
    return space.commit_dir("scout", "finding", root.parent / "desk", message="verb", with_trace=True)


def _resolve(space: clia.Space, root: Path) -> object:
    del root
    ours = next(commit.cid for commit in space.history.own("scout") if commit.kind != "session-merge")
    return space.resolve("scout", "rival", changes={"README.md": b"both\n"}, ours=ours, theirs=space.head("rival"))


def _backup(space: clia.Space, root: Path) -> object:
    return space.local.back_up(str(root.parent / "backup"))


def _peer_key(root: Path) -> str:
    return (root.parent / "peer-key").read_text()


VERBS: dict[str, Verb] = {
    "spawn": lambda s, _: s.spawn("fresh", BRIEFING),
    "spawn from": lambda s, _: s.spawn_from("fresh", BRIEFING, "scout"),
    "commit": _commit,
    "commit with trace": partial(_commit, with_trace=True),
    "commit of a checkout": _commit_desk,
    "checkout": lambda s, root: s.checkout("scout", root.parent / "new-desk"),
    "move a checkout": lambda s, root: s.checkout("scout", root.parent / "old-desk"),
    "merge": lambda s, _: s.merge("scout", "helper", message="verb"),
    "resolve": _resolve,
    "land": lambda s, _: s.land("scout", "main", no_ff=True),
    "land by squash": lambda s, _: s.land("scout", "main", squash=True),
    "archive": lambda s, _: s.agents.archive("rival"),
    "restore": lambda s, _: s.agents.restore("old"),
    "relate": lambda s, _: s.relate("scout", "reviews", "rival"),
    "retract": lambda s, _: s.relations.retract("scout", "advises", "helper"),
    "trace": lambda s, _: s.traces.add_once("scout", [{"kind": "console", "text": "verb", "key": "verb"}]),
    "attach trace": lambda s, _: s.traces.attach(s.agents.genesis("scout"), [{"text": "verb", "at": "2026-05-01T00:00:00Z"}]),
    "purge": lambda s, _: s.traces.purge("scout", "template scout bound"),
    "register type": lambda s, _: s.types.register("look", "agent-commit"),
    "define": lambda s, _: s.sessions.define("more", FLOW + "# more\n"),
    "start": lambda s, _: s.start("scout", "flow", "verb"),
    "ask": lambda s, _: s.ask("scout", {"question": "verb"}),
    "decide": lambda s, _: s.decide("helper", "yes", request_id="1.1"),
    "cancel": lambda s, _: s.cancel("helper", "verb", session_id="1"),
    "fork": lambda s, _: s.fork("helper", "forked"),
    "add behaviour": lambda s, _: s.behaviours.add("look", f"{PROMPT} Again."),
    "propose behaviour": lambda s, _: s.behaviours.propose("look", f"{PROMPT} Well."),
    "retire behaviour": lambda s, _: s.behaviours.retire("look"),
    "rotate key": lambda s, _: s.peers.rotate_key(),
    "add peer": lambda s, root: s.peers.add("friend", _peer_key(root)),
    "grant": lambda s, _: s.peers.grant("known", "agent-commit", "head-move"),
    "announce": lambda s, _: s.peers.announce("known"),
    "remove peer": lambda s, _: s.peers.remove("known"),
    "publish": lambda s, _: s.publish(["scout", "helper", "old"]),
    "put away": lambda s, _: s.local.put_away(["rival", "old"]),
    "bring back": lambda s, _: s.local.unarchive_all(),
    "upkeep": lambda s, _: s.local.upkeep(),
    "maintain": lambda s, _: s.maintain(archive_idle_days=0),
    "rebuild": lambda s, _: s.rebuild(),
    "repair": lambda s, _: s.doctor(repair=True),
    "back up": _backup,
}


def make_template(home: str) -> None:
    """A space with agents, a live session, peers, a remote, checkouts, and agents that are put away."""
    make_space(home)
    root = Path(home, "space")
    git("init", "--quiet", "--bare", "--template=", "hub.git", cwd=home)
    git("remote", "add", "origin", "../hub.git", cwd=root)
    with clia.init(Path(home, "other"), settings=settings()) as other:
        Path(home, "peer-key").write_text(other.peers.key().text)
    with clia.init(Path(home, "third"), settings=settings()) as third:
        known_key = third.peers.key().text
    with clia.open(root, settings=settings()) as space:
        space.sessions.define("flow", FLOW)
        space.start("helper", "flow", "go on?")
        space.behaviours.add("look", PROMPT, "prompt")
        space.peers.add("known", known_key)
        space.peers.share("known", agents=["*"], traces=True)
        space.checkout("scout", Path(home, "old-desk"))
        space.commit("scout", "finding", changes={"more.txt": b"more\n"})
        space.checkout("scout", Path(home, "desk"))
        space.local.put_away(["idle"])


def state_of(space: clia.Space, root: Path) -> dict[str, Any]:
    """What people see of a space, without ids and times that differ from run to run."""
    agents = space.agents()
    everyone = [*agents, *space.agents(archived=True)]
    return {
        "agents": agents,
        "commits": {name: [_commit_state(space, commit) for commit in space.history.own(name)] for name in everyone},
        "pending": {name: [entry["text"] for entry in space.traces.pending(name)] for name in everyone},
        "relations": sorted((edge.src, edge.kind, edge.dst) for edge in space.relations()),
        "sessions": sorted((session.agent, session.id, session.status) for session in space.sessions()),
        "requests": sorted((request.agent, request.id) for request in space.pending()),
        "landings": [len(space.history.landings(name)) for name in everyone],
        "types": sorted(space.types()),
        "behaviours": [(item.name, len(item.versions), len(item.history)) for item in space.behaviours()],
        "peers": [(peer.name, peer.trusted) for peer in space.peers()],
        "grants": len(space.peers.grants()),
        "keys": len(space.peers.key().chain),
        "main": git("log", "--format=%s %T", "main", cwd=root),
        "status": git("status", "--porcelain", cwd=root),
        "hub": git("for-each-ref", "--format=%(refname)", cwd=root.parent / "hub.git"),
        "desks": {name: _desk_state(root.parent / name) for name in ("desk", "old-desk", "new-desk")},
        "backup": sorted(path.name for path in (root.parent / "backup").glob("*")),
    }


def _commit_state(space: clia.Space, commit: Any) -> list[Any]:
    trace = space.traces.of(commit.cid)
    return [commit.kind, commit.message, commit.tree, [entry["text"] for entry in trace.entries] if trace else []]


def _desk_state(desk: Path) -> list[str]:
    return [git("log", "-1", "--format=%s", cwd=desk), git("status", "--porcelain", cwd=desk)] if desk.is_dir() else []


class Outcome(NamedTuple):
    """The outcome of a call."""

    code: str  # of its error; "" if it succeeded
    state: str


def copied(template: str, to: Path) -> Path:
    shutil.copytree(template, to, symlinks=True)
    root = to / "space"
    for desk in ("desk", "old-desk"):  # the copy is another place
        admin = next(path for path in (root / ".git/worktrees").iterdir() if path.name == desk)
        (to / desk / ".git").write_text(f"gitdir: {admin}\n")
        (admin / "gitdir").write_text(f"{to / desk}/.git\n")
    return root


def call(root: Path, verb: Verb) -> str:
    with clia.open(root, settings=settings()) as space:
        try:
            verb(space, root)
        except CliaError as err:
            return err.code
    return ""


def outcome_of(root: Path, verb: Verb) -> Outcome:
    """Call a verb in a process of its own, and look at the space; everything in it must be in order."""

    def run() -> Outcome:
        code = call(root, verb)
        with clia.open(root, settings=settings()) as space:
            state = state_of(space, root)
            report = space.verify()
            assert report.clean, report.findings
        return Outcome(code, json.dumps(state, sort_keys=True, indent=1))

    ended = Run(run, None, str(root)).wait().ended
    assert ended is not None
    assert not ended.failure, ended.failure
    assert isinstance(ended.result, Outcome), ended
    return ended.result


def kill_at_each_name(template: str, to: str, name: str, most: int | None) -> int:
    """Kill a verb after its changes of names, each time in a copy of the space, or after ``most`` of them; return the number of
    kills.
    """
    verb = VERBS[name]
    once = copied(template, Path(to, "once"))
    counted = Run(partial(call, once, verb), Fault(KILL, _NEVER, names_only=True), str(once)).wait().ended
    assert counted is not None
    assert not counted.failure, counted.failure
    assert counted.result == "", f"{name} is refused: {counted.result}"
    expected = [outcome_of(once, lambda *_: None), outcome_of(once, verb)]
    step = 1 if most is None else max(1, -(-counted.changes // most))
    jobs = [
        partial(_kill, template, Path(to, str(number)), name, Fault(KILL, number, names_only=True), expected)
        for number in range(step, counted.changes + 1, step)
    ]
    return sum(run_all(jobs, at_once=4))


def _kill(template: str, to: Path, name: str, fault: Fault, expected: list[Outcome]) -> bool:
    """Kill a verb, and call it again; return whether it came that far."""
    verb, root = VERBS[name], copied(template, to)
    ended = Run(partial(call, root, verb), fault, str(root)).wait().ended
    assert ended is not None
    outcome, states = outcome_of(root, verb), [state.state for state in expected]
    is_as_expected = outcome.state in states and outcome.code in ("", expected[1].code)
    if not is_as_expected and _remove_locks_of_git(root):
        outcome = outcome_of(root, verb)
    where = f"{name}, killed after {fault.after} changes of names"
    assert outcome.code in ("", expected[1].code), f"{where}: {outcome}"
    assert outcome.state in states, f"{where}:\n{_difference(states[0], outcome.state)}"
    shutil.rmtree(to)
    return ended.code < 0


def _remove_locks_of_git(root: Path) -> bool:
    """Remove the locks of git processes; those of clia have a second name, or are below ``clia``."""
    repositories = (root / ".git", root.parent / "hub.git")
    locks = [lock for place in repositories for lock in place.rglob("*.lock") if lock.stat().st_nlink == 1]
    theirs = [lock for lock in locks if root / ".git/clia" not in lock.parents]
    for lock in theirs:
        lock.unlink()
    return bool(theirs)


def _difference(one: str, other: str) -> str:
    import difflib

    return "\n".join(difflib.unified_diff(one.splitlines(), other.splitlines(), "expected", "actual", lineterm="", n=2))

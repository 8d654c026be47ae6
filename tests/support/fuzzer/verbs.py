"""The verbs of a history.

Each chooses what to do by the state of the space, and returns what must be true once it is acknowledged.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import clia
from clia.errors import CliaError
from clia.trust.checkpoints.signed_notes import COSIGNATURE, NoteKey
from support.fuzzer import peers, upkeep_verbs
from support.fuzzer.act import MANY, Act, Skipped
from support.fuzzer.place import FLOW, Outcome, be_impatient

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.fuzzer.act import Facts
    from support.fuzzer.place import Place


def spawn(act: Act) -> Facts:
    if len(act.space.agents()) >= MANY:
        raise Skipped
    name, briefing, parent = f"agent-{act.place.mark}", clia.Briefing(title=act.text), None
    way = act.order.randrange(3)
    if way == 0:
        spawned = act.space.spawn(name, briefing)
    elif way == 1:
        spawned = act.space.spawn_at(name, briefing, "main")
    else:
        parent = act.agent()
        spawned = act.space.spawn_from(name, briefing, parent)
    edges = [("edge", parent, "sub-agent-of", name)] if parent else []
    return [("agent", name), ("commit", name, spawned.genesis), ("message", name, act.text), *edges]


def commit(act: Act) -> Facts:
    name = act.agent()
    verb = act.order.choice((act.space.commit, act.space.commit_with_trace))
    data = f"{act.text}\n".encode()
    if act.order.random() < 0.3:
        base = act.space.head(name)
        cid = verb(name, "finding", {**act.space.files(base), act.path: data}, base=base, message=act.text)
    else:
        cid = verb(name, "finding", changes={act.path: data}, message=act.text)
    return [("commit", name, cid), ("message", name, act.text)]


def trace(act: Act) -> Facts:
    name = act.agent()
    act.space.trace(name, "console", act.text)
    return [("trace", name, act.text)]


def merge(act: Act) -> Facts:
    into, other = act.two_agents()
    outcome = act.space.merge(into, other, message=act.text)
    if isinstance(outcome, clia.Conflicts):
        changes = {path.path: f"{act.text}\n".encode() for path in outcome.paths}
        outcome = act.space.resolve(into, other, changes=changes, ours=outcome.ours, theirs=outcome.theirs, message=act.text)
    if not isinstance(outcome, clia.Merged):
        return []
    return [("commit", into, outcome.cid), ("message", into, act.text), ("stated", into, "merges", other)]


def land(act: Act) -> Facts:
    name = act.agent()
    landed = act.space.land(name, "main", squash=act.order.random() < 0.3, no_ff=act.order.random() < 0.3, message=act.text)
    return [("landed", name, landed.cid, act.place.machine)] if isinstance(landed, clia.Landed) else []


def trace_once(act: Act) -> Facts:
    """Add an entry twice: with its key it is there once."""
    name = act.agent()
    entry = {"kind": "console", "text": act.text, "key": act.text}
    act.space.trace_once(name, [entry])
    assert act.space.trace_once(name, [entry]) == 0, "an entry with a key was added twice"
    return [("trace", name, act.text)]


def review(act: Act) -> Facts:
    src, dst = act.two_agents()
    act.space.reviews(src, dst)
    return [("edge", src, "reviews", dst)]


def relate(act: Act) -> Facts:
    src, dst = act.two_agents()
    kind = f"step-{act.place.mark}"
    act.space.relate(src, kind, dst)
    return [("edge", src, kind, dst)]


def unrelate(act: Act) -> Facts:
    edge = act.one_of(sorted(edge[:3] for edge in act.space.relations() if edge.kind.startswith("step-")))
    act.place.begin("unrelate", *edge)
    act.space.unrelate(*edge)
    return [("no-edge", *edge)]


def archive(act: Act) -> Facts:
    act.space.archive(act.agent())
    return []


def restore(act: Act) -> Facts:
    act.space.restore(act.one_of(act.space.agents(archived=True)))
    return []


def define(act: Act) -> Facts:
    flow = act.space.define("flow", f"# {act.text}\n{FLOW}")
    return [("version", "flow", flow.cid)]


def start(act: Act) -> Facts:
    name = act.agent()
    session = act.space.start(name, "flow", act.text)
    return [("session", name, session.id)]


def answer(act: Act) -> Facts:
    """Answer a request: with a decision if it is for people, else with a result or an error."""
    request = act.one_of(sorted(act.space.pending(), key=lambda request: (request.agent, request.id)))
    if request.kind == "human":
        decision = act.space.decide(request.agent, act.text, act.text, request_id=request.id)
        return [
            ("answer", request.agent, request.id, act.text),
            ("commit", request.agent, decision.cid),
            ("message", request.agent, act.text),
        ]
    act.space.resume(request.agent, act.text, request.id)
    return [("answer", request.agent, request.id, act.text)]


def ask(act: Act) -> Facts:
    name = act.agent()
    request = act.space.ask(name, {"question": act.text})
    return [("session", name, request.id.partition(".")[0])]


def cancel(act: Act) -> Facts:
    session = act.one_of(sorted((session.agent, session.id) for session in act.space.sessions(live=True)))
    act.space.cancel(session[0], session_id=session[1])
    return [("over", *session)]


def fork(act: Act) -> Facts:
    if len(act.space.agents()) >= MANY:
        raise Skipped
    live = [session.agent for session in act.space.sessions(live=True) if not session.id.startswith("ask")]
    name = f"agent-{act.place.mark}"
    session = act.space.fork(act.one_of(sorted(live)), name)
    return [("agent", name), ("session", name, session.id)]


def give_up(act: Act) -> Facts:
    request = act.one_of(sorted(act.space.pending(), key=lambda request: (request.agent, request.id)))
    act.space.give_up(request.agent, act.text, request.id)
    return [("given-up", request.agent, request.id)]


def replay(act: Act) -> Facts:
    """Replay a session with the current flow; nothing is written."""
    session = act.one_of(sorted((session.agent, session.id) for session in act.space.sessions() if session.flow == "flow"))
    act.space.replay_behaviour(session[0], "flow", session[1])
    return []


def propose(act: Act) -> Facts:
    version = act.space.propose_behaviour("prompt", f"Look again at {act.text}.", "prompt")
    return [("version", "prompt", version.cid)]


def adopt_version(act: Act) -> Facts:
    version = act.one_of(sorted(act.space.behaviour("prompt").versions))
    act.space.adopt_behaviour("prompt", version.cid, why=act.text)
    return [("version", "prompt", version.cid)]


def retire(act: Act) -> Facts:
    act.space.retire_behaviour("prompt", why=act.text)
    return []


def rotate_key(act: Act) -> Facts:
    act.space.rotate_key()
    return []


def rotate_machine_key(act: Act) -> Facts:
    act.space.trust.rotate_machine()
    return []


def accept_finding(act: Act) -> Facts:
    act.space.trust.accept("unsigned", act.head(act.agent()), act.text)
    return []


def make_checkpoint(act: Act) -> Facts:
    act.space.witnesses.checkpoint()
    return []


def trust_witness(act: Act) -> Facts:
    private = Ed25519PrivateKey.from_private_bytes(sha256(act.text.encode()).digest())
    public = private.public_key().public_bytes_raw()
    act.space.witnesses.trust(NoteKey(f"w.example/{act.place.mark}", COSIGNATURE, public).text)
    return []


def rename_agent(act: Act) -> Facts:
    """What was done under the former name stays there."""
    former, name = act.agent(), f"agent-{act.place.mark}"
    return [("agent", name), ("commit", name, act.space.agents.rename(former, name).commit)]


def delete_agent(act: Act) -> Facts:
    """Delete an agent that did nothing. It is refused if it gets work first."""
    name = f"agent-{act.place.mark}"
    act.space.spawn(name, clia.Briefing(title="Do nothing"))
    act.space.agents.delete(name)
    return []


def undo(act: Act) -> Facts:
    """Undo the last change, except for spawns and retractions: these were acknowledged for good."""
    last = act.space.undoing.last_change()
    if last.verb == "spawn" or last.what.startswith("retracted: "):
        raise Skipped
    if last.what.startswith("recorded: "):
        act.place.begin("unrelate", *last.what.removeprefix("recorded: ").split())
    act.space.undoing.undo(change=last.change)
    return []


def claim(act: Act) -> Facts:
    act.space.claim(act.agent())
    return []


def register(act: Act) -> Facts:
    act.space.register_type(f"step-{act.place.mark}", "agent-commit")
    return [("type", f"step-{act.place.mark}")]


def write(act: Act) -> Facts:
    return [("object", act.space.write({"type": "behaviour", "name": "kept", "kind": "prompt", "body": act.text}))]


def behave(act: Act) -> Facts:
    version = act.space.add_behaviour("prompt", f"Look at {act.text}.", "prompt")
    return [("version", "prompt", version.cid)]


def attach(act: Act) -> Facts:
    name = act.agent()
    cid = act.space.genesis(name)
    if act.space.trace_for(cid) is not None:
        raise Skipped
    act.place.begin("attach", cid, act.text)
    act.space.attach_trace(cid, [{"kind": "console", "text": act.text}])
    return [("trace", name, act.text)]


def purge(act: Act) -> Facts:
    hit = act.one_of(sorted({(hit.agent, str(hit.entry["text"])) for hit in act.space.trace_search("<s")}))
    act.place.begin("purge", *hit)
    act.space.trace_purge(*hit)
    return [("purged", *hit)]


def checkout(act: Act) -> Facts:
    name = act.agent()
    directory = act.place.beside(f"checkout-{name}")
    act.space.checkout(name, directory)
    return []


def commit_dir(act: Act) -> Facts:
    """Commit a checkout. Its files may be older than the agent's head, which is refused, or renew its own worktree."""
    names = [name for name in act.space.agents() if act.place.beside(f"checkout-{name}").exists()]
    name = act.one_of(sorted(names))
    directory = act.place.beside(f"checkout-{name}")
    try:
        (directory / act.path).write_text(f"{act.text}\n")
    except OSError:
        raise Skipped from None  # the disk is full
    base = act.space.checkout_at(directory)
    cid = act.space.commit_dir(name, "finding", directory, message=act.text, base=None if base is None else base.base)
    return [("commit", name, cid), ("message", name, act.text)]


VERBS: dict[str, tuple[Callable[[Act], Facts], int]] = {
    "commit": (commit, 10),
    "trace": (trace, 6),
    "answer": (answer, 8),
    "spawn": (spawn, 4),
    "merge": (merge, 4),
    "land": (land, 4),
    "start": (start, 3),
    "relate": (relate, 3),
    "archive": (archive, 2),
    "restore": (restore, 3),
    "ask": (ask, 2),
    "fork": (fork, 2),
    "unrelate": (unrelate, 1),
    "define": (define, 1),
    "cancel": (cancel, 1),
    "register": (register, 1),
    "write": (write, 1),
    "behave": (behave, 1),
    "attach": (attach, 1),
    "purge": (purge, 1),
    "relink": (upkeep_verbs.relink, 1),
    "maintain": (upkeep_verbs.maintain, 2),
    "rebuild": (upkeep_verbs.rebuild, 1),
    "read": (upkeep_verbs.read, 3),
    "doctor": (upkeep_verbs.doctor, 1),
    "publish": (upkeep_verbs.publish, 2),
    "upkeep": (upkeep_verbs.upkeep, 3),
    "put-away": (upkeep_verbs.put_away, 3),
    "bring-back": (upkeep_verbs.bring_back, 1),
    "hub-sync": (upkeep_verbs.hub_sync, 2),
    "adopt": (upkeep_verbs.adopt, 1),
    "back-up": (upkeep_verbs.back_up, 2),
    "trace-once": (trace_once, 2),
    "review": (review, 1),
    "give-up": (give_up, 1),
    "propose": (propose, 1),
    "adopt-version": (adopt_version, 1),
    "retire": (retire, 1),
    "replay": (replay, 1),
    "rotate-key": (rotate_key, 1),
    "rotate-machine-key": (rotate_machine_key, 1),
    "accept-finding": (accept_finding, 1),
    "make-checkpoint": (make_checkpoint, 2),
    "trust-witness": (trust_witness, 1),
    "rename-agent": (rename_agent, 1),
    "delete-agent": (delete_agent, 1),
    "undo": (undo, 2),
    "claim": (claim, 1),
    "checkout": (checkout, 1),
    "commit-dir": (commit_dir, 2),
}
"""The verbs, and how often each comes."""
OF_PEERS: dict[str, tuple[Callable[[Act], Facts], int]] = {
    "announce": (peers.announce, 8),
    "sync-peer": (peers.sync_peer, 8),
    "merge-theirs": (peers.merge_theirs, 3),
}
"""Those of a history with a peer."""


def run(place: Place, verb: str, seed: str) -> Outcome:
    """Run a verb as a command does: open the space, act, close it. An error that is not clia's is raised."""
    be_impatient(place)
    try:
        with place.open() as space:
            return acted(place, space, verb, seed)
    except CliaError as err:
        return Outcome("refused", (), err.code, err.message)


def acted(place: Place, space: clia.Space, verb: str, seed: str) -> Outcome:
    """Run a verb in an open space."""
    try:
        return Outcome("done", tuple((VERBS | OF_PEERS)[verb][0](Act(place, space, seed))))
    except Skipped:
        return Outcome("skipped")
    except CliaError as err:
        return Outcome("refused", (), err.code, err.message)

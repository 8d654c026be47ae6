"""The reference page of a space: refs, trailers, types, settings, files and findings.

Generation stops if the code and this page list different refs, trailers or findings.
"""

from __future__ import annotations

import ast
import inspect
from typing import TYPE_CHECKING

from clia.behaviours import library
from clia.behaviours import model as behaviour_model
from clia.behaviours.measures import MEASURES
from clia.facade import opening as spaces
from clia.federation import announcing, keys
from clia.federation import verification as federation_verification
from clia.hub import model as hub_model
from clia.hub.model import BRANCHES, PUBLISHED_REFS
from clia.hub.remote import HUB_SECONDS
from clia.sessions import flows
from clia.space import behaviour_chains, envelope, landing, lost_moves, model, remotes, traces, verification
from clia.space.upkeep import IDLE_AGENTS
from clia.store import epochs
from clia.store.private_files import LOCK_SECONDS
from clia.trust import acts, behaviour_checks, log_checks, machine_keys, machine_log
from clia.trust import traces as trust_traces
from clia.trust import verification as trust_verification
from clia.trust.checkpoints import checks as checkpoint_checks
from clia.trust.checkpoints import making as checkpoint_making
from clia.trust.checkpoints import records as checkpoint_records
from clia.values import refs, types
from clia.values.commit_messages import TRACE
from clia.values.typed_objects import PROMPT, SESSION_FLOW
from reference_markdown import code, page, prose, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import ModuleType

REFS = {
    "SPACE": ("", "a commit with `space.json`: the space's id and the format; the same in every clone"),
    "HEADS": ("<name>", "an agent: its newest commit"),
    "RECORDS": ("<name>", "the agent's record: `briefing.json` and, if it has an identity, `profile.json`"),
    "ARCHIVE": ("<name>", "the head of an archived agent"),
    "EVENTS": ("<name>", "a chain of events: landings, refused merges, stated and retracted relations, ends of sessions"),
    "GUARDRAILS": ("", "a chain of events: guardrails that agents were spawned with, and people's decisions on their loss"),
    "TYPES": ("", "a chain of events: types registered here"),
    "OBJECTS": ("", "a tree of typed objects, as `<2 hex>/<38 hex>.json`"),
    "TRACES": ("<name>", "notes: commit to console trace"),
    "SESSIONS": ("<name>", "notes: commit to checkpoint, the session's state at that commit"),
    "BEHAVIOURS": ("<name>", "a chain of changes to a behaviour; [its tree](#behaviours)"),
    "OWN": ("<name>", "keeps the commits that programs made themselves in the agent's worktrees; not shared"),
    "OWN_NOTES": ("", "notes on these commits: the agent and its commit that stands for each; not shared"),
    "ATTRIBUTION": ("", "notes on commits of people: the lines that agents wrote, and the agents' commits"),
    "STORE": ("", "the epochs of the store that belongs to this clone: a chain of events; not shared"),
    "BASES": ("", "keeps the commits of people that agents in `clia/archive.git` are based on; not shared"),
    "FORMER_STORE": ("", "the former name of `refs/clia-local/store`; `clia maintain` renames it"),
    "FORMER_BASES": ("", "the former name of `refs/clia-local/bases`"),
    "KEYS": (
        "",
        "the chain of keys: of the space, by which peers identify it; of machines and people; and the policy",
    ),
    "CHECKPOINTS": ("<machine>", "the [checkpoints](../explanation/trust.md#checkpoints-and-witnesses) of a machine: one commit"),
    "COSIGNATURES": ("<witness>", "the last checkpoint of each machine that a witness cosigned: one commit"),
    "SEEN": ("<remote>/<machine>", "the newest checkpoint that a remote had; not shared"),
    "ROLLED_BACK": ("<remote>/<machine>", "the older checkpoint that a remote had after a newer one; not shared"),
    "LOGS": ("<machine>", "the moves of refs that a machine made: one signed commit with all of them"),
    "STATEMENTS": ("", "statements of acts that need several people, until enough have proved them"),
    "CAPABILITIES": ("", "capabilities of peers: grants and revocations, and the current grants"),
    "ANNOUNCE": ("<space id>", "announcements to another space: a chain of signed statements"),
    "PEERS": ("<peer>", "a peer's identity, and how far its statements were accepted"),
    "PEERS_REMOVED": ("<space id>", "the same for a removed peer, in case it is added again"),
    "REMOTES": ("<peer>/{agents,records,notes/trace,notes/session,behaviours}/<name>", "a peer's refs that are tracked here"),
    "TRACKING": (
        "<remote>/{clia,notes,heads}/…",
        "fetched from a remote; for a hub, its last seen state (`clia/hub`: the mark that was joined)",
    ),
    "PUBLISHED": ("<name>", "on servers only: an agent's head, so that it is not a branch there"),
    "HUB_MARK": ("", "at a hub only: its id, where it keeps agents' heads, and the id of the store that its machines share"),
}
BEHAVIOUR_TREE = (
    (f"{behaviour_chains.VERSIONS}<cid>.json", "a version: an object of the type `behaviour`"),
    (f"{behaviour_chains.ADOPTED}<cid>", "a person allowed it to run here"),
    (f"{behaviour_chains.RETIRED}<cid>", "it may no longer start"),
    (behaviour_chains.CURRENT, "the version that the name means; missing if there is none"),
)
BEHAVIOUR_EVENT = {
    "event": "what happened: " + ", ".join(code(event) for event in behaviour_chains.EVENTS),
    "cid": "the version",
    "was": "the previous current version",
    "parent": "for a proposal: its parent version",
    "evidence": "commits that it is based on",
    "from": "the peer whose version was adopted",
    "measure": "the measure, if it was adopted on evidence",
}
TRAILERS = {
    "Clia-Agent": "the agent that made the commit",
    "Clia-Type": "its kind: a type below `agent-commit`",
    "Clia-Briefing": "id of the agent's briefing",
    "Clia-Profile": "id of the profile merged at spawn",
    "Clia-Behaviour": "id of the flow of the live session, else of the prompt of the briefing; in a behaviour's chain: the version",
    "Clia-Parent": "in a spawn: the parent agent",
    "Clia-Merged": "in a session-merge: the merged agent",
    "Clia-Meta": "open fields, as canonical JSON",
    "Clia-Event": "in a chain of events, or of a behaviour: the event, as canonical JSON",
    "Clia-Landed": "in a landing: the agent",
    "Clia-Range": "in a landing: `base..head` of the agent's commits",
    "Clia-Decision": "in a landing: id of a decision among them; may be repeated",
    "Clia-Request": "in a decision: the request that it answers",
    "Clia-Tag": "in a decision: the request's tag",
    "Clia-Value": "in a decision: the answer, as canonical JSON",
    "Clia-By": "in a decision: the person who decided",
    "Clia-Channel": "in a decision: how the answer came: `command-line`, `forge`, `api`, `form` (of an MCP client) or `library`",
    "Clia-Statement": "in a decision: what the person signed, as canonical JSON",
    "Clia-Proof": "in a decision: the proof of the statement by a key, as canonical JSON; one for each person",
    "Clia-Formerly": "in the first commit of a renamed agent: its former name",
    "Clia-Forked": "in a spawn by `session fork`: the forked session",
    "Clia-Own": "in an adopted commit: the original that a program made itself",
    "Clia-Adopted": "an adopted commit of the program on another branch, or on one that it merged; may be repeated",
    "Clia-Kept": "a commit that the program made and left, for example by amending it; may be repeated",
    "Clia-Trace": "the trace that the commit got: the SHA-256 of its entries",
    "Clia-Key": "in the chain of keys: the signed link of a key of the space",
    "Clia-Key-Start": "with it: the key starts a new identity of the space",
    "Clia-Keys": "in the chain of keys: an entry about a key of a machine or a person, or about the policy, as canonical JSON",
    "Clia-Log": "in a log of a machine that an earlier version wrote: the moves, and the current commit of the chain of keys",
    "Clia-Log-End": "in the log of a machine: the number of entries, and the SHA-256 of the last one",
    "Clia-Checkpoint": "in the checkpoints of a machine: the origin, size and root of the newest one",
    "Clia-Announcement": "in a chain of announcements: the signed statement",
}
OTHER_TRAILERS = {
    announcing.ANNOUNCEMENT,
    keys.KEY_TRAILER,
    keys.START_TRAILER,
    machine_keys.ENTRY,
    machine_log.LOG,
    machine_log.LOG_END,
    checkpoint_records.CHECKPOINT,
    TRACE,
}
TRUST_CHECKS = (trust_verification, log_checks, acts, behaviour_checks, trust_traces, checkpoint_checks)
TRUST_FINDINGS = {
    "no-space": "the clone has no readable space",
    "keys-missing": "commits are signed or logged, but there is no chain of keys",
    "wrong-root": "the first key of the space is another than the one given with `--root`",
    "unsigned-history": "with `--strict`: commits are older than the chain of keys and not signed, and no person endorsed them",
    "no-cosigned-checkpoint": "with `--strict`: no trusted witness cosigned a checkpoint",
    "rolled-back": "there was a newer checkpoint, which a witness cosigned or `--since` names: the record is an older copy",
    "forked-checkpoint": "there are two checkpoints of one machine that do not extend each other: two histories",
    "remote-rolled-back": "a hub or another remote had an older checkpoint after a newer one",
    "truncated-log": "a log has fewer entries than a checkpoint names",
    "spliced-log": "a log has other entries than a checkpoint names: they were rewritten, or are those of another machine",
    "truncated-keys": "a checkpoint names an entry that the chain of keys lacks",
    "foreign-checkpoint": "a checkpoint is of another space or machine",
    "forged-checkpoint": "a checkpoint is not signed by its machine",
    "malformed-checkpoint": "a checkpoint cannot be read, or its snapshots have another root",
    "forged-cosignature": "a cosignature names a trusted witness and is not valid",
    "unknown-checkpoint": "a person endorsed a checkpoint that the record does not have",
    "unsigned-commit": "a commit has no signature, and is not older than the chain of keys",
    "unlogged-commit": "a commit is in no log of the machine that signed it",
    "repeated-trailer": "a commit has a trailer more than once",
    "missing-commit": "a commit of the record is missing",
    "damaged-commit": "a commit of the record cannot be read",
    "replaced-object": "`git replace` shows another object",
    "graft": "`info/grafts` shows other parents",
    "unknown-machine": "a log belongs to a machine that is not enrolled",
    "missing-log": "the log of a machine is missing",
    "forged-log": "an entry of a log is not signed by its machine",
    "malformed-log": "an entry of a log cannot be read",
    "backdated-log": "an entry of a log names older keys than the entry before it",
    "repeated-move": "a log has a move more often than it can have happened",
    "log-gap": "a move starts from a value that no log has",
    "unlogged-ref": "a ref is in no log",
    "unlogged-move": "a ref has a value that no log has: it was moved by another program",
    "rewound-ref": "a ref lacks what a machine logged",
    "missing-ref": "a ref that a machine logged is missing",
    "missing-trace": "the trace that a commit names is missing",
    "changed-trace": "the trace of a commit is not the one that it names, and no purge or attachment explains that",
    "replayed-statement": "two commits have the same statement",
    "weak-proof": "an act of a person is proved more weakly than the policy asks; with `--strict`: not by their own key",
    "too-few-people": "fewer people proved an act than the policy asks",
    "unstated-adoption": "a commit lets a version of a behaviour run that nobody adopted there",
    "wrong-landing": "a landing's commit is made from other heads than its event names",
    "copied-key": "a passkey proved two acts with one counter, so it was copied",
    "bad-assertion": "a passkey was used at another place, for something else, or without its user",
    "wrong-key": "a proof names another key than the one that made it",
    "unknown-method": "a proof is of an unknown kind",
    "malformed-proof": "a proof cannot be read",
    "wrong-machine": "a machine certified the key of an agent for another machine or space",
    "bad-signature": "a signature or proof does not match",
    "malformed-signature": "a signature or proof cannot be read",
    "wrong-namespace": "a signature was made for another purpose",
    "strange-commit": "a commit has a header that git does not write",
    "unknown-key": "a commit or statement is signed with a key that is not enrolled",
    "revoked-key": "a commit or statement is signed with a key that was revoked before",
    "wrong-agent-key": "a commit is signed with the key of another agent, or a decision with the key of an agent",
    "expired-agent-key": "a commit is signed with the key of an agent after its end",
    "malformed-statement": "a statement cannot be read",
    "wrong-statement": "a statement is about something else than its commit",
    "no-proof": "a statement has no proof",
    "wrong-person": "a statement is by somebody else than the people who proved it",
    "not-allowed": "a person proved something that their role does not allow",
    "not-authorized": "an entry of the chain of keys does not meet the policy",
    "forged-root": "the chain of keys has a second or wrong first entry",
}
VARIABLE_CODES = {
    *("bad-signature", "malformed-signature", "wrong-namespace", "strange-commit", "unknown-key", "revoked-key", "wrong-agent-key"),
    *("expired-agent-key", "malformed-statement", "wrong-statement", "no-proof", "wrong-person", "not-allowed", "not-authorized"),
    *("malformed-log", "forged-cosignature", "forged-checkpoint", "malformed-checkpoint"),
    *("forged-root", "missing-commit", "damaged-commit", "weak-proof", "too-few-people"),
    *("copied-key", "bad-assertion", "wrong-key", "unknown-method", "malformed-proof", "wrong-machine"),
}
"""Codes of findings that are not constants where they are reported."""
FINDINGS = {
    "unfinished": "a verb was interrupted and neither finished nor undone",
    "index-row": "the index has a relation that git does not have; run `clia rebuild`",
    "index-gap": "the index lacks a relation that git has; run `clia rebuild`",
    "key-exposed": "a private key of the space can be read by others",
    "peer-twice": "two peers are the same space",
    "unknown-peer": "refs are tracked for an unknown peer; `clia maintain` removes them",
    "unknown-place": "a tracked ref has an unknown place",
    "chain-broken": "a chain of announcements or keys is not continuous",
    "not-a-capability": "a commit of the capabilities is neither a grant nor a revocation",
    "capabilities-differ": "the tree of the capabilities differs from the grants and revocations",
    "gate-differs": "the store's compiled gate differs from the refs; run `clia rebuild`",
    "git-fsck": "`git fsck --strict` reports a problem",
    "decided-twice": "a request has two decisions, and no commit states which one counts (metadata `counts`)",
    "damaged-file": "a file or folder in a commit of the agent is missing or damaged",
    "invalid-name": "a branch below `agents/` has an invalid agent name",
    "no-branch": "a record has no branch",
    "ref-rewound": "a ref lacks commits that it had, because it went back silently or a person reset it",
    "ref-missing": "a ref that existed is missing",
    "no-record": "a branch has no record",
    "no-genesis": "the agent has no spawn commit",
    "unknown-kind": "a commit has a kind that is not registered here",
    "missing-object": "a commit or trace names a missing object",
    "not-a-merge": "a session-merge does not have two parents",
    "not-a-decision": "a decision changes files, or lacks its request, value or person",
    "record-differs": "the record has another briefing or profile than the commits",
    "not-typed": "a file of the record is not a typed object",
    "misbound": "a trace is bound to the wrong commit",
    "broken-behaviour": "a behaviour's version is invalid or has another id, or a listed version does not exist",
}
SETTINGS = (
    ("clia.store", "the store, `postgresql://…` (default: a SQLite file in the git directory)", "`store`"),
    ("clia.land", "how work lands: `squash` (default), `merge` or `fast-forward`", ""),
    (
        "clia.publish",
        f"where `clia publish` puts agents' heads: `published` ({code(refs.PUBLISHED)}) or `branches` ({code(refs.HEADS)})",
        "",
    ),
    ("clia.hub", "the remote that is the [hub](../how-to/many-machines.md); written by `clia hub set`", ""),
    (
        "clia.hubHeads",
        f"where the hub keeps agents' heads: `{BRANCHES}` ({code(refs.HEADS)}) or `{PUBLISHED_REFS}` ({code(refs.PUBLISHED)})",
        "",
    ),
    (
        "clia.hubAddress",
        "last known address of the hub, to recognize an empty repository elsewhere; written by clia",
        "",
    ),
    ("clia.hubSeconds", f"seconds that one exchange with the hub may take before it counts as away (default: {HUB_SECONDS})", ""),
    ("clia.lockSeconds", f"seconds to wait for an agent that another process holds (default: {LOCK_SECONDS})", ""),
    ("clia.upkeep", "`false`: no upkeep in the background", ""),
    ("clia.archiveIdle", "`false`: the refs of idle agents stay in the repository", ""),
    (
        "clia.idleAgents",
        f"number of agents, those with the newest commits, whose refs stay in the repository (default: {IDLE_AGENTS})",
        "",
    ),
    ("clia.idleDays", "days without a commit after which no agent's refs stay (default: no limit)", ""),
    ("clia.signingKey", "path of the private SSH key that signs the commits of this clone (default: a file that clia creates)", ""),
    ("clia.signingCommand", "command that signs instead: it reads data and prints its SSH signature for the namespace `git`", ""),
    (
        checkpoint_making.ENTRIES_SETTING,
        f"log entries after which upkeep makes a checkpoint (default: {checkpoint_making.ENTRIES})",
        "",
    ),
    (
        checkpoint_making.MINUTES_SETTING,
        f"minutes after which it does, if anything moved (default: {checkpoint_making.MINUTES})",
        "",
    ),
    ("clia.durable", "`false`: do not flush to disk; a command then does not survive a power failure", "`durable`"),
    ("clia.traceEntryMax", f"maximum characters of a trace entry (default: {traces.ENTRY_MAX})", "`entry_max`"),
    ("user.name", "with `user.email`: the accountable person, committer of every agent's commits", "`person`"),
    ("commit.gpgsign", "sign commits as git does (`gpg.format`, `user.signingKey`)", ""),
)


def _words(*names: str) -> tuple[str, ...]:
    return tuple(getattr(behaviour_model, name) for name in names)


WORDS = {
    "`clia init`, `Space.adopt`": (remotes.NEW, remotes.AHEAD, remotes.UNITED, remotes.DIVERGED),
    "`clia hub sync`": (
        *(remotes.NEW, remotes.AHEAD, remotes.UNITED, hub_model.PUBLISHED, hub_model.REMOVED),
        *(hub_model.FORK, remotes.REFUSED, hub_model.ELSEWHERE, hub_model.UNREADABLE),
        *("hub-refused", "branch-checked-out"),
    ),
    "`clia publish`": ("new", "moved", "same", "refused"),
    "`clia land`": (landing.FAST_FORWARD, landing.MERGE, landing.SQUASH),
    "the kind of a behaviour": (SESSION_FLOW, PROMPT),
    "the state of a version": _words("CURRENT", "TRIAL", "FORMER", "PROPOSED", "RETIRED", "FOREIGN"),
    "what happens to a version": behaviour_chains.EVENTS,
    "`clia behaviour suggest`": _words("ADOPT", "KEEP", "RETIRE", "NOT_ENOUGH"),
    "a measure": tuple(MEASURES),
    "crash points": envelope.STEPS,
}


def space_page() -> str:
    _same("refs", REFS, (name for name, value in vars(refs).items() if name.isupper() and _is_ref(value) and name != "LOCAL"))
    trailers = {value for name, value in vars(model).items() if name.isupper() and str(value).startswith("Clia-")}
    _same("trailers", TRAILERS, trailers | OTHER_TRAILERS)
    _same("findings of signatures", TRUST_FINDINGS, _findings(*TRUST_CHECKS) | VARIABLE_CODES)
    _same("findings", FINDINGS, _findings(verification, federation_verification) | {lost_moves.REWOUND, lost_moves.MISSING})
    return page(
        "# Refs and settings of a space",
        "See also [how a space works](../explanation/space.md).",
        "## Refs",
        table(("ref", "content"), [(code(getattr(refs, name) + rest), meaning) for name, (rest, meaning) in REFS.items()]),
        "## Behaviours",
        "The tree of a chain is its state. In an older chain without `adopted/` and `retired/`, all versions count as adopted.",
        table(("path", "meaning"), [(code(path), meaning) for path, meaning in BEHAVIOUR_TREE]),
        "`Clia-Event` of its commits has:",
        table(("field", "meaning"), [(code(field), meaning) for field, meaning in BEHAVIOUR_EVENT.items()]),
        "## Fetch rules",
        "`clia init` fetches with these rules. They are not in git's configuration, so a plain `git fetch` does not use them:",
        table(("fetch rule",), [(code(rule),) for rule in remotes.fetch_rules("origin")]),
        "## Trailers",
        table(("trailer", "meaning"), [(code(name), meaning) for name, meaning in TRAILERS.items()]),
        "## Types",
        "Built-in types; `clia types --add` registers more. Commit kinds descend from `agent-commit`.",
        table(("type", "parent", "created by"), [_type(name, parent) for name, parent in types.BUILT_IN.items()]),
        "## Settings",
        "Git settings, for one repository or for all of a user's. `clia.Settings` overrides them in Python.",
        table(("setting", "meaning", "in `clia.Settings`"), [(code(name), meaning, field) for name, meaning, field in SETTINGS]),
        "On the command line `CLIA_STORE` overrides `clia.store`, and `--store` overrides both.",
        "## Files",
        table(
            ("path", "content"),
            [
                (code(".git/clia/space.db"), "the store, with `-wal` and `-shm` beside it while it is open"),
                (code(".git/clia/space.db.lock"), "lock file of the store's writers"),
                (code(f".git/clia/{epochs.MARK_FILE}"), "the epoch of the store, and how many of its changes were acknowledged"),
                (
                    code(".git/clia/config.toml"),
                    "the [operator's configuration](../configuration.md)",
                ),
                (code(".git/clia/run"), "locks of `clia run`, one per agent"),
                (code(".git/clia/work"), "locks of workers that run `command` requests, one per agent"),
                (code(".git/clia/approved-setup"), "digests of the setup commands that a person approved"),
                (code(".git/clia/worktrees"), "the id of this clone's worktrees"),
                (
                    code(".git/clia/locks/<name>"),
                    "lock file of an agent; `@space` that of the whole space. The files stay; only the lock on them counts",
                ),
                (code(".git/clia/keys/<key>.jwk"), "a private key of the space, readable by its owner only; never in git"),
                (code(".git/clia/signing/machine"), "the private key of this clone, which signs its commits; never in git"),
                (code(".git/clia/signing/moves/"), "moves of refs that are not logged yet"),
                (
                    code(".git/clia/shared/<space id>.git"),
                    "what a peer may fetch from the forge: a repository with the refs announced to it",
                ),
                (code(".git/clia/clone"), "id of this clone"),
                (code(".git/clia/clone-place"), "where that id was created, to detect copies of a clone"),
                (code(".git/clia/hub-away.json"), "exists while the hub is unreachable: since when, and why"),
                (code(".git/clia/quarantine/"), "objects from peers, until they are checked"),
                (code(".git/worktrees/<name>/clia.json"), "agent and base of a checkout"),
            ],
        ),
        "## Findings",
        "What `clia verify` reports; an unreadable object has the [code of its error](errors.md#codes). It exits with 1 if there "
        "is a finding.",
        table(("code", "meaning"), [(code(name), meaning) for name, meaning in FINDINGS.items()]),
        "About signatures, statements and logs, which it also checks in a plain clone:",
        table(("code", "meaning"), [(code(name), meaning) for name, meaning in TRUST_FINDINGS.items()]),
        "## Values in results",
        table(("in", "values"), [(where, ", ".join(code(word) for word in words)) for where, words in WORDS.items()]),
        "## Limits",
        table(
            ("what", "limit"),
            [
                ("an agent's name", f"{refs.NAME_MAX} characters, {code(refs.NAME_PATTERN.pattern)}"),
                ("a trace entry", f"{traces.ENTRY_MAX} characters, then it is truncated"),
                ("a behaviour's body", f"{flows.SOURCE_MAX} characters"),
                ("notes of a version", f"{library.NOTES_MAX} characters"),
                ("commits named as evidence at a time", f"{library.EVIDENCE_MAX}"),
                ("a text to purge", "at least four characters"),
                ("the format of a space", f"{spaces.FORMAT}; any other is refused"),
            ],
        ),
    )


def _is_ref(value: object) -> bool:
    """Whether a constant is a ref or a prefix of refs; false for prefixes that only contain others."""
    return isinstance(value, str) and value.startswith("refs/") and value not in (refs.BRANCHES, refs.NOTES)


def _type(name: str, parent: str | None) -> tuple[str, str, str]:
    by = {
        types.SPAWN: "spawn",
        types.SESSION_MERGE: "merge, resolve",
        types.DECISION: "decide",
        types.AGENT_COMMIT: "none: it is the base",
    }
    return code(name), code(parent) if parent else "", by.get(name, "commit" if parent else "")


def _findings(*modules: ModuleType) -> set[str]:
    """The codes that checks can report."""
    codes: set[str] = set()
    named = ("found", "_found", "_missing")
    for node in (node for module in modules for node in ast.walk(ast.parse(inspect.getsource(module)))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in named:
            first = node.args[0]
            codes |= {str(first.value)} if isinstance(first, ast.Constant) else set()
    return codes


def _same(title: str, documented: Mapping[str, object], actual: Iterable[str]) -> None:
    different = set(documented) ^ set(actual)
    if different:
        raise SystemExit(prose(f"reference: {title} differ between the code and the page: {different}"))

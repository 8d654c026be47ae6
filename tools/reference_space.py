"""The reference page of a space: its refs, trailers, types, settings, files and findings.

Invariant: a ref, trailer or finding that the code has and this page does not tell, or the other way round, stops the generation.
"""

from __future__ import annotations

import ast
import inspect
from typing import TYPE_CHECKING

from clia.behaviours import library
from clia.behaviours import model as said_of_versions
from clia.behaviours.measures import MEASURES
from clia.facade import opening as spaces
from clia.facade.joining import HUB_SECONDS
from clia.federation import announcing, keys
from clia.federation import checks as federation_checks
from clia.hub import records as hub_records
from clia.hub.records import BRANCHES, PUBLISHED_REFS
from clia.sessions import flows
from clia.space import adoption, behaviour_chains, checks, envelope, landing, model, traces
from clia.space import adoption as taking
from clia.values import refs, types
from clia.values.typed_objects import PROMPT, SESSION_FLOW
from reference_markdown import code, page, prose, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

REFS = {
    "SPACE": ("", "a commit with `space.json`: the space's id and the format; the same in every clone"),
    "HEADS": ("<name>", "an agent: its newest commit"),
    "RECORDS": ("<name>", "the agent's record: `briefing.json` and, where lineage knew it, `profile.json`"),
    "ARCHIVE": ("<name>", "the head of an archived agent"),
    "EVENTS": ("<name>", "a chain of events: landings, refused merges, relations stated and retracted"),
    "TYPES": ("", "a chain of events: types registered here"),
    "OBJECTS": ("", "a tree that keeps typed objects, as `<2 hex>/<38 hex>.json`"),
    "TRACES": ("<name>", "notes: commit to console trace"),
    "SESSIONS": ("<name>", "notes: commit to checkpoint, the session as it was at that commit"),
    "BEHAVIOURS": ("<name>", "a chain of what happened to a behaviour; [its tree](#behaviours)"),
    "KEYS": ("", "the space's chain of public keys, each signed by the one before: who it is to peers"),
    "CAPABILITIES": ("", "what peers may have taken in here: grants and revocations, and the grants that stand"),
    "ANNOUNCE": ("<space id>", "what was announced to another space: a chain of signed statements"),
    "PEERS": ("<peer>", "who a peer is, and how far it was believed"),
    "PEERS_REMOVED": ("<space id>", "the same of a peer that was removed, should it come back"),
    "REMOTES": ("<peer>/{agents,records,notes/trace,notes/session,behaviours}/<name>", "what is tracked of a peer"),
    "TRACKING": (
        "<remote>/{clia,notes,heads}/…",
        "what was fetched from a remote, and of a hub: what it had when it was read last (`clia/hub`: the mark that was joined)",
    ),
    "PUBLISHED": ("<name>", "at a hub only: an agent's head where `clia.hubHeads` is `published`, so that it is no branch there"),
    "HUB_MARK": ("", "at a hub only: its id, where it keeps agents' heads, and the id of the store that its machines share"),
}
BEHAVIOUR_TREE = (
    (f"{behaviour_chains.VERSIONS}<cid>.json", "a version: an object of the type `behaviour`"),
    (f"{behaviour_chains.ADOPTED}<cid>", "a person let it run here"),
    (f"{behaviour_chains.RETIRED}<cid>", "it begins no more"),
    (behaviour_chains.CURRENT, "the version that the name means; missing: none does"),
)
BEHAVIOUR_EVENT = {
    "event": "what happened: " + ", ".join(code(each) for each in behaviour_chains.EVENTS),
    "cid": "the version that it happened to",
    "was": "what was current before",
    "parent": "of a proposal: the version that it came from",
    "evidence": "commits that it rests on",
    "from": "the peer whose version was adopted",
    "measure": "what it was judged by, where it was adopted on evidence",
}
TRAILERS = {
    "Clia-Agent": "who made the commit",
    "Clia-Type": "its kind: a type below `agent-commit`",
    "Clia-Briefing": "id of the briefing the agent works under",
    "Clia-Profile": "id of the profile that was merged when it was spawned",
    "Clia-Behaviour": "id of the flow whose session was live, else of the prompt that its briefing was made from; in a chain of a "
    "behaviour: the version that something happened to",
    "Clia-Parent": "in a spawn: the agent it is a sub-agent of",
    "Clia-Merged": "in a session-merge: the agent whose session was merged",
    "Clia-Meta": "open fields, as canonical JSON",
    "Clia-Event": "in a chain of events, or of a behaviour: the event, as canonical JSON",
    "Clia-Landed": "in a landing: whose work it is",
    "Clia-Range": "in a landing: `base..head` of the agent's commits",
    "Clia-Decision": "in a landing: id of a decision among them; may be repeated",
    "Clia-Request": "in a decision: the request that it answers",
    "Clia-Tag": "in a decision: the request's tag",
    "Clia-Value": "in a decision: the answer, as canonical JSON",
    "Clia-By": "in a decision: who decided",
    "Clia-Forked": "in a spawn by `session fork`: the run that was copied",
    "Clia-Key": "in the chain of keys: the signed link",
    "Clia-Announcement": "in a chain of announcements: the signed statement",
}
FINDINGS = {
    "unfinished": "a verb was begun and neither finished nor undone, and no process is at it",
    "index-row": "the index has a relation that git does not state; `clia rebuild`",
    "index-gap": "the index lacks a relation that git states; `clia rebuild`",
    "key-exposed": "a private key of the space can be read by others",
    "peer-twice": "two peers are the same space",
    "unknown-peer": "something is tracked of a peer that is none; `clia maintain` removes it",
    "unknown-place": "something is tracked where nothing of a peer is",
    "chain-broken": "a chain of announcements or keys does not follow on",
    "not-a-capability": "a commit of the capabilities is neither a grant nor a revocation",
    "capabilities-differ": "the tree of the capabilities is not what the grants and revocations come to",
    "gate-differs": "the store's gate decides otherwise than the refs say; `clia rebuild`",
    "git-fsck": "`git fsck --strict` complains",
    "invalid-name": "a branch below `agents/` is no name of an agent",
    "no-branch": "a record has no branch",
    "no-record": "a branch has no record",
    "no-genesis": "no commit of the agent is its spawn",
    "unknown-kind": "a commit is of a kind that is not registered here",
    "missing-object": "a commit or a trace names an object that is not there",
    "not-a-merge": "a session-merge has not two parents",
    "not-a-decision": "a decision changes files, or does not say what was answered, how and by whom",
    "record-differs": "the record does not hold the briefing or profile that the commits name",
    "not-typed": "a file of the record is no typed object",
    "misbound": "a trace is bound to another commit than it is of",
    "broken-behaviour": "a version of a behaviour is none or has another id, or what is current, adopted or retired is no version",
}
SETTINGS = (
    ("clia.store", "`postgresql://…`: the store; without it a SQLite file beside the repository", "`store`"),
    ("clia.hub", "the remote where the machines of the space [meet](../how-to/many-machines.md); `clia hub set` writes it", ""),
    (
        "clia.hubHeads",
        f"where the hub keeps agents' heads: `{BRANCHES}` ({code(refs.HEADS)}) or `{PUBLISHED_REFS}` ({code(refs.PUBLISHED)})",
        "",
    ),
    ("clia.hubAddress", "where the hub was seen last; clia writes it, and takes no empty repository elsewhere for the hub", ""),
    ("clia.hubSeconds", f"how long one exchange with the hub may take before it counts as away; {HUB_SECONDS} without it", ""),
    ("clia.durable", "`false`: do not flush to disk; a command then survives its process, not a power failure", "`durable`"),
    ("clia.traceEntryMax", f"characters of an entry of a trace before it is cut; {traces.ENTRY_MAX} without it", "`entry_max`"),
    ("user.name", "with `user.email`: the accountable person, committer of every agent's commits", "`person`"),
    ("commit.gpgsign", "commits are signed, as git would (`gpg.format`, `user.signingKey`)", ""),
)


def _words(*names: str) -> tuple[str, ...]:
    return tuple(getattr(said_of_versions, each) for each in names)


WORDS = {
    "`clia init`, `Space.adopt`": (taking.NEW, taking.AHEAD, taking.UNITED, taking.DIVERGED),
    "`clia hub sync`": (
        *(taking.NEW, taking.AHEAD, taking.UNITED, hub_records.PUBLISHED, hub_records.REMOVED),
        *(hub_records.FORK, taking.REFUSED, hub_records.ELSEWHERE, hub_records.UNREADABLE),
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
    _same("refs", REFS, (name for name, value in vars(refs).items() if name.isupper() and _is_ref(value)))
    said = {value for name, value in vars(model).items() if name.isupper() and str(value).startswith("Clia-")}
    _same("trailers", TRAILERS, said | {announcing.ANNOUNCEMENT, keys.KEY_TRAILER})
    _same("findings", FINDINGS, _findings())
    return page(
        "# Refs and settings of a space",
        "How these come together: [how a space works](../explanation/space.md).",
        "## Refs",
        table(("ref", "what it points at"), [(code(getattr(refs, name) + rest), told) for name, (rest, told) in REFS.items()]),
        "## Behaviours",
        "The tree of a chain is its state. One without `adopted/` and `retired/` is older than they are: people let all of it run.",
        table(("path", "what it says"), [(code(path), told) for path, told in BEHAVIOUR_TREE]),
        "`Clia-Event` of its commits has:",
        table(("field", "what it says"), [(code(field), told) for field, told in BEHAVIOUR_EVENT.items()]),
        "## Fetch rules",
        "`clia init` adds these rules to each remote:",
        table(("fetch rule",), [(code(rule),) for rule in adoption.fetch_rules("origin")]),
        "## Trailers",
        table(("trailer", "meaning"), [(code(name), told) for name, told in TRAILERS.items()]),
        "## Types",
        "Registered from the start; `clia types --add` registers more. A kind of commit descends from `agent-commit`.",
        table(("type", "a kind of", "made by"), [_type(name, parent) for name, parent in types.BUILT_IN.items()]),
        "## Settings",
        "In git's configuration, for one repository or for all of a user's. `clia.Settings` overrides them in Python.",
        table(("setting", "what it does", "in `clia.Settings`"), [(code(name), told, field) for name, told, field in SETTINGS]),
        "`CLIA_STORE` in the environment of the command line comes before `clia.store`, and `--store` before both.",
        "## Files",
        table(
            ("path", "what it is"),
            [
                (code(".git/clia/space.db"), "the store, with `-wal` and `-shm` beside it while it is open"),
                (code(".git/clia/space.db.lock"), "where writers of the store queue"),
                (
                    code(".git/clia/config.toml"),
                    "the [operator's configuration](../configuration.md)",
                ),
                (code(".git/clia/work/<agent>"), "the worktree that a worker runs `command` requests of an agent in"),
                (
                    code(".git/clia/locks/<name>"),
                    "a lock of an agent; `@space` that of the whole space. They stay, and mean nothing by themselves",
                ),
                (code(".git/clia/keys/<key>.jwk"), "a private key of the space, for its owner alone; never in git"),
                (
                    code(".git/clia/shared/<space id>.git"),
                    "what a peer may fetch from the forge: a repository of the refs that it was told",
                ),
                (code(".git/clia/clone"), "the id of this clone: what tells its machine from others"),
                (code(".git/clia/clone-place"), "where that id was made: what tells a clone from a copy of it"),
                (code(".git/clia/hub-away.json"), "there while the hub cannot be reached: since when, and why"),
                (code(".git/clia/quarantine/"), "what peers send, until it was looked at"),
                (code(".git/worktrees/<name>/clia.json"), "of a checkout: its agent and base"),
            ],
        ),
        "## Findings",
        "What `clia verify` can find; an object that cannot be read has the [code of its error](errors.md#codes). It exits 1 where "
        "there is one.",
        table(("code", "meaning"), [(code(name), told) for name, told in FINDINGS.items()]),
        "## Words in answers",
        table(("in", "words"), [(where, ", ".join(code(word) for word in words)) for where, words in WORDS.items()]),
        "## Limits",
        table(
            ("of what", "limit"),
            [
                ("a name of an agent", f"{refs.NAME_MAX} characters, {code(refs._NAME.pattern)}"),  # noqa: SLF001  # its form
                ("an entry of a trace", f"{traces.ENTRY_MAX} characters, then it is cut"),
                ("a body of a behaviour", f"{flows.SOURCE_MAX} characters"),
                ("notes of a version", f"{library.NOTES_MAX} characters"),
                ("commits that are named as evidence at a time", f"{library.EVIDENCE_MAX}"),
                ("a text to purge", "at least four characters"),
                ("the format of a space", f"{spaces.FORMAT}; another one is refused"),
            ],
        ),
    )


def _is_ref(value: object) -> bool:
    """Not the prefixes that only hold others."""
    return isinstance(value, str) and value.startswith("refs/") and value not in (refs.BRANCHES, refs.NOTES)


def _type(name: str, parent: str | None) -> tuple[str, str, str]:
    by = {
        types.SPAWN: "spawn",
        types.SESSION_MERGE: "merge, resolve",
        types.DECISION: "decide",
        types.AGENT_COMMIT: "nothing: it is the base",
    }
    return code(name), code(parent) if parent else "", by.get(name, "commit" if parent else "")


def _findings() -> set[str]:
    """The codes that ``verify`` can give."""
    found = set()
    named = ("found", "_found", "_cut_off")
    for node in (each for module in (checks, federation_checks) for each in ast.walk(ast.parse(inspect.getsource(module)))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in named:
            first = node.args[0]
            found |= {str(first.value)} if isinstance(first, ast.Constant) else set()
    return found


def _same(what: str, told: Mapping[str, object], there: Iterable[str]) -> None:
    different = set(told) ^ set(there)
    if different:
        raise SystemExit(prose(f"reference: {what} that are not described, or the other way round: {different}"))

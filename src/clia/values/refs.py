"""The ref names of a space. All of them are built here, from checked names."""

from __future__ import annotations

import re

from clia.errors import InvalidInput
from clia.values.commit_messages import check_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAME_MAX = 100
NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9-]{0,99}")
_ID = re.compile(r"[0-9a-f]{40}")
_START = re.compile(r"[0-9a-f]{7,40}")
# Characters that git refuses, and path components that are empty, start with a dot or end in "." or ".lock".
_BAD_IN_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\\ud800-\udfff]|\.\.|@\{|(?:\A|/)(?:[./]|\Z)|\.(?:lock)?(?:/|\Z)")

SPACE = "refs/clia/space"
TYPES = "refs/clia/types"
OBJECTS = "refs/clia/objects"
GUARDRAILS = "refs/clia/guardrails"
"""The guardrails that were accepted, and people's decisions on losses."""
GUARDRAILS_LOCK = "@guardrails"
HEADS = "refs/heads/agents/"
RECORDS = "refs/clia/agents/"
EVENTS = "refs/clia/events/"
ARCHIVE = "refs/clia/archive/agents/"
NOTES = "refs/notes/clia/"
TRACES = "refs/notes/clia/trace/"
SESSIONS = "refs/notes/clia/session/"
BEHAVIOURS = "refs/clia/behaviours/"
BRANCHES = "refs/heads/"
OWN = "refs/clia/own/"
"""Keeps the commits that programs made themselves in an agent's worktrees. Each clone has its own."""
OWN_NOTES = "refs/notes/clia/own"
"""Notes on such commits: the agent's commit that stands for each."""
ATTRIBUTION = "refs/notes/clia/attribution"
"""Notes on commits of people: the lines that agents wrote."""
LOCAL = "refs/clia-local/"
"""Refs that each clone has for itself. Outside ``refs/clia``, so that ``refs/clia/*`` can be fetched into another clone."""
SEEN = f"{LOCAL}seen/"
"""The newest checkpoint of each machine that a remote had: ``REMOTE/MACHINE``."""
ROLLED_BACK = f"{LOCAL}rolled-back/"
"""The older checkpoint that a remote had after a newer one: ``REMOTE/MACHINE``."""
STORE = f"{LOCAL}store"
"""The epochs of the store that belongs to this clone."""
BASES = f"{LOCAL}bases"
"""Keeps the commits of people that agents in the archive repository are based on."""
FORMER_STORE, FORMER_BASES = "refs/clia/store", "refs/clia/bases"
"""Their names in spaces of earlier versions; upkeep renames them."""
KEYS = "refs/clia/keys"
LOGS = "refs/clia/log/"
"""The moves of refs that each machine made: one chain a machine."""
CHECKPOINTS = "refs/clia/checkpoints/"
"""The checkpoints of each machine."""
COSIGNATURES = "refs/clia/cosignatures/"
"""The checkpoints that each witness cosigned."""
CAPABILITIES = "refs/clia/capabilities"
STATEMENTS = "refs/clia/statements"
"""Statements of acts that need several people, until enough have proved them."""
STATEMENTS_LOCK = "@statements"
ANNOUNCE = "refs/clia/announce/"
"""The announcements to other spaces: one chain for each, named by its id, with what it may fetch."""
PEERS = "refs/clia/peers/"
PEERS_REMOVED = "refs/clia/peers-removed/"
"""Removed peers, by their space's id: the last accepted position must outlive them."""
REMOTES = "refs/clia/remotes/"
TRACKING = "refs/clia-tracking/"
"""Refs fetched from a remote and not adopted yet. Outside ``refs/clia``, so that pruning it loses nothing."""
PUBLISHED = "refs/clia/agents-published/"
"""Where agents' heads are on servers, so that they are not branches there. Never in a clone."""
HUB_MARK = "refs/clia/hub"
"""A ref that only hubs have: the name of the hub, and where it keeps agents' heads."""
KINDS = (("clia/", "refs/clia/"), ("notes/", NOTES), ("heads/", HEADS))
"""The shared refs of a space: their place below ``TRACKING``, and their prefix."""
_OF_ONE_AGENT = (EVENTS, RECORDS, ARCHIVE, HEADS, TRACES, SESSIONS)
_OF_ALL = (SPACE, TYPES, OBJECTS, GUARDRAILS, KEYS, CAPABILITIES, STATEMENTS, ATTRIBUTION)


# The ref of a name below its prefix; of an announcement and a removed peer, the name is the id of a space.
head, record, events, archived = HEADS.__add__, RECORDS.__add__, EVENTS.__add__, ARCHIVE.__add__
traces, sessions, behaviour, own = TRACES.__add__, SESSIONS.__add__, BEHAVIOURS.__add__, OWN.__add__
log, checkpoints, cosignatures = LOGS.__add__, CHECKPOINTS.__add__, COSIGNATURES.__add__
announce, peer, removed_peer = ANNOUNCE.__add__, PEERS.__add__, PEERS_REMOVED.__add__


def published(ref: str) -> str:
    """The name on a server of a ref that is pushed: an agent's head is not a branch there."""
    return PUBLISHED + ref.removeprefix(HEADS) if ref.startswith(HEADS) else ref


def is_id(text: Any) -> bool:
    """Whether a value is a full commit id."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def is_start_of_id(text: Any) -> bool:
    """Whether a value can be an abbreviated or full commit id."""
    return isinstance(text, str) and _START.fullmatch(text) is not None


def is_name(text: Any) -> bool:
    return isinstance(text, str) and NAME_PATTERN.fullmatch(text) is not None


def check_name(text: str) -> str:
    """Return the agent's name; ``InvalidInput`` has a hint on valid names."""
    if is_name(text):
        return text
    if remote_agent(str(text)) is not None:
        raise InvalidInput(
            f"{text!r} is an agent of a peer: it can be read and merged here, but not changed",
            code="invalid-name",
            hints=[
                f"spawn your own agent at its head: clia spawn NAME --at {text}",
                f"or merge its work: clia merge AGENT {text}",
            ],
            fields={"name": text},
        )
    raise InvalidInput(
        f"{text!r} is not a valid agent name",
        code="invalid-name",
        hints=[f"lower-case letters, digits and hyphens, a letter or digit first, at most {NAME_MAX} characters: code-scout"],
        fields={"name": text},
    )


def behaviour_lock(name: str) -> str:
    """The lock of a behaviour's chain, distinct from an agent's of the same name."""
    return f"@behaviour-{name}"


def of_agent(name: str) -> list[str]:
    """Every ref that an agent may have. Events come first, because they record what was purged and must not come back."""
    return [prefix + name for prefix in _OF_ONE_AGENT]


def agent_of(ref: str) -> str | None:
    """The agent that a ref belongs to; None for one that belongs to no single agent."""
    prefix, _, name = ref.rpartition("/")
    return name if f"{prefix}/" in (*_OF_ONE_AGENT, OWN) and is_name(name) else None


def is_shared(ref: str) -> bool:
    """Whether the clones of a space share a ref. Refs about peers belong to one clone."""
    prefix, _, name = ref.rpartition("/")
    return ref in _OF_ALL or (f"{prefix}/" in (*_OF_ONE_AGENT, BEHAVIOURS) and is_name(name))


def tracking(remote: str, ref: str) -> str:
    """The tracking ref of a shared ref at a remote."""
    kind, source = next(entry for entry in KINDS if ref.startswith(entry[1]))
    return f"{TRACKING}{remote}/{kind}{ref.removeprefix(source)}"


def tracked(ref: str) -> str | None:
    """The shared ref that a tracking ref is about; None for another ref."""
    _, _, rest = ref.removeprefix(TRACKING).partition("/")
    sources = (source + rest.removeprefix(kind) for kind, source in KINDS if rest.startswith(kind))
    return next(sources, None) if ref.startswith(TRACKING) else None


def seen_mark(remote: str) -> str:
    """The ref of the mark that a hub had at the last read. The mark of the hub that this clone joined is a tracked ref."""
    return f"{TRACKING}{remote}/mark"


def announced(space_id: str) -> str:
    """The prefix of the refs announced to another space, where it fetches from. Never in the repository itself."""
    return f"refs/clia/announced/{space_id}/"


def remote(peer_name: str, place: str = "") -> str:
    """The tracking ref of a peer's ``place``, such as ``agents/scout``."""
    return f"{REMOTES}{peer_name}/{place}"


def remote_agent(text: str) -> tuple[str, str] | None:
    """The peer and the agent in ``PEER/AGENT``; None if the text has another form."""
    peer_name, slash, agent = text.partition("/")
    return (peer_name, agent) if slash and is_name(peer_name) and is_name(agent) else None


def branch(name: str) -> str:
    """The ref of a person's branch, from its short or full name."""
    short = check_text(name, "branch", nul=True).removeprefix(BRANCHES)
    if short.startswith("-") or _BAD_IN_REF.search(short):
        raise InvalidInput(f"{name!r} is not a branch name", code="invalid-branch", fields={"branch": name})
    return BRANCHES + short

"""Which ref holds what. Every ref name of a space is made here, from names that were checked before."""

from __future__ import annotations

import re

from clia.errors import InvalidInput
from clia.values.commit_messages import check_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAME_MAX = 100
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,99}")
_ID = re.compile(r"[0-9a-f]{40}")
_START = re.compile(r"[0-9a-f]{7,40}")
_BAD_IN_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\\ud800-\udfff]|\.\.|@\{")

SPACE = "refs/clia/space"
TYPES = "refs/clia/types"
OBJECTS = "refs/clia/objects"
HEADS = "refs/heads/agents/"
RECORDS = "refs/clia/agents/"
EVENTS = "refs/clia/events/"
ARCHIVE = "refs/clia/archive/agents/"
NOTES = "refs/notes/clia/"
TRACES = "refs/notes/clia/trace/"
SESSIONS = "refs/notes/clia/session/"
BEHAVIOURS = "refs/clia/behaviours/"
BRANCHES = "refs/heads/"
KEYS = "refs/clia/keys"
CAPABILITIES = "refs/clia/capabilities"
ANNOUNCE = "refs/clia/announce/"
"""What was said to another space, a chain for each, named by that space's id: so that it knows what to fetch."""
PEERS = "refs/clia/peers/"
PEERS_REMOVED = "refs/clia/peers-removed/"
"""Peers that were taken away, by their space's id: how far they were believed must outlive them."""
REMOTES = "refs/clia/remotes/"
TRACKING = "refs/clia-tracking/"
"""What was fetched from a remote and not yet adopted. Outside ``refs/clia``, so that pruning it can lose nothing."""
PUBLISHED = "refs/clia/agents-published/"
"""Where a hub keeps the heads of agents that are to be no branches there. Never in a clone."""
HUB_MARK = "refs/clia/hub"
"""A ref that only hubs have: what the hub is called, and where it keeps agents' heads."""
KINDS = (("clia/", "refs/clia/"), ("notes/", NOTES), ("heads/", HEADS))
"""What of a space is shared, by the kind it has below ``TRACKING``."""
_OF_ONE_AGENT = (EVENTS, RECORDS, ARCHIVE, HEADS, TRACES, SESSIONS)
_OF_ALL = (SPACE, TYPES, OBJECTS, KEYS, CAPABILITIES)


def is_id(text: Any) -> bool:
    """Whether a text is a full id."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def is_start_of_id(text: Any) -> bool:
    """Whether a text can be meant as the start of an id, or as a whole one."""
    return isinstance(text, str) and _START.fullmatch(text) is not None


def is_name(text: Any) -> bool:
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def check_name(text: str) -> str:
    """The agent's name itself, or ``InvalidInput`` with what a name may look like."""
    if is_name(text):
        return text
    if remote_agent(str(text)) is not None:
        raise InvalidInput(
            f"{text!r} is an agent of a peer: here it can be read and merged, not worked on",
            code="invalid-name",
            hints=[
                f"an agent of your own at its head: clia spawn NAME --at {text}",
                f"or take its work in: clia merge AGENT {text}",
            ],
            fields={"name": text},
        )
    raise InvalidInput(
        f"{text!r} is not an agent's name",
        code="invalid-name",
        hints=[f"lower-case letters, digits and hyphens, a letter or digit first, at most {NAME_MAX} characters: code-scout"],
        fields={"name": text},
    )


def head(name: str) -> str:
    return HEADS + name


def record(name: str) -> str:
    return RECORDS + name


def events(name: str) -> str:
    return EVENTS + name


def archived(name: str) -> str:
    return ARCHIVE + name


def traces(name: str) -> str:
    return TRACES + name


def sessions(name: str) -> str:
    return SESSIONS + name


def behaviour(name: str) -> str:
    return BEHAVIOURS + name


def behaviour_lock(name: str) -> str:
    """The lock of a behaviour's chain: an agent may have the same name."""
    return f"@behaviour-{name}"


def of_agent(name: str) -> list[str]:
    """Every ref that an agent may have, events first: they say what must not come back."""
    return [prefix + name for prefix in _OF_ONE_AGENT]


def is_shared(ref: str) -> bool:
    """Whether a ref is of a kind that the clones of a space share. What is about peers belongs to one clone."""
    if ref in _OF_ALL:
        return True
    return any(ref.startswith(prefix) and is_name(ref.removeprefix(prefix)) for prefix in (*_OF_ONE_AGENT, BEHAVIOURS))


def tracking(remote: str, ref: str) -> str:
    """Where the value that a shared ref has at a remote is kept."""
    kind, source = next(each for each in KINDS if ref.startswith(each[1]))
    return f"{TRACKING}{remote}/{kind}{ref.removeprefix(source)}"


def seen_mark(remote: str) -> str:
    """Where the mark is kept that a hub had when it was read last. The one that this clone has joined is tracked, and stays."""
    return f"{TRACKING}{remote}/mark"


def announce(space_id: str) -> str:
    return ANNOUNCE + space_id


def announced(space_id: str) -> str:
    """Below it, where another space can fetch from: the refs that it was told about. Never in the repository itself."""
    return f"refs/clia/announced/{space_id}/"


def peer(name: str) -> str:
    return PEERS + name


def removed_peer(space_id: str) -> str:
    return PEERS_REMOVED + space_id


def remote(peer_name: str, place: str = "") -> str:
    """Where something of a peer is tracked; ``place`` as ``agents/scout``."""
    return f"{REMOTES}{peer_name}/{place}"


def remote_agent(text: str) -> tuple[str, str] | None:
    """The peer and the agent that ``PEER/AGENT`` names; None where a text does not look like it."""
    peer_name, slash, agent = text.partition("/")
    return (peer_name, agent) if slash and is_name(peer_name) and is_name(agent) else None


def branch(name: str) -> str:
    """The ref of a branch of people, from its short or full name."""
    short = check_text(name, "branch", nul=True).removeprefix(BRANCHES)
    parts = short.split("/")
    if not short or short.startswith("-") or _BAD_IN_REF.search(short) or any(_is_bad_part(each) for each in parts):
        raise InvalidInput(f"{name!r} is no name of a branch", code="invalid-branch", fields={"branch": name})
    return BRANCHES + short


def _is_bad_part(part: str) -> bool:
    return not part or part.startswith(".") or part.endswith((".", ".lock"))

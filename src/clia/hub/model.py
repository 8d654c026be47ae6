"""Records of the hub: its status, the result of a sync, forks and outages."""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.verbs import Count

Move = tuple[str, str | None, str | None]
"""A ref, its expected value and its new value; None: absent."""
BRANCHES, PUBLISHED_REFS = "branches", "published"
"""Where the hub keeps agents' heads: as branches, or outside of them, so that a forge does not offer pull requests."""
PUBLISHED, FORK, REMOVED, ELSEWHERE, UNREADABLE = "published", "fork", "gone", "elsewhere", "unreadable"


class Outage(NamedTuple):
    """The hub is unreachable."""

    since: float  # seconds since the epoch
    reason: str


class Elsewhere(NamedTuple):
    """Work that another machine has not published yet."""

    agent: str  # the agent
    clone: str  # id of the clone that has it
    since: str  # RFC 3339


class HubSynced(NamedTuple):
    """The result of a sync for one ref."""

    ref: str  # the ref
    what: str
    """`new`, `ahead`, `united` or `gone` here, `published` or `gone` at the hub. A ref that was left alone is a `fork`, `purged`
    here, `unreadable` or `elsewhere` (another machine has unpublished work), or has an error code: `hub-refused` (the server does
    not allow it), `branch-checked-out`"""
    cid: str | None  # where the ref is now
    reason: str = ""  # why it was left alone; the server's message if it refused


class Fork(NamedTuple):
    """An agent with different new commits here and at the hub."""

    agent: str  # the agent
    base: str | None  # the last common commit
    ours: str  # the head here
    theirs: str  # the head at the hub
    ahead: Count  # commits only here
    behind: Count  # commits only at the hub


class HubStatus(NamedTuple):
    """Whether this clone is in sync with the hub."""

    remote: str  # name of the git remote
    address: str  # its URL
    heads: str  # branches, published
    clone: str  # id of this clone
    shared_store: bool  # whether all clones share one database
    away_since: str | None  # when the hub became unreachable; RFC 3339
    away_reason: str | None  # why it is unreachable
    refs: Count  # shared refs here
    owed: tuple[str, ...]  # refs not published yet
    behind: tuple[str, ...]  # refs that were newer at the hub when it was last fetched
    forks: tuple[Fork, ...]  # agents with different new commits here and at the hub
    elsewhere: tuple[Elsewhere, ...]  # unpublished work on other machines

"""The verbs of the hub, and the shapes of what they answer with.

Invariant: whoever may look sees how a clone and its hub stand to each other; what moves refs, and who decides about a fork, is an
admin.
"""

from __future__ import annotations

from clia.api.records import MAYBE_STRING
from clia.api.shapes import COUNT, FLAG, STRING, TEXT, Listed, Mapped, Optional, Record
from clia.api.verbs import ADMIN, GET, POST, VIEWER, Verb, body
from clia.hub.records import Elsewhere, Fork, HubStatus, Synced

_TUPLE = Listed(STRING, tuple)
_FORK = Record(Fork, agent=STRING, base=MAYBE_STRING, ours=STRING, theirs=STRING, ahead=COUNT, behind=COUNT)
_ELSEWHERE = Record(Elsewhere, agent=STRING, clone=STRING, since=STRING)
# Federation has a Synced of its own.
HUB_SYNCED = Record(Synced, "HubSynced", ref=STRING, what=STRING, cid=MAYBE_STRING, reason=STRING)
HUB_STATUS = Record(
    HubStatus,
    remote=STRING,
    address=STRING,
    heads=STRING,
    clone=STRING,
    shared_store=FLAG,
    away_since=MAYBE_STRING,
    away_reason=MAYBE_STRING,
    refs=COUNT,
    owed=_TUPLE,
    behind=_TUPLE,
    forks=Listed(_FORK, tuple),
    elsewhere=Listed(_ELSEWHERE, tuple),
)

HUB_VERBS = (
    Verb(
        "hub_status",
        GET,
        "/hub",
        VIEWER,
        (),
        HUB_STATUS,
        "How the clone that is served and its hub stand to each other, as far as is known; nothing is asked.",
        "upkeep",
    ),
    Verb(
        "hub_sync",
        POST,
        "/hub/sync",
        ADMIN,
        (body("forks", Optional(Mapped(TEXT)), None), body("abandon", Listed(TEXT), ())),
        Listed(HUB_SYNCED),
        "Takes over what the hub has, and publishes what it has not. It answers when it is done, which may take minutes.",
        "upkeep",
    ),
)

"""The verb of the fleet, and the shapes of what it answers with."""

from __future__ import annotations

from clia.api.records import MAYBE_STRING
from clia.api.shapes import COUNT, FLAG, NUMBER, STRING, Listed, Optional, Record
from clia.api.verbs import GET, VIEWER, Verb
from clia.workers.fleet import Depth, Fleet, HubStanding, Lease, Machine, Oldest, Process, Underway

_TUPLE = Listed(STRING, tuple)
_UNDERWAY = Record(Underway, agent=STRING, request=STRING, kind=STRING, attempt=COUNT, since=NUMBER)
_HUB = Record(HubStanding, owed=_TUPLE, away_since=Optional(NUMBER), forks=_TUPLE)
_PROCESS = Record(
    Process,
    kind=STRING,
    name=STRING,
    machine=STRING,
    clone=STRING,
    pid=COUNT,
    version=STRING,
    started_at=NUMBER,
    seen_at=NUMBER,
    age=NUMBER,
    state=STRING,
    clock_off=NUMBER,
    kinds=_TUPLE,
    concurrency=COUNT,
    answered=COUNT,
    retried=COUNT,
    given_up=COUNT,
    running=Listed(_UNDERWAY, tuple),
    trouble=MAYBE_STRING,
)
_MACHINE = Record(
    Machine,
    machine=STRING,
    clone=STRING,
    state=STRING,
    workers=COUNT,
    forges=COUNT,
    running=COUNT,
    clock_off=NUMBER,
    hub=Optional(_HUB),
)
_LEASE = Record(
    Lease, agent=STRING, request=STRING, kind=STRING, attempt=COUNT, worker=STRING, holder=STRING, until=NUMBER, left=NUMBER
)
_DEPTH = Record(Depth, kind=STRING, due=COUNT, held=COUNT, later=COUNT, elsewhere=COUNT, workers=COUNT)
_OLDEST = Record(Oldest, agent=STRING, request=STRING, kind=STRING, since=NUMBER, age=NUMBER, elsewhere=FLAG)
FLEET = Record(
    Fleet,
    at=NUMBER,
    machines=Listed(_MACHINE, tuple),
    workers=Listed(_PROCESS, tuple),
    forges=Listed(_PROCESS, tuple),
    leases=Listed(_LEASE, tuple),
    queue=Listed(_DEPTH, tuple),
    questions=COUNT,
    people=Optional(_OLDEST),
    work=Optional(_OLDEST),
)

FLEET_VERBS = (
    Verb(
        "fleet",
        GET,
        "/fleet",
        VIEWER,
        (),
        FLEET,
        "Which machines and workers work on the space, who has what until when, and what waits and since when.",
        "upkeep",
    ),
)

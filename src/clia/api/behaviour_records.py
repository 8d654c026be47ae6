"""The shapes of what the verbs of behaviours answer with, one for each record of the library."""

from __future__ import annotations

from clia.api.records import MAYBE_STRING
from clia.api.shapes import ANY, COUNT, FLAG, NUMBER, OBJECT, STRING, WHOLE, Listed, Mapped, Optional, Record
from clia.behaviours.model import (
    BehaviourEvent,
    BehaviourStats,
    BehaviourVersion,
    Candidate,
    Compared,
    Comparison,
    KnownBehaviour,
    Period,
    Rate,
    Replayed,
    ReplayStep,
    Suggestion,
)

_TUPLE = Listed(STRING, tuple)
_COUNTS = Mapped(COUNT)
_FAILURE = Optional(OBJECT)

BEHAVIOUR_VERSION = Record(
    BehaviourVersion,
    name=STRING,
    cid=STRING,
    kind=STRING,
    state=STRING,
    body=STRING,
    parent=MAYBE_STRING,
    notes=STRING,
    by=STRING,
    at=WHOLE,
    why=STRING,
    evidence=_TUPLE,
    origin=MAYBE_STRING,
)
_EVENT = Record(
    BehaviourEvent,
    commit=STRING,
    event=STRING,
    cid=STRING,
    by=STRING,
    at=WHOLE,
    why=STRING,
    evidence=_TUPLE,
    measure=MAYBE_STRING,
)
KNOWN_BEHAVIOUR = Record(
    KnownBehaviour,
    name=STRING,
    kind=STRING,
    current=MAYBE_STRING,
    versions=Listed(BEHAVIOUR_VERSION, tuple),
    history=Listed(_EVENT, tuple),
)
_RATE = Record(Rate, measure=STRING, good=COUNT, n=COUNT, rate=Optional(NUMBER), low=NUMBER, high=NUMBER)
_RATES = Listed(_RATE, tuple)
BEHAVIOUR_STATS = Record(
    BehaviourStats,
    cid=STRING,
    name=MAYBE_STRING,
    state=MAYBE_STRING,
    commits=_COUNTS,
    sessions=_COUNTS,
    decisions=_COUNTS,
    merges=_COUNTS,
    outcomes=_COUNTS,
    landed=COUNT,
    reverted=COUNT,
    merge_seconds=_COUNTS,
    land_seconds=_COUNTS,
    trace=_COUNTS,
    tokens=_COUNTS,
    first=MAYBE_STRING,
    last=MAYBE_STRING,
    rates=_RATES,
    series=Listed(Record(Period, start=STRING, rates=_RATES), tuple),
)
_COMPARED = Record(
    Compared,
    measure=STRING,
    before=_RATE,
    after=_RATE,
    better=Optional(NUMBER),
    low=NUMBER,
    high=NUMBER,
    proven=WHOLE,
)
COMPARISON = Record(Comparison, before=BEHAVIOUR_STATS, after=BEHAVIOUR_STATS, measures=Listed(_COMPARED, tuple))
SUGGESTION = Record(
    Suggestion,
    name=STRING,
    action=STRING,
    cid=MAYBE_STRING,
    measure=STRING,
    current=_RATE,
    candidates=Listed(Record(Candidate, cid=STRING, state=STRING, compared=_COMPARED, needed=Optional(COUNT)), tuple),
    why=STRING,
    evidence=_TUPLE,
    least=COUNT,
    error=NUMBER,
    expect=MAYBE_STRING,
)
_STEPS = Listed(
    Record(
        ReplayStep,
        kind=STRING,
        tag=MAYBE_STRING,
        payload=ANY,
        line=WHOLE,
        answered=FLAG,
        recorded=Optional(COUNT),
        value=ANY,
        error=MAYBE_STRING,
    ),
    tuple,
)
REPLAYED = Record(
    Replayed,
    agent=STRING,
    session=STRING,
    flow=STRING,
    with_=STRING,
    same=FLAG,
    steps=_STEPS,
    departs_at=Optional(COUNT),
    recorded=_STEPS,
    unasked=Listed(COUNT, tuple),
    ended=FLAG,
    result=ANY,
    failure=_FAILURE,
    recorded_status=STRING,
    recorded_result=ANY,
    recorded_failure=_FAILURE,
    printed=STRING,
    in_part=FLAG,
)

"""Shapes of the records that tools return, by name."""

from __future__ import annotations

from clia.api.derivation import record_of, shape_of
from clia.api.shapes import STRING, TEXT, Listed, Mapped, Optional
from clia.api.special_shapes import CONTENT
from clia.behaviours.model import BehaviourStats, BehaviourVersion, Comparison, Suggestion
from clia.federation.model import Peer, Remote
from clia.git.records import FileChange
from clia.sessions.answers import Rule
from clia.sessions.model import Flow, Request
from clia.sessions.service import SessionRecord
from clia.space.checks import Report
from clia.space.maintenance import AgentState
from clia.space.model import AgentCommit, Conflicts, Merged, Spawned, TraceHit, UpToDate
from clia.store.interface import Edge
from clia.values.typed_objects import Briefing, ConsoleTrace

MAYBE_TEXT, MAYBE_STRING, STRINGS = Optional(TEXT), Optional(STRING), Listed(STRING)
FILES, CHANGES = Mapped(CONTENT), Mapped(Optional(CONTENT))
BEHAVIOUR_STATS, BEHAVIOUR_VERSION = record_of(BehaviourStats), record_of(BehaviourVersion)
BRIEFING, TRACE = record_of(Briefing), record_of(ConsoleTrace)
CHANGE, COMMIT, EDGE = record_of(FileChange), record_of(AgentCommit), record_of(Edge)
COMPARISON, SUGGESTION = record_of(Comparison), record_of(Suggestion)
FLOW, GIVEN, REQUEST, RULE = record_of(Flow), record_of(SessionRecord), record_of(Request), record_of(Rule)
MERGED, MERGING = record_of(Merged), shape_of(Merged | UpToDate | Conflicts)
PEER, REMOTE, REPORT = record_of(Peer), record_of(Remote), record_of(Report)
SPAWNED, STATE, TRACE_HIT = record_of(Spawned), record_of(AgentState), record_of(TraceHit)

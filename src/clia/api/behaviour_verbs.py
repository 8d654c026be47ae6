"""The verbs of behaviours: versions, what was observed of them, and what follows.

Invariant: what runs here is an admin's to say, and so is what is written in the name of the accountable person or of an agent: a
proposal, too. Whoever only looks changes nothing and runs nothing.
"""

from __future__ import annotations

from clia.api.behaviour_records import (
    BEHAVIOUR_STATS,
    BEHAVIOUR_VERSION,
    COMPARISON,
    KNOWN_BEHAVIOUR,
    REPLAYED,
    SUGGESTION,
)
from clia.api.records import BRIEFING
from clia.api.shapes import COUNT, FLAG, STRING, TEXT, Listed, Optional
from clia.api.verbs import ADMIN, GET, POST, PUT, VIEWER, Verb, body, path_, query

_NAME = path_("name")
_KIND = body("kind", TEXT, None)
_WHY = body("why", TEXT, "")
_BY = body("by", TEXT, None)
_NOTES = body("notes", TEXT, "")
_EVIDENCE = body("evidence", Listed(TEXT), ())
_VERSION = body("version", TEXT, None)
_EXPECT = body("expect", TEXT, None)

_READING = (
    Verb(
        "behaviours",
        GET,
        "/behaviours",
        VIEWER,
        (),
        Listed(KNOWN_BEHAVIOUR),
        "Every behaviour here with its versions.",
        "behaviours",
    ),
    Verb(
        "behaviour",
        GET,
        "/behaviours/{name}",
        VIEWER,
        (_NAME,),
        KNOWN_BEHAVIOUR,
        "A behaviour by its name: its versions, and what happened to them.",
        "behaviours",
    ),
    Verb(
        "behaviour_version",
        GET,
        "/behaviour-versions/{text}",
        VIEWER,
        (path_("text"),),
        BEHAVIOUR_VERSION,
        "A version: a name's current one, one by its id, or a peer's current one.",
        "behaviours",
    ),
    Verb(
        "behaviour_diff",
        GET,
        "/behaviour-diffs/{one}/{other}",
        VIEWER,
        (path_("one"), path_("other")),
        STRING,
        "What a version's body changes in another's, as a patch.",
        "behaviours",
    ),
    Verb(
        "brief",
        POST,
        "/behaviour-briefings",
        VIEWER,
        (body("prompt"), body("title"), body("task", TEXT, ""), body("agent", TEXT, "")),
        BRIEFING,
        "The briefing that a prompt makes for a task; nobody is spawned.",
        "behaviours",
    ),
)

_CHANGING = (
    Verb(
        "add_behaviour",
        PUT,
        "/behaviours/{name}",
        ADMIN,
        (_NAME, body("body"), _KIND, _WHY, _NOTES, _BY),
        BEHAVIOUR_VERSION,
        "A version of a behaviour, which is current at once.",
        "behaviours",
    ),
    Verb(
        "propose_behaviour",
        POST,
        "/behaviours/{name}/proposals",
        ADMIN,
        (_NAME, body("body"), _KIND, body("parent", TEXT, None), _EVIDENCE, _WHY, _NOTES, body("agent", TEXT, None)),
        BEHAVIOUR_VERSION,
        "A candidate, with the commits that prompted it; it runs when a person has adopted it.",
        "behaviours",
    ),
    Verb(
        "adopt_behaviour",
        POST,
        "/behaviours/{name}/adopt",
        ADMIN,
        (_NAME, _VERSION, body("trial", FLAG, False), _EXPECT, _EVIDENCE, body("measure", TEXT, None), _WHY, _BY),
        BEHAVIOUR_VERSION,
        "Makes a version what its name means, or lets it run on trial.",
        "behaviours",
    ),
    Verb(
        "retire_behaviour",
        POST,
        "/behaviours/{name}/retire",
        ADMIN,
        (_NAME, _VERSION, _EXPECT, _WHY, _BY),
        BEHAVIOUR_VERSION,
        "A version, the current one unless told, starts no more.",
        "behaviours",
    ),
    Verb(
        "follow_policy",
        POST,
        "/behaviours/{name}/follow-policy",
        ADMIN,
        (_NAME,),
        Optional(BEHAVIOUR_VERSION),
        "Adopts what is suggested, where the operator's policy lets that happen without a person.",
        "behaviours",
    ),
)

_OBSERVED = (
    Verb(
        "behaviour_stats",
        GET,
        "/behaviour-stats",
        VIEWER,
        (query("text", None), query("over", None)),
        Listed(BEHAVIOUR_STATS),
        "What was observed of a behaviour's versions, of one version, or of everything that ever ran.",
        "behaviours",
    ),
    Verb(
        "observation_gaps",
        GET,
        "/observation-gaps",
        VIEWER,
        (),
        COUNT,
        "How much of the record could not be told, since the clone has it only in part.",
        "behaviours",
    ),
    Verb(
        "compare_behaviours",
        GET,
        "/behaviour-comparisons/{before}/{after}",
        VIEWER,
        (path_("before"), path_("after")),
        COMPARISON,
        "Two versions side by side, and the probability that the later is better.",
        "behaviours",
    ),
    Verb(
        "suggest_behaviour",
        GET,
        "/behaviours/{name}/suggestion",
        VIEWER,
        (_NAME, query("measure", None)),
        SUGGESTION,
        "Whether to adopt, keep or retire a version, with the commits that say so.",
        "behaviours",
    ),
    Verb(
        "replay_behaviour",
        POST,
        "/agents/{agent}/replays",
        ADMIN,
        (path_("agent"), body("with_"), body("session_id", TEXT, None)),
        REPLAYED,
        "How a past session would have gone under another version of its flow; nothing is written.",
        "behaviours",
    ),
)

BEHAVIOUR_VERBS = _READING + _CHANGING + _OBSERVED

"""The verbs of keys, peers, capabilities, announcing and listening.

Invariant: whom a space works with, what it lets in and what it tells is an admin's to say; whoever only looks moves no ref. The
bounds of a transfer are the space's own: nothing in a request widens them.
"""

from __future__ import annotations

from clia.api.records import ANNOUNCED, EXPLAINED, GRANT, KEY, PEER, REFUSED, REMOTE, REMOTE_BEHAVIOUR, SYNCED, UNTAKEN
from clia.api.shapes import FLAG, TEXT, WHOLE, Listed, Optional
from clia.api.verbs import ADMIN, GET, POST, PUT, VIEWER, Verb, body, path_, query

_NAME = path_("name")
_ASKED = (query("peer"), query("type_"), query("trigger"), query("execute", False, FLAG))

_KEYS = (
    # The first look at it makes it, so it is not for those who may change nothing.
    Verb("key", GET, "/key", ADMIN, (), KEY, "Who this space is to others: what they pin.", "federation"),
    Verb(
        "rotate_key",
        POST,
        "/key/rotate",
        ADMIN,
        (body("lost", FLAG, False),),
        KEY,
        "A new key, signed by the one before it; where that is lost, a new identity.",
        "federation",
    ),
)

_PEERS = (
    Verb("peers", GET, "/peers", VIEWER, (), Listed(PEER), "Every peer.", "federation"),
    Verb(
        "add_peer",
        POST,
        "/peers",
        ADMIN,
        (body("name"), body("key"), body("url", TEXT, None), body("trusted", FLAG, True)),
        PEER,
        "Pins another space by its key.",
        "federation",
    ),
    Verb("peer", GET, "/peers/{name}", VIEWER, (_NAME,), PEER, "One peer.", "federation"),
    Verb(
        "change_peer",
        POST,
        "/peers/{name}",
        ADMIN,
        (_NAME, body("url", TEXT, None), body("trusted", Optional(FLAG), None)),
        PEER,
        "Another address for a peer, or other trust; what is left out stays.",
        "federation",
    ),
    Verb(
        "share",
        PUT,
        "/peers/{name}/share",
        ADMIN,
        (
            _NAME,
            body("agents", Listed(TEXT), ()),
            body("traces", FLAG, False),
            body("sessions", FLAG, False),
            body("behaviours", Listed(TEXT), ()),
        ),
        PEER,
        "What a peer is told about from now on, and nothing else; * stands for all.",
        "federation",
    ),
    Verb(
        "remove_peer",
        POST,
        "/peers/{name}/remove",
        ADMIN,
        (_NAME,),
        None,
        "Takes a peer away with its grants and all that is tracked of it.",
        "federation",
    ),
    Verb(
        "refusals",
        GET,
        "/peers/{name}/refusals",
        VIEWER,
        (_NAME,),
        Listed(REFUSED),
        "What was not taken from a peer, and why.",
        "federation",
    ),
    Verb(
        "waiting",
        GET,
        "/peers/{name}/waiting",
        VIEWER,
        (_NAME,),
        Listed(UNTAKEN),
        "What a peer says and is not carried out here, and why.",
        "federation",
    ),
)

_CAPABILITIES = (
    Verb("grants", GET, "/capabilities", VIEWER, (query("peer", None),), Listed(GRANT), "What is granted.", "federation"),
    Verb(
        "grant",
        POST,
        "/capabilities",
        ADMIN,
        (body("peer"), body("type_"), body("trigger"), body("execute", FLAG, False), body("expires", Optional(WHOLE), None)),
        GRANT,
        "Lets a peer have something taken in here.",
        "federation",
    ),
    Verb(
        "revoke",
        POST,
        "/capabilities/revoke",
        ADMIN,
        (body("peer"), body("type_", TEXT, None), body("trigger", TEXT, None), body("cid", TEXT, None)),
        Listed(GRANT),
        "Takes grants back, at once; those that it took.",
        "federation",
    ),
    Verb(
        "explain",
        GET,
        "/capabilities/explain",
        VIEWER,
        _ASKED,
        EXPLAINED,
        "Which grant, trust and subtype allow something, or what is missing.",
        "federation",
    ),
    Verb("allowed", GET, "/capabilities/allowed", VIEWER, _ASKED, FLAG, "Whether something of a peer's is let in.", "federation"),
)

_SPEAKING = (
    Verb(
        "announce",
        POST,
        "/announcements",
        ADMIN,
        (body("peer", TEXT, None), body("snapshot", FLAG, False), body("push", TEXT, None)),
        Listed(ANNOUNCED),
        "Tells one peer, or all, what is new of what is shared with it.",
        "federation",
    ),
    Verb(
        "sync",
        POST,
        "/sync",
        ADMIN,
        (body("peer", TEXT, None),),
        Listed(SYNCED),
        "Listens to one peer, or to all. It answers when it is done, which may take minutes.",
        "federation",
    ),
    Verb(
        "remotes",
        GET,
        "/remotes",
        VIEWER,
        (query("peer", None),),
        Listed(REMOTE),
        "The agents of one peer, or of all, as they are tracked here.",
        "federation",
    ),
    Verb(
        "remote_behaviours",
        GET,
        "/remote-behaviours",
        VIEWER,
        (query("peer", None),),
        Listed(REMOTE_BEHAVIOUR),
        "The behaviours of one peer, or of all, as they are tracked here.",
        "federation",
    ),
)

FEDERATION_VERBS = _KEYS + _PEERS + _CAPABILITIES + _SPEAKING

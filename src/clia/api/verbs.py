"""The one table of verbs: what can be asked of a space over HTTP, by whom, with what, and what comes back.

Invariant: every public verb of ``Space`` is here, or in ``LOCAL`` with the reason why it stays on its machine; a test holds that.
Server, OpenAPI document and remote client are all made from this table, so none of them can say something else.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.api.records import MAYBE_TEXT
from clia.api.shapes import ANY, TEXT, Listed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from clia.api.shapes import Shape

VIEWER, DECIDER, ADMIN = "viewer", "decider", "admin"
PATH, QUERY, BODY = "path", "query", "body"
GET, POST, PUT = "GET", "POST", "PUT"
REQUIRED: Any = object()


class Param(NamedTuple):
    """One thing that a verb takes; ``name`` is the library's, ``key`` what the wire calls it."""

    name: str
    where: str
    shape: Shape
    default: Any = REQUIRED

    @property
    def key(self) -> str:
        return self.name.rstrip("_")

    @property
    def required(self) -> bool:
        return self.default is REQUIRED


class Verb(NamedTuple):
    name: str
    method: str
    path: str  # below a space's address
    role: str
    params: tuple[Param, ...]
    result: Shape | None  # None: nothing comes back
    summary: str
    tag: str
    moves: str | None = None  # the parameter that names the agent whose head it moves: If-Match is its expected head
    base: str | None = None  # the parameter that carries the expected head into the library, where the verb itself checks it
    shows: str | None = None  # the parameter that names the agent whose head is the answer's ETag

    @property
    def paged(self) -> bool:
        """Whether the answer is a list that comes in pages. What a change answers with comes whole: it is not made again."""
        return type(self.result) is Listed and not self.changes

    @property
    def changes(self) -> bool:
        return self.method != GET


def path_(name: str) -> Param:
    return Param(name, PATH, TEXT)


def query(name: str, default: Any = REQUIRED, shape: Shape = TEXT) -> Param:
    return Param(name, QUERY, MAYBE_TEXT if default is None and shape is TEXT else shape, default)


def body(name: str, shape: Shape = TEXT, default: Any = REQUIRED) -> Param:
    return Param(name, BODY, MAYBE_TEXT if default is None and shape is TEXT else shape, default)


def value(name: str = "value", default: Any = REQUIRED) -> Param:
    return Param(name, BODY, ANY, default)


LOCAL = {
    "close": "it lets go of a handle",
    "running": "workers run beside the store",
    "captures": "ingest runs beside the repository",
    "commit_dir": "the directory is on the caller's machine: send files",
    "checkout": "the directory is on the caller's machine: read files",
    "checkout_at": "the directory is on the caller's machine",
    "has_hub": "the hub is the clone's that the space is in: ask for its status",
    "elsewhere": "workers run beside the store: the status of the hub tells it too",
    "meet": "workers run beside the store: whatever works on an agent does this first",
    "peer_tokens": "tokens are checked by the forge that has the keys",
}
"""The library's verbs that have no address, and why."""


def all_verbs() -> tuple[Verb, ...]:
    from clia.api.behaviour_verbs import BEHAVIOUR_VERBS
    from clia.api.federation_verbs import FEDERATION_VERBS
    from clia.api.fleet_verbs import FLEET_VERBS
    from clia.api.hub_verbs import HUB_VERBS
    from clia.api.session_verbs import SESSION_VERBS
    from clia.api.space_verbs import SPACE_VERBS

    return SPACE_VERBS + SESSION_VERBS + BEHAVIOUR_VERBS + FEDERATION_VERBS + FLEET_VERBS + HUB_VERBS

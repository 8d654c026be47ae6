"""One route for each verb of the table.

Invariant: a route checks in this order, and nothing changes before all of it holds: who asks, whether they may, what they say,
which head they expect, whether they asked already. Then the library does the rest, and its errors are the answer.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, NoMatchFound, request_response

from clia.api.derivation import all_verbs
from clia.errors import BackendError, CliaError, InvalidInput, NotAllowed, StaleRef
from clia.forge.api.idempotency import Kept, Once
from clia.forge.api.paging import page_of, page_size
from clia.forge.api.reading import arguments
from clia.forge.auth import check_csrf, require
from clia.space.model import Landed
from clia.values.commit_messages import check_text
from clia.values.refs import is_id
from clia.verbs import GET

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from typing import Any

    from starlette.datastructures import URLPath
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from clia.api.derivation import Verb
    from clia.facade.space import Space
    from clia.forge.forge import Forge, Site
    from clia.users.service import User

PREFIX = "/api/v1/spaces/{space}"
_JSON = "application/json"


class Call(NamedTuple):
    """One request for a verb, read and allowed."""

    verb: Verb
    site: Site
    user: User
    args: dict[str, Any]
    if_match: str | None
    if_none_match: str | None
    cursor: str | None
    size: int


def verb_routes() -> list[BaseRoute]:
    """Those whose last part may hold a slash come last, so that they hide no other."""
    found: dict[str, dict[str, Verb]] = {}
    for verb in all_verbs():
        found.setdefault(re.sub(r"\{\w+\}", "{}", verb.path), {})[verb.method] = verb
    return [*sorted((VerbRoute(path, verbs) for path, verbs in found.items()), key=lambda route: route.open_ended)]


class VerbRoute(BaseRoute):
    """The verbs of one path.

    Its parts are told apart before they are decoded: a part may be empty, be dots or hold an encoded slash, and it is the verb
    that says what is wrong with it.
    """

    def __init__(self, path: str, verbs: Mapping[str, Verb]) -> None:
        self.path = PREFIX + path
        self.open_ended = any(verb.name == "show" for verb in verbs.values())  # names of branches have slashes
        pattern = re.escape(self.path).replace(r"\{space\}", "([^/]*)").replace(r"\{\}", "([^/]*)")
        if self.open_ended:
            pattern = pattern.removesuffix("([^/]*)") + "(.*)"
        self._pattern = re.compile(pattern.encode("ascii"))
        self._verbs = verbs
        self._endpoints = {method: request_response(_endpoint(verb)) for method, verb in verbs.items()}
        if GET in verbs:
            self._endpoints["HEAD"] = self._endpoints[GET]

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        found = self._pattern.fullmatch(_raw_path(scope)) if scope["type"] == "http" else None
        if found is None:
            return Match.NONE, {}
        try:
            parts = [unquote_to_bytes(part).decode("utf-8") for part in found.groups()]
        except UnicodeDecodeError:
            return Match.NONE, {}
        verb = self._verbs.get("GET" if scope["method"] == "HEAD" else scope["method"])
        if verb is None:
            return Match.FULL, {"endpoint": self}
        names = ["space", *(each[1:-1] for each in verb.path.split("/") if each.startswith("{"))]
        made = {"path_params": dict(zip(names, parts, strict=True)), "endpoint": self, "clia_route": f"api:{verb.name}"}
        return Match.FULL, made

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._endpoints.get(scope["method"])
        if endpoint is None:
            raise HTTPException(405, headers={"Allow": ", ".join(sorted(self._endpoints))})
        await endpoint(scope, receive, send)

    def url_path_for(self, name: str, /, **path_params: Any) -> URLPath:
        raise NoMatchFound(name, path_params)  # nobody asks: a client has the table


def _raw_path(scope: Scope) -> bytes:
    raw = scope.get("raw_path") or quote(scope["path"], safe="/").encode("ascii")
    root = quote(scope.get("root_path", ""), safe="/").encode("ascii")
    return bytes(raw).partition(b"?")[0].removeprefix(root)


def _endpoint(verb: Verb) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        forge: Forge = request.app.state.forge
        user = require(request.state.identity, verb.role)
        if verb.changes:
            check_csrf(request.state.identity, request.headers, None)
        body = await request.body()
        # Reading it too: what is large takes long, and the loop is everybody's.
        return await run_in_threadpool(_handled, verb, forge, user, request, body)

    return endpoint


def _handled(verb: Verb, forge: Forge, user: User, request: Request, body: bytes) -> Response:
    call = _read(verb, forge, user, request, body)
    key = request.headers.get("idempotency-key") if verb.changes else None
    asked = [verb.method.encode(), _raw_path(request.scope), (call.if_match or "").encode(), body]
    return _answer(forge, call, key, b"\n".join(asked))


def _read(verb: Verb, forge: Forge, user: User, request: Request, body: bytes) -> Call:
    site = forge.site(request.path_params["space"])
    kind = request.headers.get("content-type", "")
    args = arguments(verb, request.path_params, request.query_params, body, kind)
    query = request.query_params
    return Call(
        verb,
        site,
        user,
        args,
        request.headers.get("if-match"),
        request.headers.get("if-none-match"),
        query.get("cursor") if verb.paged else None,
        page_size(query.get("page_size")) if verb.paged else 0,
    )


def _answer(forge: Forge, call: Call, key: str | None, asked: bytes) -> Response:
    if key is None:
        return _response(_done(call))
    once = Once(forge.home, forge.clock)
    kept = once.claim(call.user.name, key, asked)
    if kept is not None:
        return _response(kept, replayed=True)
    try:
        made = _done(call)
    except BackendError:
        raise  # nobody knows how far it came: the key says so
    except CliaError:
        once.release(call.user.name, key)
        raise
    once.keep(call.user.name, key, asked, made)
    return _response(made)


def _response(kept: Kept, *, replayed: bool = False) -> Response:
    headers = {**kept.headers, **({"idempotency-replayed": "true"} if replayed else {})}
    if kept.status in (204, 304):
        return Response(status_code=kept.status, headers=headers)
    return Response(kept.body, status_code=kept.status, headers=headers, media_type=_JSON)


def _done(call: Call) -> Kept:
    verb, space = call.verb, call.site.space
    args = dict(call.args)
    expected = _expected(call, space, args)
    # Taken before the look: who is told of an older head asks once more, and nobody of a newer one that was not seen.
    shown = _etag(space.head(args[verb.route.shows])) if verb.route.shows else {}
    if shown and _is_known(call.if_none_match, shown["etag"]):
        return Kept(304, shown, "")
    try:
        result = _carried_out(call, space, args)
    except StaleRef as err:
        if expected is not None and err.expected == expected:
            raise _stale(expected, err.actual) from None
        raise
    headers = shown or _moved_to(verb, result)
    if verb.result is None:
        return Kept(204, headers, "")
    made = verb.result.encode(result)
    if verb.paged:
        made = page_of(made, call.cursor, call.size)._asdict()
    return Kept(200, headers, json.dumps(made, separators=(",", ":")))


def _etag(head: str) -> dict[str, str]:
    return {"etag": f'"{head}"'}


def _is_known(if_none_match: str | None, etag: str) -> bool:
    said = [each.strip().removeprefix("W/") for each in (if_none_match or "").split(",")]
    return etag in said or "*" in said


def _moved_to(verb: Verb, result: Any) -> dict[str, str]:
    """The head that a change made, for the next If-Match; never one that somebody else made since."""
    if verb.route.moves is None or isinstance(result, Landed):  # a landing moves a branch of people
        return {}
    head = result if isinstance(result, str) else getattr(result, "cid", None) or getattr(result, "head", None)
    return _etag(head) if head else {}


def _expected(call: Call, space: Space, args: dict[str, Any]) -> str | None:
    """The head that If-Match names; handed to the library where the verb itself compares, else compared before it begins."""
    verb = call.verb
    if call.if_match is None or call.if_match.strip() == "*":
        return None
    if verb.route.moves is None:
        raise InvalidInput("this moves no agent's head; If-Match says nothing here", code="if-match-unsupported")
    wanted = call.if_match.strip().removeprefix("W/").strip('"')
    if verb.route.base is not None and is_id(wanted):
        if args.get(verb.route.base) not in (None, wanted):
            raise InvalidInput(f"If-Match and {verb.route.base} disagree", code="invalid-field", fields={"field": verb.route.base})
        args[verb.route.base] = wanted
        return wanted
    actual = space.head(args[verb.route.moves])
    if actual != wanted:
        raise _stale(wanted, actual)
    return wanted


def _stale(expected: str, actual: str | None) -> StaleRef:
    fields = {"expected": expected, "actual": actual}
    return StaleRef(f"the head is {actual}, not {expected}", code="stale-if-match", fields=fields)


def _carried_out(call: Call, space: Space, args: dict[str, Any]) -> Any:
    if call.verb.is_personal:
        args["by"] = _user(call, args["by"])
    return call.verb.call(space, args)


def _user(call: Call, by: str | None) -> str:
    """The logged-in user: nobody acts in another's name."""
    if by is not None and check_text(by, "by") != call.user.by:
        raise NotAllowed(
            f"the action is recorded for the logged-in user, {call.user.by}",
            code="not-the-user",
            fields={"field": "by", "by": call.user.by},
        )
    return call.user.by

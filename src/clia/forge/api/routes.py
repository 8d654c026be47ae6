"""One route for each verb.

Invariant: a request is checked in this order, before it changes anything: user, role, arguments, idempotency key, expected head.
Then the library does the rest, and its errors are the response.
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
from clia.forge.api.idempotency import Once, StoredResponse
from clia.forge.api.requests import arguments, page_of, page_size
from clia.forge.auth import check_csrf, require_verb
from clia.space.model import Landed
from clia.values.commit_messages import check_text
from clia.values.refs import is_id
from clia.verbs import GET, acting_as, set_channel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from typing import Any

    from starlette.datastructures import Headers, URLPath
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from clia.api.derivation import Verb
    from clia.facade.space import Space
    from clia.forge.forge import Forge
    from clia.users.service import User

PREFIX = "/api/v1/spaces/{space}"


class Call(NamedTuple):
    """One request for a verb, parsed and allowed."""

    verb: Verb
    space: Space
    user: User
    args: dict[str, Any]
    headers: Headers
    cursor: str | None
    page_size: int
    agent: str | None  # the agent that acts; None: a person


def verb_routes() -> list[BaseRoute]:
    """The routes. Those whose last part may contain a slash come last, so that they hide no other."""
    by_path: dict[str, dict[str, Verb]] = {}
    for verb in all_verbs():
        by_path.setdefault(re.sub(r"\{\w+\}", "{}", verb.path), {})[verb.method] = verb
    return [*sorted((VerbRoute(path, verbs) for path, verbs in by_path.items()), key=lambda route: route.open_ended)]


class VerbRoute(BaseRoute):
    """The verbs of one path.

    The path is split before it is decoded: a part may be empty, dots or contain an encoded slash, which the verb then refuses.
    """

    def __init__(self, path: str, verbs: Mapping[str, Verb]) -> None:
        self.path = PREFIX + path
        self.open_ended = any(verb.name == "show" for verb in verbs.values())  # branch names contain slashes
        pattern = re.escape(self.path).replace(r"\{space\}", "([^/]*)").replace(r"\{\}", "([^/]*)")
        if self.open_ended:
            pattern = pattern.removesuffix("([^/]*)") + "(.*)"
        self._pattern = re.compile(pattern.encode("ascii"))
        self._verbs = verbs
        self._endpoints = {method: request_response(_endpoint(verb)) for method, verb in verbs.items()}
        if GET in verbs:
            self._endpoints["HEAD"] = self._endpoints[GET]

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match = self._pattern.fullmatch(_raw_path(scope)) if scope["type"] == "http" else None
        if match is None:
            return Match.NONE, {}
        try:
            parts = [unquote_to_bytes(part).decode("utf-8") for part in match.groups()]
        except UnicodeDecodeError:
            return Match.NONE, {}
        verb = self._verbs.get(GET if scope["method"] == "HEAD" else scope["method"])
        if verb is None:
            return Match.FULL, {"endpoint": self}
        params = dict(zip(["space", *re.findall(r"\{(\w+)\}", verb.path)], parts, strict=True))
        return Match.FULL, {"path_params": params, "endpoint": self, "clia_route": f"api:{verb.name}"}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._endpoints.get(scope["method"])
        if endpoint is None:
            raise HTTPException(405, headers={"Allow": ", ".join(sorted(self._endpoints))})
        await endpoint(scope, receive, send)

    def url_path_for(self, name: str, /, **path_params: Any) -> URLPath:
        raise NoMatchFound(name, path_params)  # unused: clients have the table of verbs


def _raw_path(scope: Scope) -> bytes:
    raw = scope.get("raw_path") or quote(scope["path"], safe="/").encode("ascii")
    root = quote(scope.get("root_path", ""), safe="/").encode("ascii")
    return bytes(raw).partition(b"?")[0].removeprefix(root)


def _endpoint(verb: Verb) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        forge: Forge = request.app.state.forge
        set_channel("api")
        user = require_verb(request.state.identity, verb.route)
        if verb.changes:
            check_csrf(request.state.identity, request.headers, None)
        body = await request.body()
        # Parsing runs in the thread, too: a large body would block the event loop.
        return await run_in_threadpool(_respond, verb, forge, user, request, body)

    return endpoint


def _respond(verb: Verb, forge: Forge, user: User, request: Request, body: bytes) -> Response:
    query, headers = request.query_params, request.headers
    site = forge.site(request.path_params["space"])
    args = arguments(verb, request.path_params, query, body, headers.get("content-type", ""))
    agent = None
    if verb.route.agent is not None and not user.may(verb.role):
        agent = args[verb.route.agent]
        user.require_agent(agent)
    size = page_size(query.get("page_size")) if verb.paged else 0
    call = Call(verb, site.space, user, args, headers, query.get("cursor"), size, agent)
    key = headers.get("idempotency-key") if verb.changes else None
    if key is None:
        return _response(_execute(call))
    once = Once(forge.home, forge.clock)
    content = b"\n".join([verb.method.encode(), _raw_path(request.scope), headers.get("if-match", "").encode(), body])
    earlier = once.claim(user.name, key, content)
    if earlier is not None:
        return _response(earlier._replace(headers={**earlier.headers, "idempotency-replayed": "true"}))
    try:
        response = _execute(call)
    except BackendError:
        raise  # it may have been executed in part: the key stays in progress
    except CliaError:
        once.release(user.name, key)
        raise
    once.store(user.name, key, content, response)
    return _response(response)


def _response(stored: StoredResponse) -> Response:
    body, media = (None, None) if stored.status in (204, 304) else (stored.body, "application/json")
    return Response(body, status_code=stored.status, headers=stored.headers, media_type=media)


def _execute(call: Call) -> StoredResponse:
    verb, space, args = call.verb, call.space, dict(call.args)
    expected = _expected(call, args)
    # Read before the verb runs: a client that gets an older head asks once more, but never misses a newer one.
    shown = _etag(space.head(args[verb.route.shows])) if verb.route.shows else {}
    tags = {tag.strip().removeprefix("W/") for tag in call.headers.get("if-none-match", "").split(",")}
    if shown and tags & {shown["etag"], "*"}:
        return StoredResponse(304, shown, "")
    if verb.is_personal:
        args["by"] = _user(call, args["by"])
    try:
        with acting_as(call.agent):
            result = verb.call(space, args)
    except StaleRef as err:
        if expected is not None and err.expected == expected:
            raise _stale(expected, err.actual) from None
        raise
    headers = shown or _new_head(verb, result)
    if verb.result is None:
        return StoredResponse(204, headers, "")
    value = verb.result.encode(result)
    if verb.paged:
        value = page_of(value, call.cursor, call.page_size)._asdict()
    return StoredResponse(200, headers, json.dumps(value, separators=(",", ":")))


def _etag(head: str) -> dict[str, str]:
    return {"etag": f'"{head}"'}


def _new_head(verb: Verb, result: Any) -> dict[str, str]:
    """The head that a change made, for the next If-Match; never a later one of another client."""
    if verb.route.moves is None or isinstance(result, Landed):  # landing moves another branch
        return {}
    head = result if isinstance(result, str) else getattr(result, "cid", None) or getattr(result, "head", None)
    return _etag(head) if head else {}


def _expected(call: Call, args: dict[str, Any]) -> str | None:
    """The head in If-Match: passed to a verb that compares it itself, else compared here."""
    route, if_match = call.verb.route, call.headers.get("if-match", "*").strip()
    if if_match == "*":
        return None
    if route.moves is None:
        raise InvalidInput("If-Match is not supported here: this moves no agent's head", code="if-match-unsupported")
    expected = if_match.removeprefix("W/").strip('"')
    if route.base is not None and is_id(expected):
        if args.get(route.base) not in (None, expected):
            raise InvalidInput(f"If-Match and {route.base} differ", code="invalid-field", fields={"field": route.base})
        args[route.base] = expected
        return expected
    actual = call.space.head(args[route.moves])
    if actual != expected:
        raise _stale(expected, actual)
    return expected


def _stale(expected: str, actual: str | None) -> StaleRef:
    fields = {"expected": expected, "actual": actual}
    return StaleRef(f"the head is {actual}, not {expected}", code="stale-if-match", fields=fields)


def _user(call: Call, by: str | None) -> str:
    """The logged-in user, who cannot act for another user."""
    if by is not None and check_text(by, "by") != call.user.by:
        message = f"the action is recorded for the logged-in user, {call.user.by}"
        raise NotAllowed(message, code="not-the-user", fields={"field": "by", "by": call.user.by})
    return call.user.by

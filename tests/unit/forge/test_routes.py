"""The REST API over a real socket: roles, refusals, idempotency and paging."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from clia.api.derivation import all_verbs
from clia.forge.api.idempotency import Once
from clia.forge.api.requests import page_of
from clia.verbs import ADMIN, DECIDER, VIEWER
from support import git
from support.remote import Handle, Served, answer_of, local_of, serving
from support.spaces import BRIEFING, refused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from clia.http_client import HttpResponse

JSON = {"content-type": "application/json"}
ROLES = (VIEWER, DECIDER, ADMIN)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("forge") / "home", body_max=100_000) as forge:
        yield forge


class ApiCaller(NamedTuple):
    """Raw requests to one space of the forge."""

    served: Served
    space: Any
    root: Path

    def ask(self, method: str, path: str, body: Any = None, *, role: str = ADMIN, **headers: str) -> HttpResponse:
        request_headers = {"authorization": f"Bearer {self.served.token(role.title(), role)}"} if role else {}
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        request_headers |= JSON if data is not None else {}
        request_headers |= {key.replace("_", "-"): value for key, value in headers.items()}
        target = path if path.startswith("/api") else f"/api/v1/spaces/{self.space.name}{path}"
        return answer_of(self.served.address, target, method, request_headers, data)

    def refused(self, status: int, code: str, answer: HttpResponse) -> dict[str, Any]:
        """Check that the response is this problem, and return the problem document."""
        assert answer.headers["content-type"] == "application/problem+json", answer
        problem: dict[str, Any] = json.loads(answer.body)
        assert (answer.status, problem["status"], problem["code"]) == (status, status, code), problem
        assert problem["type"] == f"urn:clia:error:{code}"
        return problem

    def refs(self) -> str:
        return git("for-each-ref", cwd=self.root)


@pytest.fixture
def api(served: Served, tmp_path: Path) -> Iterator[ApiCaller]:
    with served.open(tmp_path / "repo") as space:
        assert isinstance(space, Handle)
        space.spawn("scout", BRIEFING)
        yield ApiCaller(served, space, tmp_path / "repo")


def commit(api: ApiCaller, text: str = "1", **headers: str) -> HttpResponse:
    return api.ask("POST", "/agents/scout/commits", {"kind": "finding", "files": {"a": text}}, **headers)


# Heads


def test_if_match_carries_the_expected_head(api: ApiCaller) -> None:
    head = api.space.head("scout")
    first = commit(api, if_match=f'"{head}"')
    cid = json.loads(first.body)
    assert (first.status, first.headers["etag"]) == (200, f'"{cid}"')
    again = commit(api, if_match=f'"{head}"')  # as RFC 9110 allows: the change was made already
    assert (again.status, json.loads(again.body), again.headers["etag"]) == (200, cid, f'"{cid}"')
    problem = api.refused(412, "stale-if-match", commit(api, "2", if_match=f'"{head}"'))
    assert problem["fields"] == {"expected": head, "actual": cid}
    for nonsense in ("nonsense", '""', '"0000"', f'"{"0" * 40}"'):
        api.refused(412, "stale-if-match", commit(api, "2", if_match=nonsense))
    assert api.space.head("scout") == cid
    assert commit(api, "3", if_match="*").status == 200


def test_a_stale_base_without_if_match_is_a_conflict(api: ApiCaller) -> None:
    base = api.space.head("scout")
    commit(api)
    body = {"kind": "finding", "files": {}, "base": base}
    api.refused(409, "stale-ref", api.ask("POST", "/agents/scout/commits", body))
    api.refused(422, "invalid-field", api.ask("POST", "/agents/scout/commits", body, if_match=f'"{api.space.head("scout")}"'))


def test_if_match_holds_for_every_verb_that_moves_a_head_and_is_refused_elsewhere(api: ApiCaller) -> None:
    stale = f'"{api.space.agents.genesis("scout")}"'
    api.space.spawn_from("other", BRIEFING, "scout")
    api.space.ask("scout", {"question": "?"})
    api.space.commit("scout", "finding", {"a": b"1"})
    before = api.refs()
    api.refused(412, "stale-if-match", api.ask("POST", "/agents/scout/decisions", {"value": 1}, if_match=stale))
    api.refused(412, "stale-if-match", api.ask("POST", "/agents/scout/merges/other", {}, if_match=stale))
    api.refused(412, "stale-if-match", api.ask("POST", "/agents/scout/archive", if_match=stale))
    api.refused(412, "stale-if-match", api.ask("POST", "/agents/scout/landings", {"onto": "main"}, if_match=stale))
    api.refused(422, "if-match-unsupported", api.ask("POST", "/rebuild", if_match=stale))
    assert api.refs() == before
    head = f'"{api.space.head("scout")}"'
    decided = api.ask("POST", "/agents/scout/decisions", {"value": 1}, if_match=head)
    assert decided.headers["etag"] == f'"{json.loads(decided.body)["cid"]}"' == f'"{api.space.head("scout")}"'


def test_a_known_head_is_not_modified(api: ApiCaller) -> None:
    first = api.ask("GET", "/agents/scout/head")
    assert first.headers["etag"] == f'"{api.space.head("scout")}"'
    for etag in (first.headers["etag"], f'"x", W/{first.headers["etag"]}', "*"):
        again = api.ask("GET", "/agents/scout/head", if_none_match=etag)
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", first.headers["etag"])
    commit(api)
    assert api.ask("GET", "/agents/scout/head", if_none_match=first.headers["etag"]).status == 200
    assert commit(api, "2", if_none_match="*").status == 200, "If-None-Match does not apply to changes"


# Idempotency


def test_a_change_with_the_same_key_is_made_once_and_gets_the_same_response(api: ApiCaller) -> None:
    first = commit(api, idempotency_key="k-1")
    again = commit(api, idempotency_key="k-1")
    assert (again.status, again.body, again.headers["etag"]) == (first.status, first.body, first.headers["etag"])
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    assert len(api.space.history.own("scout")) == 2
    assert commit(api, idempotency_key="k-2").body != first.body


def test_a_key_belongs_to_one_user_and_one_request(api: ApiCaller) -> None:
    commit(api, idempotency_key="k-3")
    problem = api.refused(422, "idempotency-mismatch", commit(api, "2", idempotency_key="k-3"))
    assert problem["fields"]["field"] == "Idempotency-Key"
    api.refused(422, "idempotency-mismatch", commit(api, idempotency_key="k-3", if_match="*"))
    assert len(api.space.history.own("scout")) == 2
    body = {"kind": "finding", "files": {"a": "1"}}
    other_user = {"authorization": f"Bearer {api.served.token('Another', ADMIN)}", "idempotency-key": "k-3", **JSON}
    target = f"/api/v1/spaces/{api.space.name}/agents/scout/commits"
    assert answer_of(api.served.address, target, "POST", other_user, json.dumps(body).encode()).status == 200
    assert len(api.space.history.own("scout")) == 3


def test_the_key_of_a_refused_change_can_be_used_again(api: ApiCaller) -> None:
    api.space.agents.archive("scout")
    api.refused(404, "no-such-agent", commit(api, idempotency_key="k-4"))
    api.space.agents.restore("scout")
    assert commit(api, idempotency_key="k-4").status == 200


def test_a_key_whose_change_may_have_been_made_is_refused(api: ApiCaller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Once, "store", lambda *_: None)  # the forge dies before it can store the response
    assert commit(api, idempotency_key="k-5").status == 200
    monkeypatch.undo()
    api.refused(409, "idempotency-in-progress", commit(api, idempotency_key="k-5"))
    assert len(api.space.history.own("scout")) == 2


@pytest.mark.parametrize("key", ["", "x" * 201, "é"])
def test_a_key_is_a_short_text(api: ApiCaller, key: str) -> None:
    before = api.refs()
    assert commit(api, idempotency_key=key.encode("utf-8").decode("latin-1")).status == 422
    assert api.refs() == before


# Pages


def test_lists_come_in_pages(api: ApiCaller) -> None:
    for name in ("a", "b", "c"):
        api.space.spawn(name, BRIEFING)
    names: list[str] = []
    cursor = ""
    while True:
        page = json.loads(api.ask("GET", f"/agents?page_size=2{cursor}").body)
        names += page["items"]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert names == ["a", "b", "c", "scout"]
    for bad in ("0", "5001", "x", "-1", "1.5", "²"):
        assert api.ask("GET", f"/agents?page_size={bad.encode().hex() if bad == '²' else bad}").status == 422
    for bad in ("x", "e30", "WzBd", "%00", "=" * 9):
        api.refused(422, "invalid-cursor", api.ask("GET", f"/agents?cursor={bad}"))


def pages(items: list[Any], size: int, change: Mapping[int, Any]) -> list[Any]:
    """Follow the cursors through a list that changes before some pages, and return all items."""
    items_seen: list[Any] = []
    cursor = None
    for number in range(100):
        items = change.get(number, lambda now: now)(items)
        page = page_of(items, cursor, size)
        items_seen += page.items
        cursor = page.next
        if cursor is None:
            return items_seen
    raise AssertionError("it does not end")


def test_paging_skips_and_repeats_nothing_while_the_list_changes() -> None:
    ten = list(range(10))
    assert pages(ten, 3, {}) == ten
    assert pages(ten, 3, {1: lambda now: [-2, -1, *now]}) == ten, "items added at the front"
    assert pages(ten, 3, {1: lambda now: [*now, 10]}) == [*ten, 10]
    assert pages(ten, 3, {1: lambda now: now[1:]}) == ten, "one returned item removed"
    assert pages(ten, 3, {1: lambda now: now[3:]}) == ten, "all returned items removed"
    assert pages(ten, 3, {1: lambda now: [number for number in now if number != 2]}) == ten
    assert pages(["x"] * 7, 2, {1: lambda now: now}) == ["x"] * 7, "equal items"
    assert pages(["x"] * 6, 2, {1: lambda now: ["y", *now]}).count("x") >= 6
    assert pages(ten, 3, {1: lambda _: []}) == [0, 1, 2]


# Roles


def filled(path: str) -> str:
    return "/".join("nobody" if part.startswith("{") else part for part in path.split("/"))


@pytest.mark.parametrize("role", ["", "forged", *ROLES])
def test_every_verb_requires_its_role(api: ApiCaller, role: str) -> None:
    before = api.refs()
    for verb in all_verbs():
        forged = {"authorization": "Bearer clia_forged"} if role == "forged" else {}
        body: dict[str, Any] | None = {} if verb.changes else None
        answer = api.ask(verb.method, filled(verb.path), body, role="" if role == "forged" else role, **forged)
        if role == "forged":
            api.refused(401, "bad-token", answer)
        elif not role:
            api.refused(401, "not-authenticated", answer)
            assert answer.headers["www-authenticate"].startswith("Bearer")
        elif ROLES.index(role) < ROLES.index(verb.role):
            problem = api.refused(403, "role-too-low", answer)
            assert problem["fields"]["needed"] == verb.role
        else:
            assert answer.status in (200, 204, 404, 409, 422, 503), (verb.name, answer)
    if role != ADMIN:
        assert api.refs() == before


def test_a_cookie_reads_and_changes_only_with_its_own_csrf_token(api: ApiCaller) -> None:
    api.served.token("Cook", ADMIN)
    user = next(listed.user for listed in api.served.forge.users.all() if listed.user.display == "Cook")
    login, other_login = (api.served.forge.users.make_session(user.name) for _ in range(2))
    cookie = {"cookie": f"clia_login={login.secret}", "role": ""}
    assert api.ask("GET", "/agents", **cookie).status == 200
    before = api.refs()
    for wrong in ({}, {"x_csrf_token": ""}, {"x_csrf_token": "x"}, {"x_csrf_token": other_login.csrf}):
        api.refused(403, "bad-csrf", commit(api, **cookie, **wrong))
    assert api.refs() == before
    assert commit(api, **cookie, x_csrf_token=login.csrf).status == 200


@pytest.mark.parametrize("authorization", ["Basic eDp5", "Bearer", "Bearer ", "bearer x y", "x", "Bearer \t"])
def test_an_invalid_token_is_unauthorized(api: ApiCaller, authorization: str) -> None:
    assert api.ask("GET", "/agents", role="", authorization=authorization).status == 401
    assert api.ask("GET", f"/agents?token={api.served.token()}", role="").status == 401, "a token in the URL must be ignored"


def test_a_decision_is_recorded_under_the_logged_in_user(api: ApiCaller) -> None:
    api.space.ask("scout", {"question": "?"})
    problem = api.refused(403, "not-the-user", api.ask("POST", "/agents/scout/decisions", {"value": 1, "by": "Ann"}, role=DECIDER))
    assert problem["fields"]["by"] == "Decider"
    decision = json.loads(api.ask("POST", "/agents/scout/decisions", {"value": 1, "by": "Decider"}, role=DECIDER).body)
    assert decision["by"] == api.space.show(decision["cid"]).by == "Decider"


# Refusals


MALFORMED = {
    "cut": b'{"kind": "finding"',
    "twice": b'{"kind": "finding", "kind": "finding", "files": {}}',
    "twice inside": b'{"kind": "finding", "files": {}, "meta": {"a": 1, "a": 2}}',
    "nan": b'{"kind": "finding", "files": {}, "meta": {"a": NaN}}',
    "infinity": b'{"kind": "finding", "files": {}, "meta": {"a": -Infinity}}',
    "too large a number": b'{"kind": "finding", "files": {}, "meta": {"a": 1e999}}',
    "too many digits": b'{"kind": "finding", "files": {}, "meta": {"a": ' + b"9" * 5000 + b"}}",
    "deep": b'{"kind": "finding", "files": {}, "meta": {"a": ' + b"[" * 40000 + b"]" * 40000 + b"}}",
    "lone surrogate": b'{"kind": "finding", "files": {}, "message": "\\ud800"}',
    "lone surrogate in a name": b'{"kind": "finding", "files": {"\\udfff": "x"}}',
    "no utf-8": b'{"kind": "\xff"}',
    "utf-16": '{"kind": "finding", "files": {}}'.encode("utf-16"),
    "byte order mark": b"\xef\xbb\xbf{}",
    "no json": b"kind=finding",
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_json_is_reported_and_changes_nothing(api: ApiCaller, name: str) -> None:
    before = api.refs()
    problem = api.refused(400, "malformed-json", api.ask("POST", "/agents/scout/commits", MALFORMED[name]))
    assert problem["kind"] == "invalid-input"
    assert api.refs() == before


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ([], "invalid-field", "body"),
        ("text", "invalid-field", "body"),
        (None, "missing-field", "kind"),
        ({}, "missing-field", "kind"),
        ({"kind": "finding", "surplus": 1}, "unknown-field", "surplus"),
        ({"kind": 3}, "invalid-field", "kind"),
        ({"kind": "finding", "files": []}, "invalid-field", "files"),
        ({"kind": "finding", "files": {"a": 1}}, "invalid-field", "files.a"),
        ({"kind": "finding", "files": {}, "meta": []}, "invalid-field", "meta"),
        ({"kind": "finding", "files": {}, "message": None}, "invalid-field", "message"),
    ],
)
def test_an_invalid_body_is_refused_and_the_field_is_named(api: ApiCaller, body: Any, code: str, field: str) -> None:
    before = api.refs()
    data = None if body is None else json.dumps(body).encode()
    problem = api.refused(422, code, api.ask("POST", "/agents/scout/commits", data))
    assert problem["fields"]["field"] == field
    assert api.refs() == before


def test_path_and_query_parameters_are_checked(api: ApiCaller) -> None:
    for query, code in (
        ("?surplus=1", "unknown-field"),
        ("?archived=yes", "invalid-field"),
        ("?archived=true&archived=true", "invalid-field"),
    ):
        api.refused(422, code, api.ask("GET", f"/agents{query}"))
    api.refused(422, "missing-field", api.ask("GET", "/log"))
    api.refused(422, "invalid-field", api.ask("GET", "/log?text=scout&limit=many"))
    assert api.ask("GET", "/log?text=scout&limit=-1").status == 422
    assert json.loads(api.ask("GET", "/log?text=scout&limit=1").body)["items"][0]["agent"] == "scout"
    api.refused(422, "unknown-field", api.ask("GET", "/agents", {"a": 1}))


def test_unknown_things_are_not_found(api: ApiCaller) -> None:
    for path, code in (
        ("/agents/nobody/head", "no-such-agent"),
        (f"/commits/{'0' * 40}", "no-such-object"),
        (f"/objects/{'0' * 40}", "no-such-object"),
        ("/flows/nothing", "no-such-flow"),
        ("/agents/scout/session", "no-such-session"),
        ("/nothing", "no-such-address"),
        ("/agents/scout/nothing", "no-such-address"),
        ("/api/v1/spaces/nobody/agents", "no-such-space"),
    ):
        api.refused(404, code, api.ask("GET", path))


def test_large_bodies_and_other_media_types_are_refused(api: ApiCaller) -> None:
    before = api.refs()
    api.refused(413, "payload-too-large", api.ask("POST", "/agents/scout/commits", b"x" * 100_001))
    body = json.dumps({"kind": "finding", "files": {}}).encode()
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        api.refused(415, "unsupported-media-type", api.ask("POST", "/agents/scout/commits", body, content_type=kind))
    assert api.refs() == before
    assert api.ask("POST", "/agents/scout/commits", body, content_type="Application/JSON; charset=utf-8").status == 200


def test_a_wrong_method_is_refused_and_the_allowed_ones_are_named(api: ApiCaller) -> None:
    for method in ("DELETE", "PATCH", "OPTIONS", "TRACE", "NONSENSE"):
        answer = api.ask(method, "/agents")
        assert answer.headers["allow"] == "GET, HEAD, POST"
        assert api.refused(405, "method-not-allowed", answer)
    assert api.ask("PUT", "/flows").headers["allow"] == "GET, HEAD"
    head = api.ask("HEAD", "/agents/scout/head")
    assert (head.status, head.body, head.headers["etag"]) == (200, b"", f'"{api.space.head("scout")}"')


def test_names_in_the_path_cannot_escape(api: ApiCaller) -> None:
    before = api.refs()
    for name in ("..", ".", "%2e%2e", "..%2f..%2fetc", "a%2fb", "%00", "", "%0a", "scout%20", "SCOUT", "a" * 300):
        answer = api.ask("GET", f"/agents/{name}/head")
        assert answer.status == 422, (name, answer)
        api.refused(422, "invalid-name", answer)
    assert api.ask("GET", "/agents/%ff/head").status == 404
    for space in ("..", "%2e%2e", "..%2fwhoami", "", "%00"):
        api.refused(404, "no-such-space", api.ask("GET", f"/api/v1/spaces/{space}/agents"))
    assert json.loads(api.ask("GET", "/commits/agents/scout").body)["agent"] == "scout"
    assert json.loads(api.ask("GET", "/commits/agents%2Fscout").body)["agent"] == "scout"
    assert api.refs() == before


def test_an_internal_error_reveals_nothing(api: ApiCaller, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object) -> None:
        raise ZeroDivisionError("the inner secret")

    monkeypatch.setattr(type(local_of(api.space)), "types", breaks)
    answer = api.ask("GET", "/types")
    assert api.refused(500, "internal", answer)
    assert b"secret" not in answer.body


def test_the_openapi_document_has_every_verb(api: ApiCaller) -> None:
    document = json.loads(api.ask("GET", "/api/v1/openapi.json", role=VIEWER).body)
    described = {
        (method.upper(), path.removeprefix("/api/v1/spaces/{space}")): operation["operationId"]
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }
    assert {(verb.method, verb.path): verb.name for verb in all_verbs()}.items() <= described.items()
    assert len(set(described.values())) == len(described)
    schemas = document["components"]["schemas"]
    references = {reference.split('"')[0] for reference in json.dumps(document).split("#/components/schemas/")[1:]}
    assert references <= set(schemas)


def test_remote_errors_name_the_field(api: ApiCaller) -> None:
    error = refused("no-such-agent", lambda: api.space.head("nobody"))
    assert error.fields == {"agent": "nobody"}

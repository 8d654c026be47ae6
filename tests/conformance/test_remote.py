"""What is special about a remote space: lost connections, tokens, pages and events.

``test_space`` and ``test_sessions`` test its verbs, together with those of a local space.
"""

from __future__ import annotations

import http.server
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia import errors
from clia.api import remote_space as module
from clia.api.connection import events_in
from clia.api.derivation import local_members
from clia.client import RemoteSpace
from support.git_hubs import Hub, away, bare
from support.remote import CuttingProxy, Served, running, serving
from support.session_flows import QUESTION
from support.spaces import BRIEFING, refused, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def space(served: Served, tmp_path: Path) -> Iterator[Any]:
    with served.open(tmp_path / "repo") as opened:
        opened.spawn("scout", BRIEFING)
        yield opened


@pytest.fixture
def line(served: Served) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(served.address)
    yield proxy
    proxy.close()


@pytest.fixture
def far(served: Served, space: Any, line: CuttingProxy) -> Iterator[RemoteSpace]:
    """The space over a connection that can break."""
    with RemoteSpace(line.address, served.token(), space=space.name) as remote:
        yield remote


def refused_with(call: Callable[[], object]) -> errors.CliaError:
    with pytest.raises(errors.CliaError) as caught:
        call()
    return caught.value


# Lost connections


def test_a_change_with_a_lost_answer_is_applied_once_and_answered(far: RemoteSpace, space: Any, line: CuttingProxy) -> None:
    for cuts in (1, 2):
        before = space.head("scout")
        line.cuts = cuts
        cid = far.commit("scout", "finding", {"a": str(cuts).encode()})
        assert line.cuts == 0
        assert space.head("scout") == cid
        assert space.show(cid).parents == (before,)


def test_after_two_retries_the_error_is_raised_and_the_change_applied_once(
    far: RemoteSpace, space: Any, line: CuttingProxy
) -> None:
    before = space.head("scout")
    line.cuts = 3
    error = refused("transport-error", lambda: far.trace("scout", "console", "once"))
    assert isinstance(error, errors.TransportError)
    assert error.retryable
    assert line.cuts == 0
    assert [entry["text"] for entry in space.traces.pending("scout")] == ["once"]
    assert space.head("scout") == before


def test_each_change_has_its_own_idempotency_key(far: RemoteSpace) -> None:
    for _ in range(2):
        far.trace("scout", "console", "the same words")
    assert len(far.traces.pending("scout")) == 2


def test_a_read_is_repeated_after_a_lost_connection(far: RemoteSpace, space: Any, line: CuttingProxy) -> None:
    line.cuts = 2
    assert far.head("scout") == space.head("scout")
    line.cuts = 3
    refused("transport-error", lambda: far.head("scout"))


def test_one_connection_serves_many_calls_and_a_lost_one_is_replaced(far: RemoteSpace, line: CuttingProxy) -> None:
    for _ in range(5):
        far.agents()
    assert line.connections == 1
    line.cut_now()
    assert far.agents() == ["scout"]
    assert line.connections == 2


def test_an_unreachable_forge_is_reported_without_the_token(served: Served, line: CuttingProxy) -> None:
    line.close()
    token = served.token()
    with RemoteSpace(line.address, token) as space:
        error = refused("transport-error", space.agents)
        assert token not in f"{error} {error.to_json()} {space!r} {vars(space)}"


def test_a_timeout_is_not_retried(served: Served, space: Any) -> None:
    arrived, going_on = threading.Event(), threading.Event()
    paths = []

    class SlowForge(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            arrived.set()
            going_on.wait()

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), SlowForge) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            with RemoteSpace(f"http://127.0.0.1:{server.server_port}", "token", space="x", timeout=2.0) as slow:
                error = refused("transport-error", slow.agents)
            assert arrived.wait(60)
        finally:
            going_on.set()
            server.shutdown()
    assert "in time" in error.message
    assert len(paths) == 1


@pytest.mark.parametrize(
    ("status", "kind", "body"),
    [
        (200, "text/html", b"<p>welcome"),
        (200, "application/json", b"["),
        (404, "text/html", b"<p>nothing"),
        (502, "application/json", b'{"error": "bad gateway"}'),
        (403, "application/json", b'{"code": "x", "kind": "denied", "detail": "no", "hints": [], "fields": {}}'),
        (302, "text/plain", b""),
    ],
)
def test_a_server_that_is_not_a_forge_is_reported(status: int, kind: str, body: bytes) -> None:
    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            with RemoteSpace(f"http://127.0.0.1:{server.server_port}", "secret-token", space="x") as space:
                error = refused("not-a-forge", space.types)
        finally:
            server.shutdown()
    assert isinstance(error, errors.TransportError)
    assert error.fields == {"status": status}


def test_threads_share_a_space(far: RemoteSpace) -> None:
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda number: far.trace("scout", "console", str(number)), range(30)))
    assert sorted(int(entry["text"]) for entry in far.traces.pending("scout")) == list(range(30))


# Spaces and roles


def test_the_space_is_optional_if_only_one_is_served(tmp_path: Path) -> None:
    with serving(tmp_path / "home") as served:
        with RemoteSpace(served.address + "/", served.token()) as space:
            assert space.agents() == []
            assert space.id == served.forge.sites["home"].space.id
        with served.open(tmp_path / "other"), RemoteSpace(served.address, served.token()) as unclear:
            error = refused("space-not-named", unclear.agents)
            assert error.fields["spaces"][0] == "home"


def test_an_unknown_space_is_reported(served: Served) -> None:
    for name in ("nobody", "../whoami", "a/b", ""):
        with RemoteSpace(served.address, served.token(), space=name) as space:
            refused("no-such-space", space.agents)


@pytest.mark.parametrize(
    ("url", "token", "more", "field"),
    [
        ("ftp://host", "t", {}, "url"),
        ("host:80", "t", {}, "url"),
        ("http://user:word@host", "t", {}, "url"),
        ("http://host?x=1", "t", {}, "url"),
        ("http://host/a b", "t", {}, "url"),
        ("http://[", "t", {}, "url"),
        (3, "t", {}, "url"),
        ("http://host", "", {}, "token"),
        ("http://host", "secret one", {}, "token"),
        ("http://host", "secret\r\nX: y", {}, "token"),
        ("http://host", None, {}, "token"),
        ("http://host", "t", {"timeout": 0}, "timeout"),
        ("http://host", "t", {"timeout": "10"}, "timeout"),
        ("http://host", "t", {"space": 3}, "space"),
    ],
)
def test_an_invalid_address_token_or_time_is_refused_by_name(url: Any, token: Any, more: Any, field: str) -> None:
    with pytest.raises(errors.InvalidInput) as caught:
        RemoteSpace(url, token, **more)
    assert caught.value.fields["field"] == field
    assert "secret" not in str(caught.value.to_json())
    assert "word" not in str(caught.value.to_json())


def test_a_forged_token_a_low_role_and_another_name_are_denied(served: Served, space: Any) -> None:
    with RemoteSpace(served.address, "clia_forged", space=space.name) as forged:
        error = refused("bad-token", forged.agents)
        assert isinstance(error, errors.Denied)
    with RemoteSpace(served.address, served.token("Vi", "viewer"), space=space.name) as viewer:
        assert viewer.agents() == ["scout"]
        error = refused("role-too-low", lambda: viewer.commit("scout", "finding", {}))
        assert isinstance(error, errors.NotAllowed)
        assert error.fields["needed"] == "admin"
    request = space.ask("scout", {"question": "?"})
    with RemoteSpace(served.address, served.token("Dee", "decider"), space=space.name) as decider:
        refused("not-the-user", lambda: decider.decide("scout", 1, by="Ann", request_id=request.id))
        decision = decider.decide("scout", 1, request_id=request.id)
        assert decision.by == space.show(decision.cid).by == "Dee"
        assert decision.session.resumes == [1]


def test_local_verbs_are_refused(space: Any, tmp_path: Path) -> None:
    calls = {
        "checkout": lambda: space.checkout("scout", tmp_path / "x"),
        "checkout_at": lambda: space.checkout_at(tmp_path),
        "commit_dir": lambda: space.commit_dir("scout", "finding", tmp_path),
        "alone": space.alone,
        "captures": lambda: space.captures,
        "core": partial(getattr, space, "core"),
        "home": lambda: space.home,
        "local": lambda: space.local,
        "views": lambda: space.views,
        "provenance": lambda: space.provenance,
        "running": partial(getattr, space, "running"),
        "behaviours.check_briefing": lambda: space.behaviours.check_briefing("0" * 40),
        "behaviours.check_runnable": lambda: space.behaviours.check_runnable("step"),
        "behaviours.library": lambda: space.behaviours.library,
        "behaviours.observations": lambda: space.behaviours.observations,
        "behaviours.policy": lambda: space.behaviours.policy("step"),
        "budgets.check": lambda: space.budgets.check("scout"),
        "budgets.is_configured": lambda: space.budgets.is_configured,
        "identities.at_place_of": lambda: space.identities.at_place_of("scout", "scout"),
        "identities.instructions": lambda: space.identities.instructions("scout"),
        "identities.rules_in_force": lambda: space.identities.rules_in_force("scout"),
        "identities.shown": lambda: space.identities.shown(None),
        "identities.start_of_work": lambda: space.identities.start_of_work("scout", None),
        "sessions.ask_for_clia": lambda: space.sessions.ask_for_clia("scout", {"question": "?"}),
        "sessions.check_question": lambda: space.sessions.check_question({"question": "?"}),
        "sessions.decide_signed": lambda: space.sessions.decide_signed(None, ()),
        "sessions.state": lambda: space.sessions.state("scout", "yes", person="Ada"),
        "trust.end_agent_key": lambda: space.trust.end_agent_key("key"),
        "trust.enrol_key": lambda: space.trust.enrol_key(None, "Ada"),
        "trust.enrolled": lambda: space.trust.enrolled("SHA256:x"),
        "trust.has_people": space.trust.has_people,
        "trust.is_signing": space.trust.is_signing,
        "trust.known": lambda: space.trust.known("SHA256:x"),
        "trust.needed": lambda: space.trust.needed(None),
        "trust.require_signing": space.trust.require_signing,
        "trust.signing_problem": space.trust.signing_problem,
        "trust.start_agent_key": lambda: space.trust.start_agent_key("scout"),
        "trust.state_enrolment": lambda: space.trust.state_enrolment(None, "Ada"),
        "trust.statements": lambda: space.trust.statements,
        "trust.verify_again": lambda: space.trust.verify_again(None),
        "witnesses.request": lambda: space.witnesses.request("http://127.0.0.1:1"),
        "sessions.check_agreement": lambda: space.sessions.check_agreement("scout", "1"),
        "sessions.questions": space.sessions.questions,
        "history.attribute": space.history.attribute,
        "history.added_lines": lambda: space.history.added_lines("main"),
        "history.blame_worktree": lambda: space.history.blame_worktree("stock.txt"),
        "hub.elsewhere": space.hub.elsewhere,
        "has_hub": lambda: space.has_hub,
        "hub.meet": lambda: space.hub.meet("scout"),
        "hub.exchange": lambda: space.hub.exchange,
        "peers.tokens": lambda: space.peers.tokens,
        "types.check_kind": lambda: space.types.check_kind("finding"),
    }
    assert set(calls) == set(local_members())
    for call in calls.values():
        error = refused("local-only", call)
        assert isinstance(error, errors.NotAllowed)
        assert error.hints


def test_the_hub_is_read_and_synced_remotely(served: Served, tmp_path: Path) -> None:
    hub = bare(tmp_path / "hub.git")
    clia.init(tmp_path / "repo", settings=settings(), hub=str(hub)).close()
    with served.open(tmp_path / "repo") as space:
        with away(Hub(str(hub), hub)):
            space.spawn("scout", BRIEFING)
        status = space.hub.status()
        assert (type(status), status.away_since is None, status.forks) == (clia.HubStatus, False, ())
        assert status.owed == ("refs/clia/agents/scout", "refs/heads/agents/scout")
        synced = space.hub.sync()
        assert {type(synced_ref) for synced_ref in synced} == {clia.HubSynced}
        assert [(synced_ref.ref, synced_ref.what) for synced_ref in synced] == [(ref, "published") for ref in status.owed]
        assert space.hub.status() == status._replace(away_since=None, away_reason=None, owed=())
        assert refused("no-fork", lambda: space.hub.sync(forks={"scout": "other"})).fields == {"agent": "scout"}
        assert refused("nothing-elsewhere", lambda: space.hub.sync(abandon=["scout"])).fields == {"agent": "scout"}


def test_a_closed_space_refuses_calls(space: Any, served: Served) -> None:
    second = RemoteSpace(served.address, served.token(), space=space.name)
    assert second.agents() == ["scout"]
    second.close()
    second.close()
    refused("store-closed", second.agents)
    assert space.agents() == ["scout"]


# Answers


def test_long_lists_are_complete_over_several_pages(space: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"agent-{number}" for number in range(5)]
    for name in names:
        space.spawn(name, BRIEFING)
    whole = space.agents(), space.states(), space.relations()
    monkeypatch.setattr(module, "PAGE_SIZE", 2)
    assert (space.agents(), space.states(), space.relations()) == whole
    assert whole[0] == [*names, "scout"]


def test_the_rule_of_any_request_is_returned_and_answers_are_checked(space: Any) -> None:
    space.sessions.define("question", QUESTION)
    (request,) = space.start("scout", "question", {"payload": {"choices": ["yes", "no"]}}).pending
    assert space.sessions.rule(request).choices == ("yes", "no")
    space.sessions.check_answer(request, "yes")
    assert isinstance(refused("invalid-answer", lambda: space.sessions.check_answer(request, "maybe")), errors.InvalidAnswer)
    refused("invalid-request", lambda: space.sessions.rule("1.1"))
    space.decide("scout", "yes")
    assert space.sessions.rule(request).choices == ("yes", "no"), "the same as locally, also after the answer"


def test_a_session_has_its_answers_and_their_authors(space: Any) -> None:
    space.sessions.define("question", QUESTION)
    space.start("scout", "question", {"kind": "machine", "payload": None})
    (resume,) = space.resume("scout", {"a": [1.5, None]}).given()
    assert (resume.call, resume.value, resume.by) == (1, {"a": [1.5, None]}, "Tess <tess@example.org>")
    assert resume.at


def test_the_fleet_includes_waiting_requests(space: Any) -> None:
    question = space.ask("scout", {"question": "Go?"})
    fleet = space.fleet()
    assert isinstance(fleet, clia.Fleet)
    assert fleet.people is not None
    assert (fleet.people.agent, fleet.people.request, fleet.questions) == ("scout", question.id, 1)
    assert (fleet.workers, fleet.queue, fleet.work) == ((), (), None)


def test_doctor_finds_and_repairs(space: Any) -> None:
    assert space.doctor() == space.doctor(repair=True) == []


def test_binary_and_large_files_are_transferred(space: Any) -> None:
    files = {"large": b"x" * (5 * 1024 * 1024), "odd": bytes(range(256)), "nul": b"a\0b", "crlf": b"a\r\n", "empty": b""}
    space.commit("scout", "finding", files)
    assert space.files("scout") == files


def test_a_body_above_the_limit_is_refused(space: Any) -> None:
    head = space.head("scout")
    with pytest.raises((errors.InvalidInput, errors.TransportError)) as caught:
        space.commit("scout", "finding", {"huge": b"x" * (9 * 1024 * 1024)})
    assert caught.value.code in ("payload-too-large", "transport-error")
    assert space.head("scout") == head
    refused("too-long", lambda: space.traces.search("x" * 100_000))


# Events


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[Served, RemoteSpace]]:
    """A separate forge, whose first space is watched."""
    with serving(tmp_path / "home") as served, RemoteSpace(served.address, served.token(), space="home") as space:
        space.spawn("scout", BRIEFING)
        yield served, space


def asked_in(stream: Iterator[dict[str, Any]]) -> tuple[str, str]:
    """The next question and the position of its event, without the events of refs."""
    event = next(entry for entry in stream if entry["event"] == "session")
    assert event["space"] == "home"
    return event["asked"][0], event["place"]


def test_events_are_in_order_and_continue_after_a_lost_connection(watched: tuple[Served, RemoteSpace]) -> None:
    served, space = watched
    line = CuttingProxy(served.address)
    with RemoteSpace(line.address, served.token(), space="home") as far:
        with closing(far.events()) as stream:
            assert next(stream)["event"] == "hello"
            place = ""
            for _ in range(3):
                request = space.ask("scout", {"question": "?"}).id
                asked_request, place = asked_in(stream)
                assert asked_request == request
                line.cut_now()
            meanwhile = [space.ask("scout", {"question": "more?"}).id for _ in range(4)]
            assert [asked_in(stream)[0] for _ in meanwhile] == meanwhile
            assert line.connections == 4
        with closing(far.events(after=place)) as stream:
            assert next(stream)["event"] == "hello"
            assert [asked_in(stream)[0] for _ in meanwhile] == meanwhile
    line.close()


def test_events_continue_after_a_restart_of_the_forge(watched: tuple[Served, RemoteSpace]) -> None:
    served, space = watched
    with running(served.forge) as address:
        port = int(address.rpartition(":")[2])
        stream = RemoteSpace(address, served.token(), space="home").events()
        assert next(stream)["event"] == "hello"
    meanwhile = space.ask("scout", {"question": "meanwhile?"}).id
    with running(served.forge, port), closing(stream):
        assert asked_in(stream)[0] == meanwhile


def test_a_position_of_another_feed_gets_a_reset(watched: tuple[Served, RemoteSpace]) -> None:
    space = watched[1]
    with closing(space.events()) as stream:
        place = next(stream)["place"]
    with closing(space.events(after="other" + place)) as stream:
        assert [next(stream)["event"] for _ in range(2)] == ["hello", "reset"]
        request = space.ask("scout", {"question": "?"}).id
        assert asked_in(stream)[0] == request


def test_denied_events_and_a_forge_that_stays_unreachable_are_errors(served: Served, line: CuttingProxy) -> None:
    with RemoteSpace(served.address, "clia_forged", space="home") as forged:
        assert isinstance(refused("bad-token", lambda: next(forged.events())), errors.Denied)
    with RemoteSpace(served.address, served.token(), space="nobody") as space:
        refused("no-such-space", lambda: next(space.events()))
        for place in (-1, "a\nb", "é"):
            assert isinstance(refused_with(lambda place=place: space.events(after=place)), errors.InvalidInput)  # type: ignore[misc]
    with RemoteSpace(served.address, served.token(), space="home") as space:
        assert isinstance(refused_with(lambda: next(space.events(after="no place"))), errors.InvalidInput)
    line.close()
    with RemoteSpace(line.address, served.token(), space="home", timeout=0.3) as away:
        refused("transport-error", lambda: next(away.events()))


def test_events_are_parsed_as_in_the_standard() -> None:
    text = b"retry: 2\nid: 7\nevent: change\ndata: {\ndata:  1}\n\n: beat\n\ndata: x\n\nevent: lost\n\nid: 8\ndata: y"
    parsed = [tuple(event) for event in events_in(text.split(b"\n"))]
    assert parsed == [("change", "{\n 1}", "7"), ("message", "x", "7")]


# Errors


def every_kind() -> list[type[errors.CliaError]]:
    return [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, errors.CliaError)]


@pytest.mark.parametrize("kind", every_kind(), ids=lambda kind: kind.__name__)
def test_every_error_arrives_with_its_class_and_fields(
    served: Served, space: Any, kind: type[errors.CliaError], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise kind("it is so: é", hints=["one", "two"], fields={"field": "x", "list": [1, None, "é"]}, code=code)

    for code in (None, "special-code"):
        monkeypatch.setattr(type(served.forge.sites[space.name].space), "types", fails)
        with pytest.raises(errors.CliaError) as caught:
            space.types()
        assert type(caught.value) is kind
        assert caught.value.to_json() == {
            "code": code or kind.code,
            "message": "it is so: é",
            "hints": ["one", "two"],
            "fields": {"field": "x", "list": [1, None, "é"]},
        }


def test_a_bug_in_the_forge_is_reported_without_details(served: Served, space: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object) -> None:
        raise ZeroDivisionError("the inner secret")

    monkeypatch.setattr(clia.Space, "types", breaks)
    error = refused("internal", space.types)
    assert "secret" not in str(error.to_json())
    assert next(itertools.islice(error.hints, 1))

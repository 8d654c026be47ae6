"""What only a space on another machine has: a line that breaks, a token, pages, and events.

That its verbs do what they promise is held by the same tests as for the space itself, in ``test_space`` and ``test_sessions``.
"""

from __future__ import annotations

import http.server
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

import clia
from clia import errors
from clia.api import remote_space as module
from clia.api.connection import events_in
from clia.api.derivation import local_members
from clia.client import RemoteSpace
from support.git_hubs import Hub, away, bare
from support.remote import Cutting, Served, running, serving
from support.session_flows import QUESTION
from support.spaces import BRIEFING, refused, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("forge") / "home") as made:
        yield made


@pytest.fixture
def space(served: Served, tmp_path: Path) -> Iterator[Any]:
    with served.open(tmp_path / "repo") as made:
        made.spawn("scout", BRIEFING)
        yield made


@pytest.fixture
def line(served: Served) -> Iterator[Cutting]:
    made = Cutting(served.address)
    yield made
    made.close()


@pytest.fixture
def far(served: Served, space: Any, line: Cutting) -> Iterator[RemoteSpace]:
    """The space through a line that can break."""
    with RemoteSpace(line.address, served.token(), space=space.name) as made:
        yield made


def refused_with(call: Callable[[], object]) -> errors.CliaError:
    with pytest.raises(errors.CliaError) as caught:
        call()
    return caught.value


# A line that breaks


def test_a_change_whose_answer_was_lost_is_made_once_and_answered_for(far: RemoteSpace, space: Any, line: Cutting) -> None:
    for cuts in (1, 2):
        before = space.head("scout")
        line.cuts = cuts
        made = far.commit("scout", "finding", {"a": str(cuts).encode()})
        assert line.cuts == 0
        assert space.head("scout") == made
        assert space.show(made).parents == (before,)


def test_after_two_more_attempts_the_loss_is_said_and_the_change_is_still_made_once(
    far: RemoteSpace, space: Any, line: Cutting
) -> None:
    before = space.head("scout")
    line.cuts = 3
    error = refused("transport-error", lambda: far.trace("scout", "console", "once"))
    assert isinstance(error, errors.TransportError)
    assert error.retryable
    assert line.cuts == 0
    assert [each["text"] for each in space.trace_pending("scout")] == ["once"]
    assert space.head("scout") == before


def test_each_change_has_a_key_of_its_own(far: RemoteSpace) -> None:
    for _ in range(2):
        far.trace("scout", "console", "the same words")
    assert len(far.trace_pending("scout")) == 2


def test_a_look_is_repeated_after_a_lost_connection(far: RemoteSpace, space: Any, line: Cutting) -> None:
    line.cuts = 2
    assert far.head("scout") == space.head("scout")
    line.cuts = 3
    refused("transport-error", lambda: far.head("scout"))


def test_one_connection_serves_many_calls_and_a_lost_one_is_replaced(far: RemoteSpace, line: Cutting) -> None:
    for _ in range(5):
        far.agents()
    assert line.connections == 1
    line.cut_now()
    assert far.agents() == ["scout"]
    assert line.connections == 2


def test_where_nobody_answers_it_is_said_without_the_token(served: Served, line: Cutting) -> None:
    line.close()
    token = served.token()
    with RemoteSpace(line.address, token) as space:
        error = refused("transport-error", space.agents)
        assert token not in f"{error} {error.to_json()} {space!r} {vars(space)}"


def test_a_forge_that_is_too_slow_is_not_asked_again(served: Served, space: Any) -> None:
    arrived, going_on = threading.Event(), threading.Event()
    asked = []

    class Slow(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            arrived.set()
            going_on.wait()

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            with RemoteSpace(f"http://127.0.0.1:{server.server_port}", "token", space="x", timeout=2.0) as slow:
                error = refused("transport-error", slow.agents)
            assert arrived.wait(60)
        finally:
            going_on.set()
            server.shutdown()
    assert "in time" in error.message
    assert len(asked) == 1


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
def test_what_is_no_forge_is_said(status: int, kind: str, body: bytes) -> None:
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
    assert sorted(int(each["text"]) for each in far.trace_pending("scout")) == list(range(30))


# Which space, and who


def test_the_space_may_be_left_out_where_only_one_is_served(tmp_path: Path) -> None:
    with serving(tmp_path / "home") as served:
        with RemoteSpace(served.address + "/", served.token()) as space:
            assert space.agents() == []
            assert space.id == served.forge.sites["home"].space.id
        with served.open(tmp_path / "other"), RemoteSpace(served.address, served.token()) as unclear:
            error = refused("space-not-named", unclear.agents)
            assert error.fields["spaces"][0] == "home"


def test_a_space_that_is_not_served_is_said(served: Served) -> None:
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
def test_what_cannot_be_an_address_a_token_or_a_time_is_refused_by_name(url: Any, token: Any, more: Any, field: str) -> None:
    with pytest.raises(errors.InvalidInput) as caught:
        RemoteSpace(url, token, **more)
    assert caught.value.fields["field"] == field
    assert "secret" not in str(caught.value.to_json())
    assert "word" not in str(caught.value.to_json())


def test_a_forged_token_a_low_role_and_anothers_name_are_denied(served: Served, space: Any) -> None:
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
        made = decider.decide("scout", 1, request_id=request.id)
        assert made.by == space.show(made.cid).by == "Dee"
        assert made.session.resumes == [1]


def test_what_needs_the_spaces_own_machine_says_so(space: Any, tmp_path: Path) -> None:
    calls = {
        "checkout": lambda: space.checkout("scout", tmp_path / "x"),
        "checkout_at": lambda: space.checkout_at(tmp_path),
        "commit_dir": lambda: space.commit_dir("scout", "finding", tmp_path),
        "alone": space.alone,
        "captures": lambda: space.captures,
        "core": lambda: space.core,
        "home": lambda: space.home,
        "local": lambda: space.local,
        "views": lambda: space.views,
        "running": lambda: space.running,
        "behaviours.check_prompt": lambda: space.behaviours.check_prompt("0" * 40),
        "behaviours.check_runnable": lambda: space.behaviours.check_runnable("step"),
        "behaviours.library": lambda: space.behaviours.library,
        "behaviours.observations": lambda: space.behaviours.observations,
        "behaviours.policy": lambda: space.behaviours.policy("step"),
        "hub.elsewhere": space.elsewhere,
        "has_hub": lambda: space.has_hub,
        "hub.meet": lambda: space.meet("scout"),
        "hub.exchange": lambda: space.hub.exchange,
        "peers.tokens": lambda: space.peer_tokens,
        "types.check_kind": lambda: space.types.check_kind("finding"),
    }
    assert set(calls) == set(local_members())
    for call in calls.values():
        error = refused("local-only", call)
        assert isinstance(error, errors.NotAllowed)
        assert error.hints


def test_the_hub_of_a_space_is_told_and_met_from_afar(served: Served, tmp_path: Path) -> None:
    hub = bare(tmp_path / "hub.git")
    clia.init(tmp_path / "repo", settings=settings(), hub=str(hub)).close()
    with served.open(tmp_path / "repo") as space:
        with away(Hub(str(hub), hub)):
            space.spawn("scout", BRIEFING)
        found = space.hub_status()
        assert (type(found), found.away_since is None, found.forks) == (clia.HubStatus, False, ())
        assert found.owed == ("refs/clia/agents/scout", "refs/heads/agents/scout")
        synced = space.hub_sync()
        assert {type(each) for each in synced} == {clia.HubSynced}
        assert [(each.ref, each.what) for each in synced] == [(ref, "published") for ref in found.owed]
        assert space.hub_status() == found._replace(away_since=None, away_reason=None, owed=())
        assert refused("no-fork", lambda: space.hub_sync(forks={"scout": "other"})).fields == {"agent": "scout"}
        assert refused("nothing-elsewhere", lambda: space.hub_sync(abandon=["scout"])).fields == {"agent": "scout"}


def test_a_closed_space_answers_no_more(space: Any, served: Served) -> None:
    other = RemoteSpace(served.address, served.token(), space=space.name)
    assert other.agents() == ["scout"]
    other.close()
    other.close()
    refused("store-closed", other.agents)
    assert space.agents() == ["scout"]


# Answers


def test_long_lists_come_whole_though_they_come_in_pages(space: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"agent-{number}" for number in range(5)]
    for name in names:
        space.spawn(name, BRIEFING)
    whole = space.agents(), space.states(), space.relations()
    monkeypatch.setattr(module, "PAGE_SIZE", 2)
    assert (space.agents(), space.states(), space.relations()) == whole
    assert whole[0] == [*names, "scout"]


def test_a_rule_is_told_of_any_request_and_an_answer_checked_against_it(space: Any) -> None:
    space.define("question", QUESTION)
    (request,) = space.start("scout", "question", {"payload": {"choices": ["yes", "no"]}}).pending
    assert space.rule(request).choices == ("yes", "no")
    space.check_answer(request, "yes")
    assert isinstance(refused("invalid-answer", lambda: space.check_answer(request, "maybe")), errors.InvalidAnswer)
    refused("invalid-request", lambda: space.rule("1.1"))
    space.decide("scout", "yes")
    assert space.rule(request).choices == ("yes", "no"), "as on its own machine, also after it was answered"


def test_a_session_tells_who_resumed_it_with_what(space: Any) -> None:
    space.define("question", QUESTION)
    space.start("scout", "question", {"kind": "machine", "payload": None})
    (given,) = space.resume("scout", {"a": [1.5, None]}).given()
    assert (given.call, given.value, given.by) == (1, {"a": [1.5, None]}, "Tess <tess@example.org>")
    assert given.at


def test_the_fleet_is_told_with_what_waits(space: Any) -> None:
    asked = space.ask("scout", {"question": "Go?"})
    found = space.fleet()
    assert isinstance(found, clia.Fleet)
    assert found.people is not None
    assert (found.people.agent, found.people.request, found.questions) == ("scout", asked.id, 1)
    assert (found.workers, found.queue, found.work) == ((), (), None)


def test_doctor_looks_and_repairs(space: Any) -> None:
    assert space.doctor() == space.doctor(repair=True) == []


def test_files_that_are_no_text_and_large_ones_cross(space: Any) -> None:
    files = {"large": b"x" * (5 * 1024 * 1024), "odd": bytes(range(256)), "nul": b"a\0b", "crlf": b"a\r\n", "empty": b""}
    space.commit("scout", "finding", files)
    assert space.files("scout") == files


def test_more_than_a_forge_takes_is_refused(space: Any) -> None:
    head = space.head("scout")
    with pytest.raises((errors.InvalidInput, errors.TransportError)) as caught:
        space.commit("scout", "finding", {"huge": b"x" * (9 * 1024 * 1024)})
    assert caught.value.code in ("payload-too-large", "transport-error")
    assert space.head("scout") == head
    refused("too-long", lambda: space.trace_search("x" * 100_000))


# Events


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[Served, RemoteSpace]]:
    """A forge of its own, whose first space is watched."""
    with serving(tmp_path / "home") as served, RemoteSpace(served.address, served.token(), space="home") as space:
        space.spawn("scout", BRIEFING)
        yield served, space


def asked_in(stream: Iterator[dict[str, Any]]) -> tuple[str, str]:
    """The next question that is put, and the place of that event; what is told of refs is left out."""
    event = next(each for each in stream if each["event"] == "session")
    assert event["space"] == "home"
    return event["asked"][0], event["place"]


def test_events_come_in_order_and_go_on_after_a_lost_connection(watched: tuple[Served, RemoteSpace]) -> None:
    served, space = watched
    line = Cutting(served.address)
    with RemoteSpace(line.address, served.token(), space="home") as far:
        with closing(far.events()) as stream:
            assert next(stream)["event"] == "hello"
            place = ""
            for _ in range(3):
                made = space.ask("scout", {"question": "?"}).id
                asked, place = asked_in(stream)
                assert asked == made
                line.cut_now()
            meanwhile = [space.ask("scout", {"question": "more?"}).id for _ in range(4)]
            assert [asked_in(stream)[0] for _ in meanwhile] == meanwhile
            assert line.connections == 4
        with closing(far.events(after=place)) as stream:
            assert next(stream)["event"] == "hello"
            assert [asked_in(stream)[0] for _ in meanwhile] == meanwhile
    line.close()


def test_events_go_on_across_a_restart_of_the_forge(watched: tuple[Served, RemoteSpace]) -> None:
    served, space = watched
    with running(served.forge) as address:
        port = int(address.rpartition(":")[2])
        stream = RemoteSpace(address, served.token(), space="home").events()
        assert next(stream)["event"] == "hello"
    meanwhile = space.ask("scout", {"question": "meanwhile?"}).id
    with running(served.forge, port), closing(stream):
        assert asked_in(stream)[0] == meanwhile


def test_who_followed_another_feed_is_told_to_start_over(watched: tuple[Served, RemoteSpace]) -> None:
    space = watched[1]
    with closing(space.events()) as stream:
        place = next(stream)["place"]
    with closing(space.events(after="other" + place)) as stream:
        assert [next(stream)["event"] for _ in range(2)] == ["hello", "reset"]
        made = space.ask("scout", {"question": "?"}).id
        assert asked_in(stream)[0] == made


def test_events_that_may_not_be_seen_or_whose_forge_stays_away_are_errors(served: Served, line: Cutting) -> None:
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


def test_events_are_read_as_the_standard_has_them() -> None:
    text = b"retry: 2\nid: 7\nevent: change\ndata: {\ndata:  1}\n\n: beat\n\ndata: x\n\nevent: lost\n\nid: 8\ndata: y"
    found = [tuple(each) for each in events_in(text.split(b"\n"))]
    assert found == [("change", "{\n 1}", "7"), ("message", "x", "7")]


# Errors


def every_kind() -> list[type[errors.CliaError]]:
    return [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.CliaError)]


@pytest.mark.parametrize("kind", every_kind(), ids=lambda kind: kind.__name__)
def test_every_error_arrives_as_the_one_that_was_raised(
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


def test_a_bug_in_the_forge_says_nothing_of_itself(served: Served, space: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object) -> None:
        raise ZeroDivisionError("the inner secret")

    monkeypatch.setattr(clia.Space, "types", breaks)
    error = refused("internal", space.types)
    assert "secret" not in str(error.to_json())
    assert next(itertools.islice(error.hints, 1))

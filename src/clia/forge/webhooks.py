"""Webhooks: notify other systems of new questions and decisions.

Invariant: each event is delivered to each subscribed hook at least once, in order and signed. The store keeps each hook's position,
so a restart loses nothing. One process per space delivers; a process that lost its lock stops when another has advanced the
position. A failing hook is retried with backoff; after the last attempt the event is dropped and logged. Hooks are independent.
"""

from __future__ import annotations

import hmac
import json
import logging
import threading
from contextlib import closing
from typing import NamedTuple

from clia.errors import CliaError, InvalidInput
from clia.forge import metrics
from clia.http_client import HttpClient
from clia.sessions.model import is_human

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from clia.facade.config import Webhook
    from clia.forge.forge import Forge, Site
    from clia.space.feed import Feed

_log = logging.getLogger("clia.webhooks")
ROW = "hook/"
LOCK = "webhooks"
SIGNATURE = "clia-signature"
ATTEMPTS = 12
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0
"""Seconds between attempts, which double."""
_ANSWER_MAX = 64 * 1024


class Delivery(NamedTuple):
    id: str
    event: str
    body: bytes


def signed(secret: str, at: int, body: bytes) -> str:
    """The signature header: the time of sending, and the HMAC of time and body."""
    mac = hmac.new(secret.encode("utf-8"), f"{at}.".encode("ascii") + body, "sha256").hexdigest()
    return f"t={at},v1={mac}"


def deliveries(site: Site, address: str, name: str, position: int, entry: Mapping[str, Any]) -> Iterator[Delivery]:
    """The deliveries for one feed entry."""
    if entry.get("event") != "session":
        return
    where = f"{address}/s/{site.name}"
    common = {"space": site.name, "space_id": site.space.id, **{key: entry[key] for key in ("agent", "session", "at")}}
    kinds = {request["id"]: request["kind"] for request in entry.get("waits", ())}
    questions = [request for request in entry.get("asked", ()) if is_human(kinds.get(request, ""))]
    if questions:
        requests = [
            {"id": request, "kind": kinds[request], "url": f"{where}/inbox/{entry['agent']}/{request}"} for request in questions
        ]
        yield _delivery(f"{site.space.id}.{position}.waiting", "waiting", {**common, "requests": requests}, name)
    answered = entry.get("answered") or {}
    if answered.get("decision"):
        answer = {key: answered.get(key) for key in ("request", "by", "decision")}
        body = {**common, **answer, "url": f"{where}/commits/{answered['decision']}"}
        yield _delivery(f"{site.space.id}.{position}.decided", "decided", body, name)


def _delivery(delivery_id: str, event: str, body: Mapping[str, Any], name: str) -> Delivery:
    text = json.dumps({"id": delivery_id, "event": event, "hook": name, **body}, separators=(",", ":"))
    return Delivery(delivery_id, event, text.encode("utf-8"))


class Webhooks:
    """Delivers events in background threads from ``start`` to ``stop``."""

    def __init__(self, forge: Forge, environment: Mapping[str, str], http: HttpClient | None = None) -> None:
        self._forge = forge
        self._http = http or HttpClient()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._jobs = [
            (site, name, hook, _secret(name, hook, environment))
            for site in forge.sites.values()
            for name, hook in site.space.local.config.forge.webhooks.items()
        ]

    def start(self) -> None:
        for site, name, hook, secret in self._jobs:
            site.feed.position_of(ROW + name)  # fix the position now, even if the thread starts late
            args = (site, name, hook, secret)
            thread = threading.Thread(target=self._work, args=args, daemon=True, name=f"webhook {name}")
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=5)

    def _work(self, site: Site, name: str, hook: Webhook, secret: str) -> None:
        with closing(site.space.local.open_feed()) as feed:
            while not self._stop.is_set():
                try:
                    with feed.only_reader(f"{LOCK}-{name}") as ours:
                        while ours and not self._stop.is_set():
                            self._deliver_new(site, feed, name, hook, secret)
                except CliaError as err:
                    _log.warning("%s: webhook %s: %s", site.name, name, err.message)
                self._stop.wait(2.0)

    def _deliver_new(self, site: Site, feed: Feed, name: str, hook: Webhook, secret: str) -> None:
        reader = feed.position_of(ROW + name)
        if not feed.wait(reader.position, 1.0):
            return
        for position, entry in feed.read(reader.position):
            for delivery in deliveries(site, self._forge.options.address, name, position, entry):
                if delivery.event in hook.events and not self._deliver(name, hook, secret, delivery):
                    return  # stopping; delivered after the next start
            reader = feed.keep_position(ROW + name, reader._replace(position=position))

    def _deliver(self, name: str, hook: Webhook, secret: str, delivery: Delivery) -> bool:
        """Deliver or give up; False if the forge stops first."""
        pause = FIRST_PAUSE
        for attempt in range(1, ATTEMPTS + 1):
            problem = self._post(hook, secret, delivery)
            if problem is None:
                metrics.hook_done("delivered")
                return True
            _log.warning("webhook %s: attempt %d of %s: %s", name, attempt, delivery.id, problem)
            metrics.hook_done("failed")
            if self._stop.wait(pause):
                return False
            pause = min(pause * 2, LONGEST_PAUSE)
        _log.error("webhook %s: gave up on %s after %d attempts", name, delivery.id, ATTEMPTS)
        metrics.hook_done("given-up")
        return True

    def _post(self, hook: Webhook, secret: str, delivery: Delivery) -> str | None:
        """The error; None on success."""
        headers = {
            "content-type": "application/json",
            "user-agent": "clia",
            "clia-event": delivery.event,
            "clia-delivery": delivery.id,
            SIGNATURE: signed(secret, int(self._forge.clock().timestamp()), delivery.body),
        }
        try:
            answer = self._http.post(hook.url, headers, delivery.body, seconds=hook.timeout_seconds, limit=_ANSWER_MAX)
        except CliaError as err:
            return err.message
        return None if 200 <= answer.status < 300 else f"status {answer.status}"


def _secret(name: str, hook: Webhook, environment: Mapping[str, str]) -> str:
    secret = environment.get(hook.secret_env, "")
    if not secret:
        message = f"webhook {name!r} needs the environment variable {hook.secret_env}"
        hints, fields = [f"export {hook.secret_env}=…"], {"field": f"forge.webhooks.{name}.secret_env"}
        raise InvalidInput(message, code="no-webhook-secret", hints=hints, fields=fields)
    return secret

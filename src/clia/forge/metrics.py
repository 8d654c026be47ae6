"""What the forge counts, for Prometheus.

Invariant: labels come from small fixed sets (routes, methods, statuses, served spaces), so that nobody can make them grow.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from clia.workers.fleet import ALIVE
from clia.workers.hub_inspection import standing_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.forge.forge import Forge

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_registry = CollectorRegistry()
_requests = Counter("clia_http_requests", "Requests that were answered.", ["route", "method", "status"], registry=_registry)
_seconds = Histogram("clia_http_request_seconds", "How long answers took.", ["route"], registry=_registry)
_listeners = Gauge("clia_event_listeners", "Open connections to /events.", registry=_registry)
_sent = Counter("clia_events_sent", "Entries of the feed that were sent to listeners.", registry=_registry)
_waiting = Gauge("clia_requests_waiting", "Requests that wait for an answer.", ["space", "kind"], registry=_registry)
_depth = Gauge("clia_queue_depth", "Requests that a worker could answer, by state.", ["space", "state"], registry=_registry)
_oldest = Gauge("clia_oldest_request_seconds", "Age of the oldest request; 0: none waits.", ["space", "whom"], registry=_registry)
_workers = Gauge("clia_workers", "Workers that live.", ["space"], registry=_registry)
_silent = Gauge("clia_workers_silent", "Workers not heard of any more, of the last hour.", ["space"], registry=_registry)
_away = Gauge("clia_hub_away", "Whether the hub cannot be reached from here: 0 or 1.", ["space"], registry=_registry)
_owed = Gauge("clia_hub_owed", "Agents and shared chains that the hub has yet to get from here.", ["space"], registry=_registry)
_forks = Gauge("clia_hub_forks", "Agents that went on here and at the hub.", ["space"], registry=_registry)
_agents = Gauge("clia_agents", "Agents at work.", ["space"], registry=_registry)
_hooks = Counter("clia_webhook_deliveries", "Webhooks by outcome.", ["outcome"], registry=_registry)


def request_done(route: str, method: str, status: int, seconds: float) -> None:
    known = method if method in ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS") else "other"
    _requests.labels(route, known, str(status)).inc()
    _seconds.labels(route).observe(seconds)


def listeners(change: int) -> None:
    _listeners.inc(change)


def sent(count: int) -> None:
    _sent.inc(count)


def hook_done(outcome: str) -> None:
    _hooks.labels(outcome).inc()


def text(forge: Forge) -> bytes:
    """Everything, as it is now."""
    for site in forge.sites.values():
        fleet = site.space.fleet()
        depth = {state: sum(getattr(each, state) for each in fleet.queue) for state in ("due", "held", "later", "elsewhere")}
        for state, count in depth.items():
            _depth.labels(site.name, state).set(count)
        for whom, oldest in (("people", fleet.people), ("workers", fleet.work)):
            _oldest.labels(site.name, whom).set(0.0 if oldest is None else oldest.age)
        alive = sum(each.state == ALIVE for each in fleet.workers)
        _workers.labels(site.name).set(alive)
        _silent.labels(site.name).set(len(fleet.workers) - alive)
        _waiting.labels(site.name, "human").set(fleet.questions)
        _waiting.labels(site.name, "other").set(sum(depth.values()))
        _agents.labels(site.name).set(len(site.space.agents()))
        hub = standing_of(site.space, fleet)
        if hub is not None:
            _away.labels(site.name).set(hub.away_since is not None)
            _owed.labels(site.name).set(len(hub.owed))
            _forks.labels(site.name).set(len(hub.forks))
    return generate_latest(_registry)

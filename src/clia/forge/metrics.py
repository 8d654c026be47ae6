"""Prometheus metrics of the forge.

Invariant: label values come from small fixed sets (routes, methods, statuses, spaces), so their number is bounded.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from clia.workers.fleet import ALIVE, standing_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.forge.forge import Forge

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_registry = CollectorRegistry()
_requests = Counter("clia_http_requests", "HTTP requests.", ["route", "method", "status"], registry=_registry)
_seconds = Histogram("clia_http_request_seconds", "HTTP request duration.", ["route"], registry=_registry)
listeners = Gauge("clia_event_listeners", "Open connections to /events.", registry=_registry)
sent = Counter("clia_events_sent", "Feed entries sent to listeners.", registry=_registry)
_waiting = Gauge("clia_requests_waiting", "Pending requests.", ["space", "kind"], registry=_registry)
_depth = Gauge("clia_queue_depth", "Requests for workers, by state.", ["space", "state"], registry=_registry)
_oldest = Gauge(
    "clia_oldest_request_seconds", "Age of the oldest pending request; 0 if none.", ["space", "whom"], registry=_registry
)
_workers = Gauge("clia_workers", "Active workers.", ["space"], registry=_registry)
_silent = Gauge("clia_workers_silent", "Workers without a recent heartbeat, within the last hour.", ["space"], registry=_registry)
_away = Gauge("clia_hub_away", "Whether the hub is unreachable: 0 or 1.", ["space"], registry=_registry)
_owed = Gauge("clia_hub_owed", "Agents and shared chains not yet pushed to the hub.", ["space"], registry=_registry)
_forks = Gauge("clia_hub_forks", "Agents that diverged from the hub.", ["space"], registry=_registry)
_agents = Gauge("clia_agents", "Active agents.", ["space"], registry=_registry)
_hooks = Counter("clia_webhook_deliveries", "Webhook deliveries by outcome.", ["outcome"], registry=_registry)


def request_done(route: str, method: str, status: int, seconds: float) -> None:
    label = method if method in ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS") else "other"
    _requests.labels(route, label, str(status)).inc()
    _seconds.labels(route).observe(seconds)


def hook_done(outcome: str) -> None:
    _hooks.labels(outcome).inc()


def text(forge: Forge) -> bytes:
    """All metrics in the Prometheus text format."""
    for site in forge.sites.values():
        fleet = site.space.fleet()
        depth = {state: sum(getattr(entry, state) for entry in fleet.queue) for state in ("due", "held", "later", "elsewhere")}
        for state, count in depth.items():
            _depth.labels(site.name, state).set(count)
        for audience, oldest in (("people", fleet.people), ("workers", fleet.work)):
            _oldest.labels(site.name, audience).set(0.0 if oldest is None else oldest.age)
        alive = sum(worker.state == ALIVE for worker in fleet.workers)
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

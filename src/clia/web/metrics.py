"""What the forge counts, for Prometheus.

Invariant: labels come from small fixed sets (routes, methods, statuses, served spaces), so that nobody can make them grow.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from clia.sessions.questions import is_for_people

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.web.forge import Forge

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_registry = CollectorRegistry()
_requests = Counter("clia_http_requests", "Requests that were answered.", ["route", "method", "status"], registry=_registry)
_seconds = Histogram("clia_http_request_seconds", "How long answers took.", ["route"], registry=_registry)
_listeners = Gauge("clia_event_listeners", "Open connections to /events.", registry=_registry)
_sent = Counter("clia_events_sent", "Entries of the feed that were sent to listeners.", registry=_registry)
_waiting = Gauge("clia_requests_waiting", "Requests that wait for an answer.", ["space", "kind"], registry=_registry)
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
        pending = site.space.pending()
        human = sum(map(is_for_people, pending))
        _waiting.labels(site.name, "human").set(human)
        _waiting.labels(site.name, "other").set(len(pending) - human)
        _agents.labels(site.name).set(len(site.space.agents()))
    return generate_latest(_registry)

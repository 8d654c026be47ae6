"""Who works on a space: machines, workers, forges, what each has, what waits and since when.

Invariant: whatever machines and workers call themselves is shown as text. What no event tells of, such as a worker that falls
silent, is looked at again every few seconds.
"""

from __future__ import annotations

from starlette.routing import Route

from clia.forge.pages.common import page
from clia.forge.pages.records import show
from clia.forge.rendering import times
from clia.space.adoption import title_of
from clia.workers.fleet import ALIVE, EVERY, OFF

TYPE_CHECKING = False
if TYPE_CHECKING:
    from starlette.responses import Response

    from clia.forge.pages.common import Visit

ROWS = 200
"""Leases and kinds on the page."""
_SECONDS = max(2, round(EVERY))


def routes() -> list[Route]:
    return [Route("/s/{space}/fleet", _fleet, methods=["GET"], name="fleet")]


@page
def _fleet(visit: Visit) -> Response:
    found = visit.site.space.fleet()
    return show(
        visit,
        "fleet.html",
        fleet=found,
        alive=sum(each.state == ALIVE for each in found.workers),
        unanswered=[each.kind for each in found.queue if each.due and not each.workers],
        most=ROWS,
        off=OFF,
        every=_SECONDS,
        span=lambda seconds: times.ago(0, max(seconds, 0)),
        due=sum(each.due for each in found.queue),
        left=sum(each.elsewhere for each in found.queue),
        title_of=title_of,
    )

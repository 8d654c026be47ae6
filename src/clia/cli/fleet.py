"""``clia fleet``: who works on this space, and on what.

Invariant: whatever machines and workers call themselves stands in a cell, harmless; a program gets all of it, people what fits.
"""

from __future__ import annotations

from clia.cli.federation.tables import ROWS, show_rest, show_rows
from clia.cli.output import emit_json, one_line, write
from clia.cli.space.common import add_space, space_of
from clia.space.adoption import title_of
from clia.space.model import as_json
from clia.workers.fleet import ALIVE, CLOCK_TOLERANCE, NO_PROCESS

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from rich.text import Text

    from clia.workers.fleet import Depth, Fleet, HubStanding, Lease, Machine, Oldest, Process

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        found = space.fleet()
    if args.json:
        emit_json(as_json(found))
    else:
        _show(found)
    return 0


def _show(found: Fleet) -> None:
    if found.machines:
        _show_machines(found.machines)
    if found.workers:
        write("\n")
        _show_processes(found.workers)
    if found.forges:
        write("\n")
        _show_forges(found.forges)
    if found.leases:
        write("\n")
        _show_leases(found.leases)
    if found.queue:
        write("\n")
        _show_queue(found.queue)
    if found.machines or found.queue:
        write("\n")
    if not any(each.state == ALIVE for each in found.workers):
        write("no worker is at work here; start one: clia worker\n")
    left = " (of an agent whose last work is on another machine)" if found.work is not None and found.work.elsewhere else ""
    write(f"oldest request for workers: {_oldest(found.work)}{left}\n")
    write(f"oldest question to people: {_oldest(found.people)}{f', of {found.questions}' if found.questions > 1 else ''}\n")


def _show_queue(queue: Sequence[Depth]) -> None:
    left = any(each.elsewhere for each in queue)  # seldom; else the column says nothing
    headings = ("waits for workers", "due", "held", "later", *(("elsewhere",) if left else ()), "workers")
    rows = []
    for each in queue[:ROWS]:
        counts = (each.due, each.held, each.later, *((each.elsewhere,) if left else ()))
        rows.append((each.kind, *(count or "" for count in counts), each.workers))
    show_rows(headings, rows, right=headings[1:])
    show_rest(len(queue) - ROWS)
    if left:
        write("elsewhere: left to the machine that has their agent's last work, until it has published it (clia hub status)\n")


def span(seconds: float) -> str:
    """A time in its largest unit."""
    size, unit = next(each for each in _UNITS if seconds >= each[0] or each[0] == 1)
    return f"{int(max(seconds, 0) // size)} {unit}"


def _oldest(found: Oldest | None) -> str:
    return "none waits" if found is None else one_line(f"{span(found.age)}: {found.agent} {found.request} {found.kind}")


def _state(state: str) -> Text:
    from rich.text import Text  # only people see it

    return Text(state, style="green" if state == ALIVE else "red")


def _show_machines(machines: Sequence[Machine]) -> None:
    rows = [
        (
            each.machine or "(unknown)",
            each.clone[:8],
            "no process" if each.state == NO_PROCESS else _state(each.state),
            each.workers,
            each.forges,
            each.running,
            _hub(each.hub),
            _clock(each.clock_off),
        )
        for each in machines
    ]
    headings = ("machine", "clone", "state", "workers", "forges", "running", "hub", "clock")
    show_rows(headings, rows, cut=("machine",), wrapped=("hub",), right=("workers", "forges", "running"))
    if any(each.state == NO_PROCESS for each in machines):
        write("no process: no worker or forge was heard of there; people may work there by commands\n")


def _hub(hub: HubStanding | None) -> str:
    if hub is None:
        return ""
    forks = f"forked: {', '.join(hub.forks)}" if hub.forks else ""
    more = f" and {len(hub.owed) - 3} more" if len(hub.owed) > 3 else ""
    owed = f"owes {', '.join(map(title_of, hub.owed[:3]))}{more}" if hub.owed else ""
    away = "away" if hub.away_since is not None else ""
    return "; ".join(filter(None, (away, owed, forks))) or "in step"


def _clock(off: float) -> str:
    return "" if abs(off) <= CLOCK_TOLERANCE else f"{span(abs(off))} {'ahead' if off > 0 else 'behind'}"


def _show_processes(workers: Sequence[Process]) -> None:
    rows = []
    for each in workers:
        doing = "; ".join(f"{one.agent} {one.request} {one.kind}" for one in each.running[:3])
        more = f"; {len(each.running) - 3} more" if len(each.running) > 3 else ""
        said = f"waiting: {each.trouble}" if each.trouble else f"{doing}{more}" or ("nothing to do" if each.state == ALIVE else "")
        seen = span(each.age)
        rows.append((each.name, each.machine, _state(each.state), seen, each.answered, each.retried, each.given_up, said))
    headings = ("worker", "machine", "state", "heard", "answered", "retried", "given up", "does")
    show_rows(headings, rows, cut=("machine",), wrapped=("does",), right=("heard", "answered", "retried", "given up"))


def _show_forges(forges: Sequence[Process]) -> None:
    rows = [(each.name, each.machine, _state(each.state), span(each.age), each.version) for each in forges]
    show_rows(("forge", "machine", "state", "heard", "version"), rows, cut=("machine",), right=("heard",))


def _show_leases(leases: Sequence[Lease]) -> None:
    rows = [
        (
            each.agent,
            each.request,
            each.kind,
            each.attempt,
            each.worker,
            each.holder,
            span(each.left) if each.left > 0 else "ran out",
        )
        for each in leases[:ROWS]
    ]
    show_rows(("held", "request", "kind", "attempt", "by", "who is", "for"), rows, cut=("by",), right=("attempt", "for"))
    show_rest(len(leases) - ROWS)

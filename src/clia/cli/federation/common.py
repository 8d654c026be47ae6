"""What the commands about other spaces share: addresses, times and shares, as people say them.

Invariant: whatever a peer sent stands in a cell, harmless, so that it cannot pass for a line of ours.
"""

from __future__ import annotations

import hashlib
import os
import sys
from contextlib import contextmanager

from clia.cli.output import console, counted
from clia.cli.space.common import short, show_table
from clia.federation.statements import is_shared_ref, place_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    from clia.federation.model import Move, Refused, Share


def add_peer(parser: argparse.ArgumentParser, text: str = "which peer", *, nargs: str | None = None) -> None:
    parser.add_argument("peer", metavar="PEER", nargs=nargs, help=text)


def fingerprint(key: str) -> str:
    """A key as two people can compare it over the telephone."""
    found = hashlib.sha256(key.encode("utf-8")).hexdigest()[:32]
    return " ".join(found[at : at + 4] for at in range(0, 32, 4))


def address_of(url: str | None) -> str | None:
    """An address as it is kept: a folder with its whole path, since nobody knows later where it was typed."""
    if not url or url != url.strip() or url.startswith("-") or ":" in url.partition("/")[0]:
        return url  # a scheme, the host of ssh, or something that is refused
    return os.path.abspath(url)


def share_words(share: Share) -> str:
    """What a peer is told about."""
    said = [_some(share.agents, "agent", "agents")]
    said += ["traces"] if share.traces else []
    said += ["sessions"] if share.sessions else []
    said += [_some(share.behaviours, "behaviour", "behaviours")]
    return "; ".join(each for each in said if each) or "nothing"


def _some(names: Sequence[str], one: str, many: str) -> str:
    if not names:
        return ""
    return f"all {many}" if "*" in names else f"{one if len(names) == 1 else many} {', '.join(names)}"


def place(ref: str | None) -> str:
    """A peer's ref as it is called where it is tracked."""
    return place_of(ref) if ref is not None and is_shared_ref(ref) else ref or ""


def show_moves(moves: Sequence[Move]) -> None:
    rows = [(each.place, short(each.old) or "-", short(each.new) or "no longer shared", each.type, each.trigger) for each in moves]
    show_table(("what", "from", "to", "type", "trigger"), rows)


def show_refusals(refused: Sequence[Refused], when: Callable[[int], str] | None = None) -> None:
    """Why something was not taken; ``when``: with the time of each."""
    rows = [(each.code, place(each.ref), each.message, *((when(each.at),) if when else ())) for each in refused]
    show_table(("refused", "what", "why", *(("when (UTC)",) if when else ())), rows)


def grants_counted(number: int) -> str:
    return counted(number, "grant", "grants")


@contextmanager
def bar(args: argparse.Namespace, label: str) -> Iterator[Callable[[int, int], None] | None]:
    """Shows a person at a terminal, on standard error, that something is going on, and how far it is once that is known."""
    if args.json or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import Progress  # only people see it

    with Progress(console=console(stderr=True), transient=True) as shown:
        task = shown.add_task(label, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)

"""What the commands about other spaces share: addresses and shares, as people say them, and what helps on."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager

from clia.cli.output import console, counted, one_line, write
from clia.errors import InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    from clia.federation.model import Share, Untaken

HEARD_BY = (
    "peers that look here hear of it at their next sync; where they look at a server, push there: clia announce --push REMOTE\n"
)

NO_TRUST = "take in nothing of it, whatever is granted, until it is trusted; nor does a forge here let it in to fetch"


def add_peer(parser: argparse.ArgumentParser, text: str = "which peer", *, nargs: str | None = None) -> None:
    parser.add_argument("peer", metavar="PEER", nargs=nargs, help=text)


def check_execute(type_: str, trigger: str, *, execute: bool) -> None:
    if execute and (type_, trigger) != ("behaviour", "behaviour"):
        raise InvalidInput(
            "only a behaviour can be run: --execute goes with TYPE behaviour and TRIGGER behaviour",
            code="invalid-option",
            fields={"option": "--execute"},
        )


def address_of(url: str | None) -> str | None:
    """An address as it is kept: a folder with its whole path, since nobody knows later where it was typed."""
    if not url or not _is_folder(url):
        return url
    return os.path.abspath(os.path.expanduser(url))


def note_address(url: str | None) -> None:
    """Says where a folder is not there: it may come later, or be typed wrong."""
    if url and is_missing_folder(url):
        write(f"note: there is no folder {one_line(url)} yet\n", sys.stderr)


def is_missing_folder(url: str) -> bool:
    return _is_folder(url) and not os.path.isdir(url)


def _is_folder(url: str) -> bool:
    """Else it is a scheme, the host of ssh, or something that is refused."""
    return url == url.strip() and not url.startswith("-") and ":" not in url.partition("/")[0]


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


def follow_hints(peer: str, waiting: Sequence[Untaken]) -> list[str]:
    """That all it takes to follow agents can be granted at once, where that would let one in."""
    helps = any(each.hint.startswith("clia cap grant") and each.place.startswith("agents/") for each in waiting)
    return [f"clia cap grant {peer} --follow grants all that it takes to follow its agents"] if helps else []


def show_hints(hints: Sequence[str]) -> None:
    write("".join(one_line(f"  hint: {each}") + "\n" for each in hints))


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

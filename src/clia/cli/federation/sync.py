"""``clia sync``: listen to peers.

Invariant: of several peers, one that fails keeps no other back; the exit code says that there was one.
"""

from __future__ import annotations

import sys

from clia.cli.federation.common import add_peer, bar, show_moves, show_refusals
from clia.cli.output import counted, emit_json, one_line, write
from clia.cli.space.common import add_space, space_of
from clia.errors import CliaError
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from clia.federation.model import Synced


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    add_peer(parser, "whom to listen to (default: every peer with an address)", nargs="?")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 1 where a peer could not be listened to. What was refused of one is part of the answer."""
    with space_of(args) as space, bar(args, "Listening") as progress:
        found = space.sync(args.peer, progress=progress)
    if args.json:
        emit_json(as_json(found))
    else:
        for each in found:
            _show(each)
        if not found:
            write("there is no peer with an address; add one: clia peer add NAME --key KEY --url URL\n")
    return 1 if any(each.error is not None for each in found) else 0


def _show(found: Synced) -> None:
    if found.error is not None:
        error = CliaError.from_json(found.error)
        write(one_line(f"{found.peer}: error: {error.code}: {error.message}") + "\n", sys.stderr)
        write("".join(one_line(f"  hint: {each}") + "\n" for each in error.hints), sys.stderr)
        return
    said = [f"{counted(found.accepted, 'statement', 'statements')} heard"] if found.accepted else []
    said += [f"{counted(len(found.moves), 'move', 'moves')} tracked"] if found.moves else []
    said += [f"{len(found.refused)} refused"] if found.refused else []
    said += [f"{counted(found.keys, 'new key', 'new keys')}"] if found.keys else []
    write(one_line(f"{found.peer}: {', '.join(said) or 'nothing new'}") + "\n")
    if found.moves:
        show_moves(found.moves)
    if found.refused:
        show_refusals(found.refused)
        write(one_line(f"  hint: clia peer show {found.peer} says what waits, and what would let it in") + "\n")

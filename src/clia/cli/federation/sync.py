"""``clia sync``: listen to peers.

Invariant: of several peers, one that fails keeps no other back; the exit code says that there was one, or somebody else in its
place.
"""

from __future__ import annotations

import sys

from clia.cli.federation.common import add_peer, bar, follow_hints, show_hints
from clia.cli.federation.tables import show_moves, show_refusals
from clia.cli.output import counted, emit_json, one_line, write
from clia.cli.space.common import add_space, space_of
from clia.errors import CliaError
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from clia.facade.space import Space
    from clia.federation.model import Synced

_SERIOUS = frozenset(("key-not-continued", "malformed-key-chain", "chain-forked", "bad-signature"))
_NOT_OURS = "unknown-key"


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    add_peer(parser, "whom to listen to (default: every peer with an address)", nargs="?")
    parser.epilog = (
        "What a grant does not let in is part of the answer: exit code 0. It is 1 where a peer could not be listened to, and where "
        "somebody else may be in its place: key-not-continued, malformed-key-chain, chain-forked, bad-signature, unknown-key."
    )
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 1 where a peer could not be listened to, or may be somebody else. What else was refused is part of the answer."""
    with space_of(args) as space:
        with bar(args, "Listening") as progress:
            found = space.sync(args.peer, progress=progress)
        if args.json:
            emit_json(as_json(found))
        else:
            for each in found:
                _show(space, each)
            if not found:
                write("there is no peer with an address; add one: clia peer add NAME --key KEY --url URL\n")
    return 1 if any(each.error is not None or _is_serious(each) for each in found) else 0


def _is_serious(found: Synced) -> bool:
    """Whether somebody else may be in the peer's place."""
    codes = {each.code for each in found.refused}
    # Behind what a lost key has said there may be what the key says that is pinned now.
    return bool(codes & _SERIOUS) or (_NOT_OURS in codes and not found.accepted)


def _show(space: Space, found: Synced) -> None:
    if found.error is not None:
        error = CliaError.from_json(found.error)
        write(one_line(f"{found.peer}: error: {error.code}: {error.message}") + "\n", sys.stderr)
        write("".join(one_line(f"  hint: {each}") + "\n" for each in error.hints), sys.stderr)
        return
    said = [f"{counted(found.accepted, 'statement', 'statements')} heard"] if found.accepted else []
    said += [f"{counted(len(found.moves), 'move', 'moves')} tracked"] if found.moves else []
    said += [f"{len(found.refused)} refused"] if found.refused else []
    said += [f"{counted(found.keys, 'new key', 'new keys')}"] if found.keys else []
    said += ["it has said nothing to this space yet"] if found.silent else [] if said else ["nothing new"]
    said += [counted(found.waiting, "claim waits", "claims wait")] if found.waiting and not found.refused else []
    write(one_line(f"{found.peer}: {', '.join(said)}") + "\n")
    if found.moves:
        show_moves(found.moves)
    if found.refused:
        show_refusals(found.refused)
    _show_hints(space, found)


def _show_hints(space: Space, found: Synced) -> None:
    if found.silent:
        show_hints(_what_it_takes(space.peer(found.peer).url or ""))
    if found.waiting or found.refused:
        show_hints([f"clia peer show {found.peer} says what waits, and what would let it in"])
    if found.waiting and not found.refused:
        show_hints(follow_hints(found.peer, space.waiting(found.peer)))


def _what_it_takes(url: str) -> list[str]:
    """What is to be done in the other space before there is something to hear."""
    hints = [
        "over there: clia peer add NAME --key KEY, where KEY is what 'clia key show' prints here",
        "then: clia peer share NAME --agent '*', and clia announce NAME",
    ]
    if "/federation/" not in url:  # a forge shows what is announced by itself
        hints.append(f"where {url} is no repository of theirs, but a server: clia announce NAME --push REMOTE")
    return hints

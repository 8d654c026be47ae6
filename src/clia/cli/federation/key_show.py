"""``clia key show``.

Invariant: what others pin stands alone on standard output; what else is said goes to standard error.
"""

from __future__ import annotations

import sys

from clia.cli.output import emit_json, one_line, write
from clia.cli.space.common import add_space, space_of
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from clia.federation.model import Key


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        key = space.key()
    show_key(key, as_program=args.json)
    return 0


def show_key(key: Key, *, as_program: bool) -> None:
    """Who this space is to others."""
    if as_program:
        emit_json(as_json(key))
        return
    write(f"{key.text}\n")
    said = [f"fingerprint {key.fingerprint}; {_number(key)}"]
    said += [] if key.mine else ["this clone does not have the private key (another clone may, or it is lost)"]
    said += [f"served to peers at {key.url}"] if key.url else []
    write("".join(f"{one_line(each)}\n" for each in said), sys.stderr)


def _number(key: Key) -> str:
    return "the first key of this space" if len(key.chain) == 1 else f"key {len(key.chain)} of this space"

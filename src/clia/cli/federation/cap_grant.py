"""``clia cap grant``.

Invariant: of several grants all are made or, where one cannot be, none.
"""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime, timedelta

from clia.cli.federation.cap_list import show_grants
from clia.cli.federation.common import add_peer, check_execute
from clia.cli.output import emit_json, one_line, write
from clia.cli.space.common import add_space, space_of
from clia.errors import InvalidInput
from clia.federation.statements import BEHAVIOUR, HEAD_MOVE, MERGE, NOTE, SPAWN
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

FOLLOW = (
    ("agent-commit", "spawn"),
    ("agent-commit", "head-move"),
    ("agent-commit", "merge"),
    ("briefing", "spawn"),
    ("console-trace", "note"),
)
"""What lets a peer's agents in, with their briefings and traces. Neither types, which stay for good, nor behaviours."""
# What can be said by a trigger, beside types; head-move is by every other kind of commit.
_BY = {
    SPAWN: ("agent-commit", "spawn", "briefing"),
    MERGE: ("agent-commit", "session-merge"),
    NOTE: ("console-trace", "session"),
    BEHAVIOUR: ("behaviour",),
}
_FROM_NOW = re.compile(r"(\d{1,6})([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    add_peer(parser, "whom")
    parser.add_argument("type", metavar="TYPE", nargs="?", help="what may be taken in, subtypes too; agent-commit: every commit")
    parser.add_argument(
        "triggers",
        metavar="TRIGGER",
        nargs="*",
        help="by what: spawn, head-move, merge, note, behaviour or type (several may be given)",
    )
    parser.add_argument(
        "--follow",
        action="store_true",
        help="instead of TYPE and TRIGGER: all that it takes to follow its agents; says what that is",
    )
    parser.add_argument("--execute", action="store_true", help="behaviours may also run here: for TYPE and TRIGGER behaviour")
    parser.add_argument("--expires", metavar="WHEN", help="until when: 2027-01-31 (its first moment, UTC), or 30d from now")
    parser.epilog = "Example: clia cap grant friends agent-commit spawn head-move merge --expires 30d"
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    wanted = _wanted(args)
    expires = None if args.expires is None else _when(args.expires)
    with space_of(args) as space:
        # This complains about a peer or trigger before anything is granted.
        paths = [space.explain(args.peer, type_, trigger).path for type_, trigger in wanted]
        made = [space.grant(args.peer, *each, execute=args.execute, expires=expires) for each in wanted]
        url = space.peer(args.peer).url
    if args.json:
        emit_json(as_json(made))
        return 0
    show_grants(made)
    never = [pair for pair, path in zip(wanted, paths, strict=True) if not _occurs(path, pair[1])]
    write(
        "".join(f"note: no {type_} ever comes by {trigger}: this grant lets nothing in\n" for type_, trigger in never), sys.stderr
    )
    where = "" if url else f"peer change {args.peer} --url URL says where it is reached; then clia "
    write(one_line(f"next: clia {where}sync {args.peer}") + "\n")
    return 0


def _occurs(path: Sequence[str], trigger: str) -> bool:
    """Whether something of a type, or of a subtype of it, can come by a trigger; ``path`` leads from the type to its root."""
    if trigger == HEAD_MOVE:
        return path[-1] == "agent-commit" and not {"spawn", "session-merge"} & set(path)
    return trigger not in _BY or path[0] in _BY[trigger]


def _wanted(args: argparse.Namespace) -> list[tuple[str, str]]:
    if args.follow:
        if args.type is not None or args.execute:
            raise InvalidInput("--follow says what is granted: no TYPE, TRIGGER or --execute", code="invalid-option")
        return list(FOLLOW)
    if args.type is None or not args.triggers:
        raise InvalidInput(
            "say what is granted: TYPE and TRIGGER, or --follow",
            code="usage",
            hints=[f"clia cap grant {args.peer} agent-commit spawn head-move merge", f"clia cap grant {args.peer} --follow"],
        )
    wanted = [(args.type, each) for each in dict.fromkeys(args.triggers)]
    for each in wanted:
        check_execute(*each, execute=args.execute)
    return wanted


def _when(text: str) -> int:
    """The moment at which a grant ends, in seconds."""
    ahead = _FROM_NOW.fullmatch(text) if text.isascii() else None
    try:
        if ahead is not None:
            found = datetime.now(UTC) + timedelta(**{_UNITS[ahead[2]]: int(ahead[1])})
        else:
            found = datetime.fromisoformat(text)
        return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        raise InvalidInput(
            f"--expires takes a time, not {text!r}",
            code="invalid-time",
            hints=["2027-01-31, 2027-01-31T10:00:00Z, or how long from now: 90m, 12h, 30d, 4w"],
            fields={"field": "expires"},
        ) from None

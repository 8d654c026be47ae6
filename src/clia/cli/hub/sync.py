"""``clia hub sync``: take over what the hub has, and publish what it has not.

Invariant: nothing is forced. What becomes of two lines of one agent, and of work that is given up, is a person's to say.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from clia.cli.federation.common import bar, show_hints
from clia.cli.federation.tables import ROWS, show_rest, show_rows
from clia.cli.hub.common import hub_words, show_elsewhere, show_forks, standing
from clia.cli.output import emit_json, one_line, write
from clia.cli.space.common import add_space, require_person, short, space_of
from clia.errors import InvalidInput, NotFound
from clia.hub.records import ELSEWHERE, PUBLISHED, REMOVED
from clia.space.adoption import AHEAD, NEW, REFUSED, UNITED
from clia.space.model import as_json
from clia.values import refs as names
from clia.workers.hub_inspection import worktree_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from clia.facade.space import Space
    from clia.hub.records import HubStatus, HubSynced

_FINE = (NEW, AHEAD, UNITED, PUBLISHED, REMOVED)
_LEFT = (ELSEWHERE, REFUSED)  # to another machine; and what was purged here goes there as it is here
_WORDS = {AHEAD: "followed"}
"""What people read. Beside what is behind, they take ``ahead`` for a ref of theirs."""
_CHECKED_OUT = "branch-checked-out"


class _Done(NamedTuple):
    """What ``--json`` says."""

    synced: Sequence[HubSynced]
    status: HubStatus


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument(
        "--fork",
        action="append",
        default=[],
        metavar="AGENT=NEW-NAME",
        help="an agent that went two ways: our line becomes a new agent, the hub's line keeps the name (repeatable)",
    )
    parser.add_argument(
        "--abandon",
        action="append",
        default=[],
        metavar="AGENT",
        help="give up what another machine did to an agent, or to (types) and the like, and has not published (repeatable)",
    )
    parser.epilog = (
        "What became of a ref: new, followed (ahead in --json; the hub had more), united with ours, or gone; published there; or "
        "left, with the reason: a fork, purged here, elsewhere (another machine owes it), branch-checked-out, "
        "unreadable, hub-refused (the server does not allow it; its words stand below). "
        "Exit code 1 where something is left that a person must settle: a fork, or what could not be taken over or sent."
    )
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    """Exit 1 where a fork is left, or something is in the way. What is elsewhere is only waited for."""
    forks = _forks(args.fork)
    if forks or args.abandon:
        require_person("clia hub sync without --fork and --abandon decides about nobody's work")
    with space_of(args) as space:
        with bar(args, "Syncing") as progress:
            synced = space.hub_sync(forks=forks, abandon=args.abandon, progress=progress)
        done = _Done(synced, space.hub_status())
        hints = [] if args.json else _hints(space, synced)
        unfounded = [] if args.json else _unfounded(space, args.abandon)
    if args.json:
        emit_json(as_json(done))
    else:
        _show(done, hints)
        show_hints(unfounded)
    return 1 if done.status.forks or any(each.what not in (*_FINE, *_LEFT) for each in synced) else 0


def _hints(space: Space, synced: Sequence[HubSynced]) -> list[str]:
    """What a person can do about a branch that stands in a worktree."""
    refs = [each.ref for each in synced if each.what == _CHECKED_OUT]
    return [
        f"switch {worktree_of(space, ref) or 'its worktree'} to another branch than {_branch(ref)}, then sync again" for ref in refs
    ]


def _unfounded(space: Space, abandoned: Sequence[str]) -> list[str]:
    """What was given up may have been the work of a session that goes on."""
    found: list[str] = []
    for name in abandoned:
        with suppress(NotFound, InvalidInput):  # it was no agent's
            found += [
                f"session {each.id} of {name} is live, and what it did may be among the work that was given up: "
                f"clia session show {name}, or clia session cancel {name}"
                for each in space.sessions(name, live=True)
            ]
    return found


def _branch(ref: str) -> str:
    return ref.removeprefix(names.BRANCHES)


def _forks(words: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        agent, equals, new = word.partition("=")
        if not equals or not agent or not new or agent in found:
            raise InvalidInput(
                f"--fork takes AGENT=NEW-NAME, once for an agent, not {word!r}",
                code="invalid-option",
                fields={"option": "--fork", "value": word},
            )
        found[agent] = new
    return found


def _show(done: _Done, hints: Sequence[str]) -> None:
    show_synced(done.synced, hints)
    write(f"{hub_words(done.status)}\n{standing(done.status)}\n")
    show_forks(done.status.forks)
    show_elsewhere(done.status.elsewhere)


def show_synced(synced: Sequence[HubSynced], hints: Sequence[str] = ()) -> None:
    """What became of each ref that differed, and what there is to do."""
    from rich.text import Text  # only people see it

    if not synced:
        return
    rows = []
    for each in synced[:ROWS]:
        what = Text(one_line(_WORDS.get(each.what, each.what)), style="green" if each.what in _FINE else "yellow")
        rows.append((what, each.ref, short(each.cid) or "-"))
    show_rows(("what", "ref", "commit"), rows)
    show_rest(len(synced) - ROWS)
    for line in _reasons(synced)[:ROWS]:
        write(f"{line}\n")
    show_hints(hints[:ROWS])
    write("\n")


def _reasons(synced: Sequence[HubSynced]) -> list[str]:
    """What is in the way, in words; once where it is the same for many refs, since a server refuses them alike."""
    found: dict[str, list[str]] = {}
    for each in synced:
        if each.reason:
            found.setdefault(each.reason, []).append(each.ref)
    return [f"{one_line(_some_of(refs))}: {one_line(why)}" for why, refs in found.items()]


def _some_of(refs: Sequence[str]) -> str:
    return refs[0] if len(refs) == 1 else f"{refs[0]} and {len(refs) - 1} more"

"""``clia hub``: the git server through which the machines of a space exchange work."""

from __future__ import annotations

import argparse
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple

from clia.cli.command import IN_SPACE, Answer, arg, command, flag, many, opt
from clia.cli.inputs import require_person
from clia.cli.output import counted, one_line, write
from clia.cli.rendering import MAX_ROWS, progress_bar, short, show_hints, show_rest, show_rows, spinner
from clia.cli.workers import span
from clia.errors import InvalidInput, NotFound
from clia.hub.records import ELSEWHERE, PUBLISHED, REMOVED
from clia.space.adoption import AHEAD, NEW, REFUSED, UNITED, lock_of, owner_of, title_of
from clia.values import refs as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from clia.facade.settings import Settings
    from clia.facade.space import Space
    from clia.hub.records import Elsewhere, Fork, HubStatus, HubSynced

HEADS = {"branches": "as branches", "published": "separate from branches"}
_DONE = (NEW, AHEAD, UNITED, PUBLISHED, REMOVED)
_HARMLESS = (ELSEWHERE, REFUSED)  # left to another machine; and purged here, which other machines will follow
_WORDS = {AHEAD: "followed"}  # people would read "ahead" as their own ref being ahead
_CHECKED_OUT = "branch-checked-out"
_SYNC_HINT = "publish and fetch the rest with: clia hub sync"


def heads_option(name: str) -> Any:
    return opt(
        None,
        f"where the hub keeps agents' heads: {names.HEADS} or {names.PUBLISHED} (default: as the hub has them, else branches)",
        name,
        choices=tuple(HEADS),
    )


@command("hub set", **IN_SPACE)
def hub_set(
    settings: Settings,
    path: str,
    hub: str = arg("URL|REMOTE", "repository on any git server, or a remote of this repository"),
    heads: str | None = heads_option("--heads"),
    new_store: bool = flag(
        "the shared database is permanently lost; replace it with this machine's, or without one give each machine its own"
    ),
    new_hub: bool = flag("the old hub of machines that share a database is permanently lost; replace it with this one"),
) -> Answer:
    """Choose the hub of this space, or change it.

    Publishes and fetches nothing yet. A hub that is unreachable or holds another space is refused.
    """
    from clia.facade.joining import HubWish
    from clia.facade.setup import set_hub
    from clia.space.model import as_json
    from clia.workers.hub_inspection import address_at

    before = address_at(path, settings)
    with set_hub(path, HubWish(hub, heads, new_store, new_hub), settings=settings) as space:
        status = space.hub.status()

    def show() -> None:
        write(f"{hub_line(status)}\n{standing(status)}\n")
        show_hints([] if is_in_sync(status) else [_SYNC_HINT])
        show_hints(restart_hints(before, status))

    return Answer(as_json(status), show)


@command("hub status")
def hub_status(
    space: Space,
    settings: Settings,
    path: str,
    json_output: bool,
    fetch: bool = flag("ask the hub first, instead of showing the last known state"),
) -> Answer:
    """Show whether this clone is in sync with the hub, and what is unpublished, forked or on another machine."""
    if fetch and space.has_hub:
        from clia.workers.hub_inspection import fetch_hub

        with spinner("Asking the hub", hidden=json_output):
            fetch_hub(path, settings)
    status = space.hub.status()
    return Answer(status, lambda: _show_status(status))


class SyncReport(NamedTuple):
    """The output of ``clia hub sync --json``."""

    synced: Sequence[HubSynced]
    status: HubStatus


class _AddFork(argparse.Action):
    """Collects ``AGENT=NEW-NAME`` words in a dictionary."""

    def __call__(self, parser: object, namespace: argparse.Namespace, word: Any, option: str | None = None) -> None:  # noqa: ARG002
        forks = getattr(namespace, self.dest)
        agent, _, new = word.partition("=")
        if not agent or not new or agent in forks:
            message = f"--fork takes AGENT=NEW-NAME, once per agent, not {word!r}"
            raise InvalidInput(message, code="invalid-option", fields={"option": "--fork", "value": word})
        setattr(namespace, self.dest, forks | {agent: new})


@command("hub sync")
def hub_sync(
    space: Space,
    json_output: bool,
    forks: dict[str, str] = opt(
        "AGENT=NEW-NAME",
        "settle a forked agent: our line becomes a new agent, the hub's line keeps the name (repeatable)",
        "--fork",
        action=_AddFork,
        default={},
    ),
    abandon: list[str] = many(
        "AGENT", "give up work on an agent, or on (types) and the like, that another machine has not published (repeatable)"
    ),
) -> Answer:
    """Fetch what is new on the hub, and publish what it lacks.

    Each ref is new, followed (ahead in --json: the hub had more), united with ours, gone, published, or left for a reason: a
    fork, purged here, elsewhere (another machine has unpublished work), branch-checked-out, unreadable, hub-refused (the server
    does not allow it). Exit code 1 if something is left for a person to settle: a fork, or a ref that could not be fetched or
    sent.
    """
    if forks or abandon:
        require_person("run clia hub sync without --fork and --abandon")
    with progress_bar("Syncing", hidden=json_output) as progress:
        synced = space.hub.sync(forks=forks, abandon=abandon, progress=progress)
    report = SyncReport(synced, space.hub.status())

    def show() -> None:
        _show_synced(synced, _worktree_hints(space, synced))
        write(f"{hub_line(report.status)}\n{standing(report.status)}\n")
        show_forks(report.status.forks)
        show_elsewhere(report.status.elsewhere)
        show_hints(_live_session_hints(space, abandon))

    left = report.status.forks or any(each.what not in (*_DONE, *_HARMLESS) for each in synced)
    return Answer(report, show, exit_code=1 if left else 0)


def _worktree_hints(space: Space, synced: Sequence[HubSynced]) -> list[str]:
    """What to do about branches that are checked out in a worktree."""
    from clia.workers.hub_inspection import worktree_of

    refs = [each.ref for each in synced if each.what == _CHECKED_OUT]
    return [
        f"switch {worktree_of(space, ref) or 'its worktree'} to another branch than {ref.removeprefix(names.BRANCHES)}, "
        "then sync again"
        for ref in refs
    ]


def _live_session_hints(space: Space, abandoned: Sequence[str]) -> list[str]:
    """Live sessions whose work may be part of what was abandoned."""
    hints: list[str] = []
    for name in abandoned:
        with suppress(NotFound, InvalidInput):  # not an agent
            hints += [
                f"session {session.id} of {name} is live, and its work may be among what was abandoned: "
                f"clia session show {name}, or clia session cancel {name}"
                for session in space.sessions(name, live=True)
            ]
    return hints


def _show_synced(synced: Sequence[HubSynced], hints: Sequence[str]) -> None:
    from rich.text import Text

    if not synced:
        return
    rows = []
    for each in synced[:MAX_ROWS]:
        what = Text(one_line(_WORDS.get(each.what, each.what)), style="green" if each.what in _DONE else "yellow")
        rows.append((what, each.ref, short(each.cid) or "-"))
    show_rows(("what", "ref", "commit"), rows)
    show_rest(len(synced) - MAX_ROWS)
    for line in _reasons(synced)[:MAX_ROWS]:
        write(f"{line}\n")
    show_hints(hints[:MAX_ROWS])
    write("\n")


def _reasons(synced: Sequence[HubSynced]) -> list[str]:
    """Why refs were left; one line per reason, because a server often refuses many refs alike."""
    refs: dict[str, list[str]] = {}
    for each in synced:
        if each.reason:
            refs.setdefault(each.reason, []).append(each.ref)
    return [f"{one_line(_some_refs(group))}: {one_line(reason)}" for reason, group in refs.items()]


def _some_refs(refs: Sequence[str]) -> str:
    return refs[0] if len(refs) == 1 else f"{refs[0]} and {len(refs) - 1} more"


def is_in_sync(status: HubStatus) -> bool:
    return not (status.away_since or status.owed or status.behind or status.forks)


def hub_line(status: HubStatus) -> str:
    return one_line(f"hub {status.address} (remote {status.remote}, heads {HEADS.get(status.heads, status.heads)})")


def without_forks(status: HubStatus, refs: Iterable[str]) -> list[str]:
    """Refs without those of forked agents, which no sync moves."""
    forked = {fork.agent for fork in status.forks}
    return [ref for ref in refs if lock_of(ref) not in forked]


def standing(status: HubStatus) -> str:
    """How this clone compares with the hub, in one line."""
    owed, behind = without_forks(status, status.owed), without_forks(status, status.behind)
    parts = [f"away for {_age(status.away_since)}: {status.away_reason}"] if status.away_since else []
    parts += [f"{counted(len(owed), 'ref', 'refs')} owed"] if owed else []
    parts += [f"{counted(len(behind), 'ref', 'refs')} behind"] if behind else []
    parts += [counted(len(status.forks), "fork", "forks")] if status.forks else []
    return one_line("; ".join(parts) or f"in sync, {counted(status.refs, 'ref', 'refs')}")


def restart_hints(before: str | None, status: HubStatus) -> list[str]:
    """What to do when live state has moved to a shared store."""
    if before == status.address or not status.shared_store:
        return []
    return ["restart the workers and forges that run in this clone; until then they do not use this hub"]


def _show_status(status: HubStatus) -> None:
    write(f"{hub_line(status)}\n{standing(status)}\n")
    write(f"the store is {'shared by all machines' if status.shared_store else 'local to this clone'}; clone {status.clone}\n")
    owed, behind = without_forks(status, status.owed), without_forks(status, status.behind)
    _show_ref_counts("owed", owed)
    _show_ref_counts("behind", behind)
    show_forks(status.forks)
    show_elsewhere(status.elsewhere)
    if status.away_since:
        show_hints(["you can keep working; what is owed is published when the hub is back"])
    elif owed or behind:
        show_hints([_SYNC_HINT])


def show_forks(forks: Sequence[Fork]) -> None:
    if not forks:
        return
    write("\n")
    rows = [
        (fork.agent, short(fork.base) or "none", short(fork.ours), fork.ahead, short(fork.theirs), fork.behind) for fork in forks
    ]
    headings = ("forked", "last in common", "ours", "only here", "the hub's", "only there")
    show_rows(headings, rows[:MAX_ROWS], right=("only here", "only there"))
    show_rest(len(rows) - MAX_ROWS)
    show_hints([f"keep ours under another name: clia hub sync --fork {fork.agent}=NEW-NAME" for fork in forks[:MAX_ROWS]])


def show_elsewhere(elsewhere: Sequence[Elsewhere]) -> None:
    if not elsewhere:
        return
    write("\n")
    rows = [(each.agent, each.clone, each.since, _age(each.since)) for each in elsewhere]
    show_rows(("elsewhere", "machine (clone)", "since", "for"), rows[:MAX_ROWS], right=("for",))
    show_rest(len(rows) - MAX_ROWS)
    show_hints(["their machine publishes them when it reaches the hub; if it never will: clia hub sync --abandon AGENT"])


def _show_ref_counts(heading: str, refs: Iterable[str]) -> None:
    """Count refs by owner: agents by name, then what all agents share."""
    numbers = Counter(title_of(owner_of(lock_of(ref))) for ref in refs)
    if not numbers:
        return
    write("\n")
    rows = sorted(numbers.items(), key=lambda item: (item[0].startswith("("), item[0]))
    show_rows((heading, "refs"), rows[:MAX_ROWS], right=("refs",))
    show_rest(len(rows) - MAX_ROWS)


def _age(since: str | None) -> str:
    try:
        return span((datetime.now(UTC) - datetime.fromisoformat(since or "")).total_seconds())
    except (ValueError, TypeError):  # not a time, or one without a time zone
        return "?"

"""``clia hub``: the git server through which the machines of a space exchange work."""

from __future__ import annotations

import argparse
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple

from clia.cli.command import IN_SPACE, Answer, arg, command, flag, many, opt
from clia.cli.inputs import invalid_option, require_person
from clia.cli.output import counted, one_line, write
from clia.cli.rendering import MAX_ROWS, progress_bar, short, show_hints, show_rows, spinner, styled
from clia.cli.workers import span
from clia.errors import InvalidInput, NotFound
from clia.hub.model import ELSEWHERE, PUBLISHED, REMOVED
from clia.space.remotes import AHEAD, NEW, REFUSED, UNITED, lock_of, owner_of, title_of
from clia.values import refs as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from clia.facade.settings import Settings
    from clia.facade.space import Space
    from clia.hub.model import HubStatus, HubSynced

HEADS = {"branches": "as branches", "published": "separate from branches"}
_DONE = (NEW, AHEAD, UNITED, PUBLISHED, REMOVED)
_HARMLESS = (ELSEWHERE, REFUSED)  # left to another machine; and purged here, which other machines will follow
_WORDS = {AHEAD: "followed"}  # people would read "ahead" as their own ref being ahead
_SYNC_HINT = "publish and fetch the rest with: clia hub sync"


def heads_option(name: str) -> Any:
    return opt(
        None,
        f"where the hub keeps agents' heads: {names.HEADS} or {names.PUBLISHED} (default: as the hub has them, else published)",
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
) -> Answer[HubStatus]:
    """Choose the hub of this space, or change it.

    Publishes and fetches nothing yet. A hub that is unreachable or holds another space is refused.
    """
    from clia.facade.setup import hub_address, set_hub
    from clia.hub.joining import HubTarget

    before = hub_address(path, settings)
    with set_hub(path, HubTarget(hub, heads, new_store, new_hub), settings=settings) as space:
        status = space.hub.status()

    def show() -> None:
        show_standing(status)
        show_hints([] if is_in_sync(status) else [_SYNC_HINT])
        show_hints(restart_hints(before, status))

    return Answer(status, show)


@command("hub status")
def hub_status(
    space: Space,
    json_output: bool,
    fetch: bool = flag("ask the hub first, instead of showing the last known state"),
) -> Answer[HubStatus]:
    """Show whether this clone is in sync with the hub, and what is unpublished, forked or on another machine."""
    if fetch and space.hub.exchange is not None:
        with spinner("Asking the hub", hidden=json_output):
            space.hub.exchange.hub.fetch(retry_now=True)  # records an outage if it is unreachable
    status = space.hub.status()
    return Answer(status, lambda: _show_status(status))


class _AddFork(argparse.Action):
    """Collects ``AGENT=NEW-NAME`` words in a dictionary."""

    def __call__(self, parser: object, namespace: argparse.Namespace, word: Any, option: str | None = None) -> None:  # noqa: ARG002
        forks = getattr(namespace, self.dest)
        agent, _, new = word.partition("=")
        if not agent or not new or agent in forks:
            raise invalid_option(f"--fork takes AGENT=NEW-NAME, once per agent, not {word!r}", option="--fork", value=word)
        setattr(namespace, self.dest, forks | {agent: new})


class HubSyncAnswer(NamedTuple):
    synced: list[HubSynced]  # refs that differed
    status: HubStatus  # as `clia hub status` prints it, afterwards


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
        "AGENT", "give up another machine's unpublished work on an agent, or on a shared chain such as (types) (repeatable)"
    ),
) -> Answer[HubSyncAnswer]:
    """Fetch what is new on the hub, and publish what it lacks.

    Prints one result per ref. Changed: new, followed (it was behind the hub; ahead in --json), united (it diverged and was merged),
    gone, published. Unchanged: fork, purged (here), elsewhere (another machine has unpublished work), branch-checked-out,
    unreadable, hub-refused (the server does not allow it). The exit code is 1 if a person must act: on a fork, or on a ref that
    could not be fetched or sent.
    """
    if forks or abandon:
        require_person("run clia hub sync without --fork and --abandon")
    with progress_bar("Syncing", hidden=json_output) as progress:
        synced = space.hub.sync(forks=forks, abandon=abandon, progress=progress)
    status = space.hub.status()

    def show() -> None:
        _show_synced(synced, _worktree_hints(space, synced))
        show_standing(status)
        show_forks_and_elsewhere(status)
        show_hints(_live_session_hints(space, abandon))

    left = status.forks or any(result.what not in (*_DONE, *_HARMLESS) for result in synced)
    return Answer(HubSyncAnswer(synced, status), show, exit_code=1 if left else 0)


def _worktree_hints(space: Space, synced: Sequence[HubSynced]) -> list[str]:
    """What to do about branches that are checked out in a worktree."""
    refs = [result.ref for result in synced if result.what == "branch-checked-out"]
    worktrees = [(space.views.worktree_of(ref) or "its worktree", ref.removeprefix(names.BRANCHES)) for ref in refs]
    return [f"switch {worktree} to another branch than {branch}, then sync again" for worktree, branch in worktrees]


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
    if not synced:
        return
    rows = []
    for result in synced:
        outcome = styled(_WORDS.get(result.what, result.what), "green" if result.what in _DONE else "yellow")
        rows.append((outcome, result.ref, short(result.cid) or "-"))
    show_rows(("what", "ref", "commit"), rows, limit=MAX_ROWS)
    refused: dict[str, list[str]] = {}  # one line per reason, because a server often refuses many refs alike
    for result in synced:
        if result.reason:
            refused.setdefault(result.reason, []).append(result.ref)
    for reason, refs in list(refused.items())[:MAX_ROWS]:
        more = f" and {len(refs) - 1} more" if len(refs) > 1 else ""
        write(f"{one_line(f'{refs[0]}{more}: {reason}')}\n")
    show_hints(hints[:MAX_ROWS])
    write("\n")


def is_in_sync(status: HubStatus) -> bool:
    return not (status.away_since or status.owed or status.behind or status.forks)


def show_standing(status: HubStatus) -> None:
    """Print the hub, and how this clone compares with it."""
    heads = HEADS.get(status.heads, status.heads)
    write(f"{one_line(f'hub {status.address} (remote {status.remote}, heads {heads})')}\n{standing(status)}\n")


def without_forks(status: HubStatus, refs: Iterable[str]) -> list[str]:
    """Refs without those of forked agents, which no sync moves."""
    forked = {fork.agent for fork in status.forks}
    return [ref for ref in refs if lock_of(ref) not in forked]


def standing(status: HubStatus) -> str:
    """How this clone compares with the hub, in one line."""
    owed, behind = without_forks(status, status.owed), without_forks(status, status.behind)
    parts = [f"away for {_age(status.away_since)}: {status.away_reason}"] if status.away_since else []
    parts += [f"{counted(len(owed), 'ref')} owed"] if owed else []
    parts += [f"{counted(len(behind), 'ref')} behind"] if behind else []
    parts += [counted(len(status.forks), "fork")] if status.forks else []
    return one_line("; ".join(parts) or f"in sync, {counted(status.refs, 'ref')}")


def restart_hints(before: str | None, status: HubStatus) -> list[str]:
    """What to do when live state has moved to a shared store."""
    if before == status.address or not status.shared_store:
        return []
    return ["restart the workers and forges that run in this clone; until then they do not use this hub"]


def _show_status(status: HubStatus) -> None:
    show_standing(status)
    write(f"the store is {'shared by all machines' if status.shared_store else 'local to this clone'}; clone {status.clone}\n")
    owed, behind = without_forks(status, status.owed), without_forks(status, status.behind)
    _show_ref_counts("owed", owed)
    _show_ref_counts("behind", behind)
    show_forks_and_elsewhere(status)
    if status.away_since:
        show_hints(["you can keep working; unpublished work is sent when the hub is back"])
    elif owed or behind:
        show_hints([_SYNC_HINT])


def show_forks_and_elsewhere(status: HubStatus) -> None:
    """Print the agents that have forked, and those whose last work is on another machine."""
    if status.forks:
        write("\n")
        forks = [
            (fork.agent, short(fork.base) or "none", short(fork.ours), fork.ahead, short(fork.theirs), fork.behind)
            for fork in status.forks
        ]
        headings = ("forked", "last in common", "ours", "only here", "the hub's", "only there")
        show_rows(headings, forks, right=("only here", "only there"), limit=MAX_ROWS)
        agents = [fork.agent for fork in status.forks[:MAX_ROWS]]
        show_hints([f"keep ours under another name: clia hub sync --fork {agent}=NEW-NAME" for agent in agents])
    if status.elsewhere:
        write("\n")
        rows = [(away.agent, away.clone, away.since, _age(away.since)) for away in status.elsewhere]
        show_rows(("elsewhere", "machine (clone)", "since", "for"), rows, right=("for",), limit=MAX_ROWS)
        show_hints(["their machine publishes them when it reaches the hub; if it never will: clia hub sync --abandon AGENT"])


def _show_ref_counts(heading: str, refs: Iterable[str]) -> None:
    """Count refs by owner: agents by name, then what all agents share."""
    numbers = Counter(title_of(owner_of(lock_of(ref))) for ref in refs)
    if not numbers:
        return
    write("\n")
    rows = sorted(numbers.items(), key=lambda item: (item[0].startswith("("), item[0]))
    show_rows((heading, "refs"), rows, right=("refs",), limit=MAX_ROWS)


def _age(since: str | None) -> str:
    try:
        return span((datetime.now(UTC) - datetime.fromisoformat(since or "")).total_seconds())
    except (ValueError, TypeError):  # not a time, or one without a time zone
        return "?"

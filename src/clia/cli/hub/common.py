"""What the commands about the hub share: how this clone stands with it, for people.

Invariant: whatever another machine or the hub says stands in a cell or on one line, harmless. Of everything that a person must
settle, the command that does it is shown.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

from clia.cli.federation.common import show_hints
from clia.cli.federation.tables import ROWS, show_rest, show_rows
from clia.cli.fleet import span
from clia.cli.output import counted, one_line, write
from clia.cli.space.common import short
from clia.space.adoption import lock_of, owner_of, title_of
from clia.values import refs as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from clia.hub.records import Elsewhere, Fork, HubStatus

HEADS = {"branches": "as branches", "published": "apart from branches"}


def add_heads(parser: argparse.ArgumentParser, option: str) -> None:
    parser.add_argument(
        option,
        dest="heads",
        choices=tuple(HEADS),
        help=f"where the hub keeps agents' heads: {names.HEADS} or {names.PUBLISHED} (default: as it has them, else branches)",
    )


def is_in_step(found: HubStatus) -> bool:
    return not (found.away_since or found.owed or found.behind or found.forks)


def hub_words(found: HubStatus) -> str:
    """Which hub it is."""
    return one_line(f"hub {found.address} (remote {found.remote}, heads {HEADS.get(found.heads, found.heads)})")


def besides_forks(found: HubStatus, refs: Iterable[str]) -> list[str]:
    """Refs without those of agents that went two ways: no sync moves them."""
    forked = {each.agent for each in found.forks}
    return [ref for ref in refs if lock_of(ref) not in forked]


def standing(found: HubStatus) -> str:
    """How this clone stands with it, in one line."""
    owed, behind = besides_forks(found, found.owed), besides_forks(found, found.behind)
    said = [f"away for {_age(found.away_since)}: {found.away_reason}"] if found.away_since else []
    said += [f"{counted(len(owed), 'ref', 'refs')} owed"] if owed else []
    said += [f"{counted(len(behind), 'ref', 'refs')} behind"] if behind else []
    said += [counted(len(found.forks), "fork", "forks")] if found.forks else []
    return one_line("; ".join(said) or f"in step, {counted(found.refs, 'ref', 'refs')}")


def restart_hints(before: str | None, found: HubStatus) -> list[str]:
    """What there is to do where live state has moved to where all machines find it: who runs goes on with the old one."""
    if before == found.address or not found.shared_store:
        return []
    return ["restart the workers and forges that run in this clone: until then they go on without this hub"]


def show_status(found: HubStatus) -> None:
    """All of it, with what there is to do."""
    write(f"{hub_words(found)}\n{standing(found)}\n")
    write(f"the store is {'shared by all machines' if found.shared_store else 'of this clone alone'}; clone {found.clone}\n")
    owed, behind = besides_forks(found, found.owed), besides_forks(found, found.behind)
    _show_counted("owed", owed)
    _show_counted("behind", behind)
    show_forks(found.forks)
    show_elsewhere(found.elsewhere)
    if found.away_since:
        show_hints(["work goes on here; what is owed is published when the hub is back"])
    elif owed or behind:
        show_hints(["clia hub sync publishes what is owed, and takes over what is behind"])


def show_forks(forks: Sequence[Fork]) -> None:
    if not forks:
        return
    write("\n")
    rows = [
        (each.agent, short(each.base) or "none", short(each.ours), each.ahead, short(each.theirs), each.behind) for each in forks
    ]
    headings = ("forked", "last in common", "ours", "only here", "the hub's", "only there")
    show_rows(headings, rows[:ROWS], right=("only here", "only there"))
    show_rest(len(rows) - ROWS)
    show_hints([f"keep ours under another name: clia hub sync --fork {each.agent}=NEW-NAME" for each in forks[:ROWS]])


def show_elsewhere(elsewhere: Sequence[Elsewhere]) -> None:
    if not elsewhere:
        return
    write("\n")
    rows = [(each.agent, each.clone, each.since, _age(each.since)) for each in elsewhere]
    show_rows(("elsewhere", "machine (clone)", "since", "for"), rows[:ROWS], right=("for",))
    show_rest(len(rows) - ROWS)
    show_hints(["their machine publishes them when it reaches the hub; if it never will: clia hub sync --abandon AGENT"])


def _show_counted(heading: str, refs: Iterable[str]) -> None:
    """Refs by whose they are: agents by name, then what all share."""
    counts = Counter(title_of(owner_of(lock_of(ref))) for ref in refs)
    if not counts:
        return
    write("\n")
    rows = sorted(counts.items(), key=lambda each: (each[0].startswith("("), each[0]))
    show_rows((heading, "refs"), rows[:ROWS], right=("refs",))
    show_rest(len(rows) - ROWS)


def _age(since: str | None) -> str:
    try:
        return span((datetime.now(UTC) - datetime.fromisoformat(since or "")).total_seconds())
    except (ValueError, TypeError):  # no time, or one without a zone
        return "?"

"""What is refused about a hub, in words that say what to do.

Invariant: each tells what stands in the way of this clone, and whom or what to wait for; nothing was changed.
"""

from __future__ import annotations

from clia.errors import Conflict, NoSuchAgent, NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.hub.ledger import Elsewhere
    from clia.hub.records import Fork

_WAIT = "wait until the hub is back"


def diverged(name: str, fork: Fork | None) -> Conflict:
    said = {} if fork is None else {"base": fork.base, "ours": fork.ours, "theirs": fork.theirs}
    return Conflict(
        f"the agent {name!r} went on here and at the hub: there are two lines of its work",
        code="hub-diverged",
        hints=["clia hub status shows both", f"keep ours under another name: clia hub sync --fork {name}=NEW-NAME"],
        fields={"agent": name, **said},
    )


def busy(name: str) -> Conflict:
    return Conflict(f"the hub keeps moving what belongs to {name!r}", code="hub-busy", hints=["try again"], fields={"agent": name})


def owed_elsewhere(other: Elsewhere) -> Conflict:
    return Conflict(
        f"the last work of {other.agent!r} is on another machine, which has not published it yet",
        code="work-elsewhere",
        hints=["wait until that machine reaches the hub", f"if it never will: clia hub sync --abandon {other.agent}"],
        fields={"agent": other.agent, "clone": other.clone, "since": other.since},
    )


def work_not_seen(name: str) -> Conflict:
    return Conflict(
        f"the hub is away, and this machine has not seen the last work of {name!r}",
        code="work-elsewhere",
        hints=[_WAIT],
        fields={"agent": name},
    )


def agent_not_seen(name: str, why: str, *hints: str) -> NoSuchAgent:
    return NoSuchAgent(
        f"the agent {name!r} has not come to this machine yet, and {why}",
        code="agent-not-here",
        hints=hints,
        fields={"agent": name},
    )


def news_not_seen() -> NotFound:
    return NotFound(
        "the hub is away, and this machine has not seen what others have defined last", code="news-elsewhere", hints=[_WAIT]
    )


def other_space(address: str, remote: str) -> Conflict:
    return Conflict(
        f"the hub {address} holds another space",
        code="other-space",
        hints=[f"git remote get-url {remote}", "clia hub set URL chooses another hub"],
        fields={"remote": remote},
    )


def checked_out(name: str, place: str) -> Conflict:
    return Conflict(
        f"the agent {name!r} has moved at the hub, and its branch is checked out in {place}",
        code="branch-checked-out",
        hints=["switch that worktree to another branch, then clia hub sync"],
        fields={"agent": name, "worktree": place},
    )


def nothing_elsewhere(name: str) -> NotFound:
    return NotFound(
        f"no other machine owes work of {name!r}",
        code="nothing-elsewhere",
        hints=["clia hub status shows what other machines owe"],
        fields={"agent": name},
    )

"""Errors of the hub. Each one leaves everything unchanged and says what to do or to wait for."""

from __future__ import annotations

from clia.errors import Conflict, NoSuchAgent, NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.hub.records import Elsewhere, Fork

_WAIT = "wait until the hub is reachable"


def diverged(name: str, fork: Fork | None) -> Conflict:
    commits = {} if fork is None else {"base": fork.base, "ours": fork.ours, "theirs": fork.theirs}
    return Conflict(
        f"agent {name!r} has diverged from the hub",
        code="hub-diverged",
        hints=["clia hub status shows both lines", f"keep ours under another name: clia hub sync --fork {name}=NEW-NAME"],
        fields={"agent": name, **commits},
    )


def busy(name: str) -> Conflict:
    return Conflict(f"refs of {name!r} keep moving at the hub", code="hub-busy", hints=["try again"], fields={"agent": name})


def unpublished_elsewhere(work: Elsewhere) -> Conflict:
    return Conflict(
        f"another machine has unpublished work of {work.agent!r}",
        code="work-elsewhere",
        hints=["wait until that machine reaches the hub", f"if it never will: clia hub sync --abandon {work.agent}"],
        fields={"agent": work.agent, "clone": work.clone, "since": work.since},
    )


def work_not_fetched(name: str) -> Conflict:
    return Conflict(
        f"the hub is unreachable and this machine does not have the last work of {name!r}",
        code="work-elsewhere",
        hints=[_WAIT],
        fields={"agent": name},
    )


def agent_not_fetched(name: str, reason: str, *hints: str) -> NoSuchAgent:
    return NoSuchAgent(
        f"agent {name!r} has not been fetched yet: {reason}",
        code="agent-not-here",
        hints=hints or [_WAIT],
        fields={"agent": name},
    )


def chains_not_fetched() -> NotFound:
    return NotFound(
        "the hub is unreachable and this machine does not have the latest definitions", code="news-elsewhere", hints=[_WAIT]
    )


def other_space(address: str, remote: str) -> Conflict:
    return Conflict(
        f"the hub {address} holds another space",
        code="other-space",
        hints=[f"git remote get-url {remote}", "clia hub set URL chooses another hub"],
        fields={"remote": remote},
    )


def checked_out(name: str, worktree: str) -> Conflict:
    return Conflict(
        f"agent {name!r} has moved at the hub, but its branch is checked out in {worktree}",
        code="branch-checked-out",
        hints=["switch that worktree to another branch, then run clia hub sync"],
        fields={"agent": name, "worktree": worktree},
    )


def nothing_elsewhere(name: str) -> NotFound:
    return NotFound(
        f"no other machine has unpublished work of {name!r}",
        code="nothing-elsewhere",
        hints=["clia hub status shows the unpublished work of other machines"],
        fields={"agent": name},
    )

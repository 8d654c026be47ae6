"""Errors of the hub. Each one leaves everything unchanged and says what to do or to wait for."""

from __future__ import annotations

from clia.errors import Conflict, NoSuchAgent, NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.hub.model import Elsewhere, Fork

_WAIT = "wait until the hub is reachable"


def _conflict(code: str, message: str, *hints: str, **fields: str | None) -> Conflict:
    return Conflict(message, code=code, hints=hints, fields=fields)


def diverged(name: str, fork: Fork | None) -> Conflict:
    commits = {} if fork is None else {"base": fork.base, "ours": fork.ours, "theirs": fork.theirs}
    hints = ("clia hub status shows both lines", f"keep ours under another name: clia hub sync --fork {name}=NEW-NAME")
    return _conflict("hub-diverged", f"agent {name!r} has diverged from the hub", *hints, agent=name, **commits)


def busy(name: str) -> Conflict:
    return _conflict("hub-busy", f"refs of {name!r} keep moving at the hub", "try again", agent=name)


def unpublished_elsewhere(work: Elsewhere) -> Conflict:
    hints = ("wait until that machine reaches the hub", f"if it never will: clia hub sync --abandon {work.agent}")
    return _conflict("work-elsewhere", f"another machine has unpublished work of {work.agent!r}", *hints, **work._asdict())


def work_not_fetched(name: str) -> Conflict:
    message = f"the hub is unreachable and this machine does not have the last work of {name!r}"
    return _conflict("work-elsewhere", message, _WAIT, agent=name)


def agent_not_fetched(name: str, reason: str, *hints: str) -> NoSuchAgent:
    message = f"agent {name!r} has not been fetched yet: {reason}"
    return NoSuchAgent(message, code="agent-not-here", hints=hints or [_WAIT], fields={"agent": name})


def chains_not_fetched() -> NotFound:
    message = "the hub is unreachable and this machine does not have the latest definitions"
    return NotFound(message, code="news-elsewhere", hints=[_WAIT])


def other_space(address: str, remote: str) -> Conflict:
    hints = (f"git remote get-url {remote}", "clia hub set URL chooses another hub")
    return _conflict("other-space", f"the hub {address} holds another space", *hints, remote=remote)


def checked_out(name: str, worktree: str) -> Conflict:
    message = f"agent {name!r} has moved at the hub, but its branch is checked out in {worktree}"
    hint = "switch that worktree to another branch, then run clia hub sync"
    return _conflict("branch-checked-out", message, hint, agent=name, worktree=worktree)


def nothing_elsewhere(name: str) -> NotFound:
    hints = ["clia hub status shows the unpublished work of other machines"]
    message = f"no other machine has unpublished work of {name!r}"
    return NotFound(message, code="nothing-elsewhere", hints=hints, fields={"agent": name})

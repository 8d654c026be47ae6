"""``clia budget``: what an agent may use, and what is used."""

from __future__ import annotations

from clia.cli.command import AGENT, Answer, command
from clia.cli.rendering import show_line, show_rows, styled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.capture.permissions.budgets import BudgetState
    from clia.facade.space import Space

_STYLES = {"ok": "green", "warn": "yellow", "stop": "bold red", "refused": "bold red", "lifted": "cyan"}


@command("budget")
def budget(space: Space, agent: str = AGENT) -> Answer[list[BudgetState]]:
    """Show the budgets that apply to an agent, and what is used of each.

    Exit code 1 if one is used up.
    """
    states = space.budgets(agent)

    def show() -> None:
        if not states:
            show_line("no budget applies")
            return
        rows = [
            (f"{state.scope} {state.name}".strip(), state.limit, state.amounts, f"per {state.per}",
             styled(state.state, _STYLES[state.state]), state.question or "")
            for state in states
        ]  # fmt: skip
        show_rows(("budget", "limit", "used", "", "state", "question"), rows)

    return Answer(states, show, 1 if any(state.state in ("stop", "refused") for state in states) else 0)

"""The program of one identity: ``cadence-agent-cli profile`` is ``clia agents profile --slug cadence``."""

from __future__ import annotations

import sys

from clia.cli import main as program
from clia.cli.registry import TREE, Group
from clia.values.names import check_slug

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_OFFERED = ("profile", "plan", "agency", "journal", "context", "explain")


def agent_cli(slug: str) -> Callable[[Sequence[str] | None], int]:
    """Return the program of one identity, for use as an entry point; ``--agent-slug`` overrides its slug.

    >>> program = agent_cli("cadence")
    >>> program.__name__
    'cadence-agent-cli'
    """
    check_slug(slug)
    agents = TREE.commands["agents"]
    assert isinstance(agents, Group)  # noqa: S101  # for mypy
    own = Group(f"The identity {slug}.", {name: agents.commands[name] for name in _OFFERED})
    name = f"{slug}-agent-cli"

    def run(argv: Sequence[str] | None = None) -> int:
        words = list(sys.argv[1:] if argv is None else argv)
        return program.guarded(words, lambda: program.run_group(words, own, name, slug))

    run.__name__ = run.__qualname__ = name
    return run

"""The behaviours that a space knows: flows that sessions run, and prompts.

Invariant: what ``refs/clia/behaviours`` calls current is told, whatever its kind; what cannot be read hides nothing else.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.kernel import refs as names
from clia.kernel.messages import parse as parse_message
from clia.kernel.typed_objects import PROMPT, Behaviour, as_typed, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.app.space import Space
    from clia.space.core import Core


class Known(NamedTuple):
    """A behaviour as it is now."""

    name: str
    kind: str
    cid: str
    by: str
    at: int
    why: str
    body: str


def behaviours(space: Space, kind: str | None = None) -> list[Known]:
    """Every behaviour, or those of one kind; sorted by name."""
    core = space._core  # noqa: SLF001  # a space has verbs for flows only, so far
    found = (_known(core, ref, tip) for ref, tip in sorted(core.refs.under(names.BEHAVIOURS)))
    return [each for each in found if each is not None and kind in (None, each.kind)]


def prompts(space: Space) -> list[Known]:
    return behaviours(space, PROMPT)


def _known(core: Core, ref: str, tip: str) -> Known | None:
    name = ref.removeprefix(names.BEHAVIOURS)
    commit = core.objects.commit(tip)
    entry = core.objects.entry(commit.tree, "current")
    cid = "" if entry is None else core.objects.blob(entry.cid).decode("ascii", "replace").strip()
    made = parse(core.objects.blob(cid)) if names.is_name(name) and names.is_id(cid) else None
    found = None if made is None else as_typed(made)
    if not isinstance(found, Behaviour):
        return None
    by = f"{commit.author.name} <{commit.author.email}>"
    return Known(name, found.kind, cid, by, commit.author.at, parse_message(commit.message)[0], found.body)

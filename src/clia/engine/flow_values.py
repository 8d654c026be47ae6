"""What may come out of a flow: JSON, and nothing that only looks like it.

Invariant: as for every value that crosses; and a text that is only how the engine shows a thing is refused. The words are
part of what a flow can see: whoever changes one raises ``RULES`` of the engine.
"""

from __future__ import annotations

import re

from clia.values.json_values import CannotCross, check_unicode, crossing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The engine hands these out as text, in a form that is its own but for the last. A whole string of it is a mistake, not data.
_SHOWN = re.compile(
    r"<(?:coroutine [^<>\n]*|function '[^'\n]*' (?:at 0x[0-9a-f]+|external)|gather\(\d+\)|module '[^'\n]*'|\w+ object)>"
    r"|dict_(?:keys|values|items)\(.*\)|\[\.\.\.\]|\{\.\.\.\}",  # and a list or a dictionary inside itself
    re.DOTALL,
)


def coming_out(value: Any, where: str) -> Any:
    """A value that a flow made, as JSON; ``CannotCross`` names the place under ``where``."""
    return crossing(value, where, _text_of_a_flow)


def _text_of_a_flow(value: str) -> str:
    check_unicode(value)
    if value[:1] in ("<", "d", "[", "{") and _SHOWN.fullmatch(value):
        hint = "; is an `await` missing?" if value.startswith("<coroutine") else ""
        raise CannotCross("TypeError", f"is {value[:80]}, which cannot cross{hint}")
    return value

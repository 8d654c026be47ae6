"""How strongly a rule is put: tables of words, no guessing.

Invariant: two texts are the same rule only where they have the same words apart from those in the tables; which of the
two is weaker then follows from the tables alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from clia.identities.projection import name_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

# One scale: from "never" (-3) over "may" (0) to "must" (3). A rule is weakened where a more local one says less in its
# direction, and so also where it is turned round.
FORCE: dict[str, int] = {
    **dict.fromkeys(("must", "shall", "required", "mandatory", "always", "have to", "has to", "need to", "needs to"), 3),
    **dict.fromkeys(("should", "ought to", "recommended", "usually", "normally", "generally", "typically"), 2),
    **dict.fromkeys(("try to", "consider", "sometimes", "occasionally"), 1),
    **dict.fromkeys(("may", "can", "could", "might", "optional", "optionally", "not required"), 0),
    **dict.fromkeys(("rarely", "seldom", "try not to", "try to avoid"), -1),
    **dict.fromkeys(("should not", "shouldn't", "ought not to", "not recommended", "avoid"), -2),
    **dict.fromkeys(("must not", "mustn't", "shall not", "never", "do not", "don't", "may not", "cannot", "can not", "can't"), -3),
}

LEVELS: dict[str, int] = {
    **dict.fromkeys(("required", "mandatory", "must", "critical", "strict", "error"), 3),
    **dict.fromkeys(("recommended", "should", "warning"), 2),
    **dict.fromkeys(("optional", "may", "advisory", "info"), 1),
    **dict.fromkeys(("disabled", "off", "none"), 0),
}
REQUIRED = LEVELS["required"]  # what a rule has that names no level
DISABLED = LEVELS["disabled"]

_WORD = re.compile(r"\w+(?:['\-]\w+)*")
_PHRASES = re.compile("|".join(rf"\b{re.escape(each)}\b" for each in sorted(FORCE, key=len, reverse=True)))
_SLOT = "…"


class Statement(NamedTuple):
    """One rule or checklist item, wherever it stands: in a list, in a group, as a string or as an object."""

    pointer: str
    text: str
    words: tuple[str, ...]  # with a slot for each phrase of force
    forces: tuple[int, ...]  # what stands in the slots
    level: int | None  # None: a word that no table knows
    name: str | None  # its `id`, where it has one
    item: Any  # the whole item of the field that it stands in

    def identities(self) -> list[object]:
        """Two statements that share one are the same rule."""
        return [self.words] if self.name is None else [self.words, self.name]

    def is_weaker_than(self, other: Statement) -> bool:
        if self.level is not None and other.level is not None and self.level < other.level:
            return True
        return self.words == other.words and any(map(_says_less, self.forces, other.forces))


def statements(value: Any, at: str) -> Iterator[Statement]:
    """Each rule in a field's value; a value that is no list is read as a list of one."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _within(item, f"{at}/{index}", item)
    else:
        yield from _within(value, at, value)


def _within(item: Any, at: str, whole: Any) -> Iterator[Statement]:
    if isinstance(item, str) and item.strip():
        yield Statement(at, item, *_split(item), REQUIRED, None, whole)
    elif isinstance(item, dict):
        children = item.get("items")
        if isinstance(children, list) and children:
            for index, child in enumerate(children):
                yield from _within(child, f"{at}/items/{index}", whole)
        elif name_of(item):
            name = item.get("id")
            named = name if isinstance(name, str) and name.strip() else None
            yield Statement(at, name_of(item), *_split(name_of(item)), _level(item.get("level")), named, whole)


def _level(value: Any) -> int | None:
    if value is None or (isinstance(value, str) and not value.strip()):
        return REQUIRED
    return LEVELS.get(value.strip().lower()) if isinstance(value, str) else None


def _says_less(here: int, there: int) -> bool:
    """Whether ``here`` says less than ``there`` in the direction of ``there``. Less than a permission cannot be said."""
    return there != 0 and here * (1 if there > 0 else -1) < abs(there)


def _split(text: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The words with a slot for each phrase of force, and the force in each slot."""
    plain = " ".join(text.lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'").replace("*", "").replace("_", " ").split())
    forces = tuple(FORCE[phrase] for phrase in _PHRASES.findall(plain))
    first, *rest = (_WORD.findall(part) for part in _PHRASES.split(plain))
    words = list(first)
    for following in rest:
        # English says "never push" and "avoid pushing": the verb behind a slot is compared by its stem.
        words += [_SLOT, *map(_stem, following[:1]), *following[1:]]
    return tuple(words), forces


def _stem(verb: str) -> str:
    """``use`` and ``using``, ``commit`` and ``committing`` have one stem; ``bring`` is no form of ``br``."""
    base = verb.removesuffix("ing")
    base = (base if any(vowel in base for vowel in "aeiouy") else verb).removesuffix("e")
    return base[:-1] if len(base) > 2 and base[-1] == base[-2] else base

"""Guardrails and checklists: an inner document can add rules, not weaken them.

Invariant: two texts are the same rule only if they have the same words apart from those in the tables; which one is weaker follows
from the tables alone. Rules are compared between documents, outer against inner, never inside one document.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from clia.identities.agent_places import without
from clia.identities.contexts import AGENDA, AGENT, EXPLICIT
from clia.identities.diagnostics import Diagnostic, diagnostic
from clia.identities.guardrails import waivers
from clia.identities.inheritance import ROOT_RULES
from clia.identities.merge import is_empty
from clia.identities.merge_rules import MARKS, label_of, projected_text
from clia.identities.working_path import inside
from clia.rules.model import rules_of_guardrail
from clia.rules.unmatchable import never_matches

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from clia.identities.inheritance import Layer
    from clia.identities.lint import LintSubject

# A scale from "never" (-3) to "must" (3). An inner rule weakens an outer one if it is weaker in the same direction, or
# reverses it.
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
REQUIRED = LEVELS["required"]  # the level of a rule that names none
DISABLED = LEVELS["disabled"]

_WORD = re.compile(r"\w+(?:['\-]\w+)*")
_PHRASES = re.compile("|".join(rf"\b{re.escape(phrase)}\b" for phrase in sorted(FORCE, key=len, reverse=True)))
_SLOT = "…"


class RuleStatement(NamedTuple):
    """A rule or checklist item: in a list or a group, as a string or an object."""

    pointer: str
    text: str
    words: tuple[str, ...]  # with a slot for each phrase of force
    forces: tuple[int, ...]  # the force in each slot
    level: int | None  # None: an unknown word
    name: str | None  # its `id`
    item: Any  # the item of the field that contains it

    def rule_keys(self) -> list[object]:
        """Two statements that share a key are the same rule."""
        return [self.words] if self.name is None else [self.words, self.name]

    def is_weaker_than(self, other: RuleStatement) -> bool:
        if self.level is not None and other.level is not None and self.level < other.level:
            return True
        return self.words == other.words and any(map(_is_weaker_force, self.forces, other.forces))


def statements(value: Any, at: str) -> Iterator[RuleStatement]:
    """Each rule in a field's value; a single value is read as a list with one item."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _item_statements(item, f"{at}/{index}", item)
    else:
        yield from _item_statements(value, at, value)


def _item_statements(item: Any, at: str, top: Any) -> Iterator[RuleStatement]:
    if isinstance(item, str) and item.strip():
        yield RuleStatement(at, item, *_split(item), REQUIRED, None, top)
    elif isinstance(item, dict):
        children = item.get("items")
        if isinstance(children, list) and children:
            for index, child in enumerate(children):
                yield from _item_statements(child, f"{at}/items/{index}", top)
        elif label_of(item):
            name, word = item.get("id"), item.get("level")
            checked_name = name if isinstance(name, str) and name.strip() else None
            level = REQUIRED if word is None or not str(word).strip() else LEVELS.get(str(word).strip().lower())
            yield RuleStatement(at, label_of(item), *_split(label_of(item)), level, checked_name, top)


def _is_weaker_force(inner: int, outer: int) -> bool:
    """Whether ``inner`` is weaker than ``outer`` in the direction of ``outer``. No rule is weaker than a permission."""
    return outer != 0 and inner * (1 if outer > 0 else -1) < abs(outer)


def _split(text: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The words with a slot for each phrase of force, and the force of each slot."""
    plain = " ".join(text.lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'").replace("*", "").replace("_", " ").split())
    forces = tuple(FORCE[phrase] for phrase in _PHRASES.findall(plain))
    first, *rest = (_WORD.findall(part) for part in _PHRASES.split(plain))
    words = list(first)
    for following in rest:
        # "never push" and "avoid pushing": the verb after a slot is compared by its stem.
        words += [_SLOT, *map(_stem, following[:1]), *following[1:]]
    return tuple(words), forces


def _stem(verb: str) -> str:
    """The stem of a verb: ``use`` and ``using``, ``commit`` and ``committing`` share one."""
    base = verb.removesuffix("ing")
    base = (base if any(vowel in base for vowel in "aeiouy") else verb).removesuffix("e")
    return base[:-1] if len(base) > 2 and base[-1] == base[-2] else base


def check_weakened(subject: LintSubject) -> Iterator[Diagnostic]:
    """Guardrails repeated in a weaker form, unless an operator waived them."""
    marks = subject.lineage.profile().get(MARKS) if subject.lineage else None
    waived = {mark["guardrail"] for mark in marks or ()}
    for path, local, outer_path, outer in _repeated(subject.layers[AGENT], "guardrails"):
        if local.is_weaker_than(outer) and waivers.guardrail_digest(outer.item) not in waived:
            message = f"{path}: {_short(local.text)} is weaker than {_short(outer.text)} in {outer_path}"
            yield diagnostic("guardrail-weakened", path, message, local.pointer)


def check_unmatchable(subject: LintSubject) -> Iterator[Diagnostic]:
    """Rules that match nothing."""
    for layer in subject.layers[AGENT]:
        items = layer.document.get("guardrails")
        for number, item in enumerate(items if isinstance(items, list) else ()):
            for rule in rules_of_guardrail(item, layer.path, f"/guardrails/{number}"):
                why = never_matches(rule)
                if why is not None:
                    yield diagnostic(
                        "unmatchable-rule", layer.path, f"{layer.path}: {rule.pointer} never matches: {why}", rule.pointer
                    )


def check_removed(subject: LintSubject) -> Iterator[Diagnostic]:
    """Guardrails that a document in an agent's worktree lacks, although the original has them."""
    local = subject.place.local
    if local is None or local.main is None:
        return
    documents: dict[str, list[Any]] = {}  # directory -> its guardrails
    for layer in subject.layers[AGENT]:
        items = layer.document.get("guardrails")
        documents.setdefault(layer.path.rpartition("/")[0], []).extend(items if isinstance(items, list) else [])
    for home, items in documents.items():
        if inside(home, local.main) and not inside(home, local.top):
            copy = local.top + home.removeprefix(local.main)
            for item in without(items, documents.get(copy, [])):
                message = f"{copy} lacks a guardrail that {home} has: {_short(projected_text(item))}"
                yield diagnostic("guardrail-removed", copy, message)


def check_disabled(subject: LintSubject) -> Iterator[Diagnostic]:
    for kind in (AGENT, AGENDA):
        for path, local, outer_path, outer in _repeated(subject.layers[kind], "checklists"):
            if local.level == DISABLED and outer.level != DISABLED:
                message = f"{path}: {_short(local.text)} is disabled, but {outer_path} requires it"
                yield diagnostic("checklist-disabled", path, message, local.pointer)


def check_dropped(subject: LintSubject) -> Iterator[Diagnostic]:
    """Contexts with guardrails that an explicit chain omits."""
    if subject.lineage is None or subject.lineage.context().mode != EXPLICIT:
        return
    source = next(path for context in reversed(subject.contexts) if (path := context.documents[AGENT]))
    omitted = [layer for layer in subject.layers[AGENT] if layer.only is not None and layer.origin != ROOT_RULES]
    for directory in sorted({layer.directory for layer in omitted if not is_empty(layer.document.get("guardrails"))}):
        yield diagnostic("guardrail-dropped", source, f"{source}: the root chain omits {directory}", "/rootChain")


def check_waivers(subject: LintSubject) -> Iterator[Diagnostic]:
    if subject.lineage is not None:
        yield from waivers.check_waivers(subject.lineage.profile(), subject.lineage.approvals())[1]


def _short(text: str) -> str:
    return repr(text if len(text) <= 120 else f"{text[:119]}…")


def _repeated(layers: Sequence[Layer], field: str) -> Iterator[tuple[str, RuleStatement, str, RuleStatement]]:
    """(path, statement, outer path, outer statement) for each rule that an inner document repeats."""
    declared: dict[object, list[tuple[str, RuleStatement]]] = {}
    for layer in layers:
        rules = statements(layer.document.get(field), f"/{field}")
        own = [(statement, key) for statement in rules for key in statement.rule_keys()]
        for statement, key in own:
            yield from ((layer.path, statement, *outer) for outer in declared.get(key, ()) if outer[0] != layer.path)
        for statement, key in own:
            declared.setdefault(key, []).append((layer.path, statement))

"""Guardrails and checklists: a more local document may add to them, and may not take away.

Invariant: only what two documents say about the same rule is compared, outer against more local; inside one document an
author may say what they like.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clia.identities.contexts import AGENDA, AGENT
from clia.identities.diagnostics import diagnostic
from clia.identities.lint.force import DISABLED, statements
from clia.identities.merge import is_empty
from clia.identities.rootchain import EXPLICIT
from clia.identities.waivers import guardrail_digest, waiver_findings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from clia.identities.diagnostics import Diagnostic
    from clia.identities.layers import Layer
    from clia.identities.lint.force import Statement
    from clia.identities.lint.subject import Subject


def weakened(subject: Subject) -> Iterator[Diagnostic]:
    """Guardrails repeated with less force. One that an operator has waived may be put as anybody likes."""
    waived = {each["guardrail"] for each in _waived(subject)}
    for path, local, outer_path, outer in _repeated(subject.layers[AGENT], "guardrails"):
        if local.is_weaker_than(outer) and guardrail_digest(outer.item) not in waived:
            message = f"{path}: {_short(local.text)} says less than {_short(outer.text)} in {outer_path}"
            yield diagnostic("guardrail-weakened", path, message, local.pointer)


def disabled(subject: Subject) -> Iterator[Diagnostic]:
    for kind in (AGENT, AGENDA):
        for path, local, outer_path, outer in _repeated(subject.layers[kind], "checklists"):
            if local.level == DISABLED and outer.level != DISABLED:
                message = f"{path}: {_short(local.text)} is disabled, but {outer_path} asks for it"
                yield diagnostic("checklist-disabled", path, message, local.pointer)


def dropped(subject: Subject) -> Iterator[Diagnostic]:
    """Contexts with guardrails that an explicit chain leaves out."""
    if subject.lineage is None or subject.lineage.context().mode != EXPLICIT:
        return
    source = next(path for context in reversed(subject.contexts) if (path := context.documents[AGENT]))
    left_out = [each for each in subject.layers[AGENT] if each.only is not None]
    for directory in sorted({each.directory for each in left_out if not is_empty(each.document.get("guardrails"))}):
        yield diagnostic("guardrail-dropped", source, f"{source}: the root chain leaves out {directory}", "/rootChain")


def waivers(subject: Subject) -> Iterator[Diagnostic]:
    if subject.lineage is not None:
        yield from waiver_findings(subject.lineage.profile(), subject.lineage.approvals())


def _waived(subject: Subject) -> list[dict[str, Any]]:
    return (subject.lineage.profile().get("waivedGuardrails") or []) if subject.lineage else []


def _short(text: str) -> str:
    return repr(text if len(text) <= 120 else f"{text[:119]}…")


def _repeated(layers: Sequence[Layer], field: str) -> Iterator[tuple[str, Statement, str, Statement]]:
    """(path, statement, outer path, outer statement) for each rule that a more local document says again."""
    known: dict[object, list[tuple[str, Statement]]] = {}
    for layer in layers:
        own = list(statements(layer.document.get(field), f"/{field}"))
        for local in own:
            outer = [each for key in local.identities() for each in known.get(key, ())]
            yield from ((layer.path, local, path, statement) for path, statement in outer)
        for each in own:
            for key in each.identities():
                known.setdefault(key, []).append((layer.path, each))

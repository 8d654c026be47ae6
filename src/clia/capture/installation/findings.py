"""What ``clia doctor`` reports about hooks."""

from __future__ import annotations

from typing import NamedTuple

ERROR, WARNING, INFO = "error", "warning", "info"


class HookFinding(NamedTuple):
    """A problem of hooks."""

    code: str  # kind of problem
    severity: str  # `error`, `warning` or `info`
    tool: str | None  # null: not about one tool
    message: str  # one sentence for a person
    hint: str  # what to do

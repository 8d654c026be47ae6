"""Operators' decisions on waivers, in real repositories."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from clia.facade.operator_waivers import decide_waiver
from clia.values.canonical import text_digest
from support import git
from support.spaces import settings

if TYPE_CHECKING:
    from pathlib import Path


@lru_cache(maxsize=1000)
def decided(repository: Path, rule: str) -> str:
    """The commit of an operator's decision that a guardrail is waived; one for a repository and guardrail."""
    repository.mkdir(parents=True, exist_ok=True)
    git("init", "--quiet", cwd=repository)
    return decide_waiver(str(repository), rule, "Fine here.", settings())


def about(repository: Path, rule: str) -> dict[str, Any]:
    """The extensions of an agency entry that approves a waiver."""
    return {"x-decision": decided(repository, rule), "x-waives": [{"guardrail": text_digest(rule)}]}

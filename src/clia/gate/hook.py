"""The pre-receive hook: ``python -m clia.gate.hook``. git gives it one line for each ref that a push moves."""

from __future__ import annotations

import os
import sys

from clia.gate.checks import PushChecks, RefUpdate
from clia.gate.repository import GateRepository

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from clia.gate.checks import Refusal


def updates_of(lines: Iterable[bytes]) -> list[RefUpdate]:
    """The updates that git describes."""
    parts = (line.rstrip(b"\n").split(b" ", 2) for line in lines)
    return [RefUpdate(old.decode("ascii"), new.decode("ascii"), os.fsdecode(ref)) for old, new, ref in parts]


def text_of(refusals: Iterable[Refusal]) -> str:
    """The refusals as a git client shows them."""
    lines = []
    for refusal in refusals:
        lines += [f"clia gate: {refusal.ref}: {refusal.rule}: {refusal.message}", f"  to fix it: {refusal.fix}"]
    return "".join(f"{line.encode('utf-8', 'replace').decode('utf-8')}\n" for line in lines)


def main() -> int:
    repository = GateRepository(os.getcwd(), os.environ)
    try:
        refusals = PushChecks(repository, updates_of(sys.stdin.buffer)).refusals()
    finally:
        repository.close()
    sys.stderr.write(text_of(refusals))
    return 1 if refusals else 0


if __name__ == "__main__":
    sys.exit(main())

"""``commit``: files of the asking agent. ``{"kind": …, "changes": {PATH: TEXT or null}, "message": …}``.

Invariant: however often it is tried, the agent has one commit for the request.
"""

from __future__ import annotations

from clia.workers.effects.payloads import Payload

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from clia.workers.effects.context import Context


def handle(context: Context, payload: Any) -> dict[str, str]:
    said = Payload("commit", payload, "kind", "changes", "message")
    changes: dict[str, bytes | None] = {}
    for path, text in said.object("changes").items():
        if text is not None and not isinstance(text, str):
            raise said.refusal(f"changes[{path!r}]", "is a text, or null where the file is to go")
        changes[path] = None if text is None else text.encode("utf-8")
    kind, message = said.text("kind", "finding"), said.text("message", "")

    def make(head: str) -> str:
        mark = context.mark()
        return context.space.commit_with_trace(context.agent, kind, changes=changes, message=message, meta=mark, base=head)

    return {"commit": context.once(make)}

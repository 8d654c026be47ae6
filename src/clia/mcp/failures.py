"""Errors as the protocol says them: the one place where an error of the library becomes what a client sees.

Invariant: whoever made a mistake is told which, with hints; a bug is said to the log, and to nobody else.
"""

from __future__ import annotations

import logging

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, CallToolResult, TextContent

from clia.errors import CliaError, Denied, InvalidInput, NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

log = logging.getLogger("clia.mcp")


def refused(err: CliaError) -> CallToolResult:
    """A tool that did nothing, in words for a model and in fields for a program."""
    told = "\n".join([f"{err.code}: {err.message}", *(f"hint: {hint}" for hint in err.hints)])
    return CallToolResult(content=[TextContent(text=told)], structured_content=err.to_json(), is_error=True)


def broken(what: str) -> CliaError:
    """What is said of a bug; called where it was caught."""
    log.exception("%s failed", what)
    return CliaError("something went wrong inside clia", code="internal", hints=["the server's log has the details"])


def protocol_error(err: CliaError, more: Mapping[str, Any]) -> MCPError:
    """For what has no other way to say no: resources and prompts."""
    known = isinstance(err, (InvalidInput, NotFound))
    code = INVALID_PARAMS if known else INVALID_REQUEST if isinstance(err, Denied) else INTERNAL_ERROR
    return MCPError(code, err.message, {**err.to_json(), **more})

"""What a worker works with in the real world, and what it is called.

Invariant: nothing of the world is reached before a handler asks for it.
"""

from __future__ import annotations

import os
import socket
import time
from secrets import token_hex

from clia.redaction import secrets
from clia.workers.effects.context import Cleaning, Tools

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from clia.redaction.secrets import RedactionState
    from clia.values.clock import Clock


def make_tools(clock: Clock, environment: Mapping[str, str], workplace: str, *, redact: bool = True) -> Tools:
    """The real world; worktrees go below a directory that is clia's own."""
    from clia.http_client import HttpClient
    from clia.programs.runner import ProgramRunner

    cleaning = Cleaning(lambda text: secrets.redact(text).text, _clean_chunk) if redact else Cleaning(str, _keep_chunk)
    return Tools(clock, time.monotonic, environment, HttpClient(), ProgramRunner(), workplace, cleaning)


def _clean_chunk(text: str, state: RedactionState) -> tuple[str, RedactionState]:
    clean, after = secrets.redact_chunk(text, state)
    return clean.text, after


def _keep_chunk(text: str, state: RedactionState) -> tuple[str, RedactionState]:
    return text, state


def new_name() -> str:
    """A name that no other worker has: where it runs, and a random end."""
    return f"{socket.gethostname()}-{os.getpid()}-{token_hex(3)}"

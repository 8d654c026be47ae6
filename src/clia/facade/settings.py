"""Settings of an opened space, and their defaults.

Invariant: clock, environment and account are read here and nowhere else.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import NamedTuple

from clia.errors import InvalidInput
from clia.space.core import Person

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from clia.trust.agent_keys import AgentKeys
    from clia.trust.proving import Prover
    from clia.values.clock import Clock


_ANCESTORS_MAX = 64


class Settings(NamedTuple):
    """Settings of an opened space; None: the repository's configuration, else the default."""

    store: str | None = None  # postgresql://…; default: a SQLite file beside the git directory
    durable: bool | None = None
    redact: bool = True
    entry_max: int | None = None
    person: tuple[str, str] | None = None
    clock: Clock | None = None
    environment: Mapping[str, str] | None = None
    reached: Callable[[str], None] | None = None
    notify: Callable[[str], None] | None = None  # called with a sentence if a verb waits for seconds, or is recorded but incomplete
    config: str | None = None  # the operator's file; default: clia/config.toml in the git directory
    person_config: str | None = None  # as `config`, unless an agent acts: its environment does not choose the configuration
    prove: Prover | None = None  # proves statements of people with their own keys; default: the machine vouches
    agent_keys: AgentKeys | None = None  # keys that sign agents' own commits; default: the one of the run, else none
    agent: str | None = None  # the agent that acts: it may record and ask, not decide; default: CLIA_AGENT. Empty: a person


def check_address(store: str | None) -> None:
    """``InvalidInput`` if the address of a store is not supported. An empty one is invalid: usually a variable is not set."""
    if store is not None and not store.startswith(("postgresql://", "postgres://")):
        raise InvalidInput(
            "the address of a store must start with postgresql://",
            code="invalid-store",
            hints=["without an address, the store is a file beside the repository"],
            fields={"field": "store"},
        )


def clock_of(settings: Settings) -> Clock:
    if settings.clock is not None:
        return settings.clock
    from datetime import UTC, datetime

    return lambda: datetime.now(UTC)


def person_of(settings: Settings, configured: Callable[[str], str | None]) -> Person:
    """Return who is accountable: as set, else as git knows the committer; ``no-git-identity`` if it does not."""
    if settings.person is not None:
        return Person(*settings.person)
    environment = os.environ if settings.environment is None else settings.environment
    name = environment.get("GIT_COMMITTER_NAME") or configured("user.name")
    email = environment.get("GIT_COMMITTER_EMAIL") or configured("user.email") or environment.get("EMAIL")
    if name and email:
        return Person(name, email)
    missing = {"user.name": (name, '"Your Name"'), "user.email": (email, "you@example.org")}
    raise InvalidInput(
        "git does not know who you are, and every commit of an agent names the accountable person",
        code="no-git-identity",
        hints=[f"git config --global {key} {example}" for key, (value, example) in missing.items() if not value],
        fields={"missing": [key for key, (value, _) in missing.items() if not value]},
    )


def acting_agent(settings: Settings) -> str | None:
    """The agent that opens the space; None: a person. A process of a run works for its agent, also without the variable."""
    if settings.agent is not None:
        return settings.agent or None
    if settings.environment is not None:
        return settings.environment.get("CLIA_AGENT") or None
    return os.environ.get("CLIA_AGENT") or _agent_of_run()


@lru_cache(maxsize=1)
def _agent_of_run() -> str | None:
    """The agent of the ``clia run`` that a process above this one belongs to, where the system shows that (Linux)."""
    pid = os.getppid()
    for _ in range(_ANCESTORS_MAX):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                variables = dict(line.partition(b"=")[::2] for line in file.read().split(b"\0"))
            with open(f"/proc/{pid}/stat", "rb") as file:
                pid = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return None  # another user's process, or not Linux
        if variables.get(b"CLIA_RUN_SECRET") and variables.get(b"CLIA_AGENT"):
            return os.fsdecode(variables[b"CLIA_AGENT"])
    return None

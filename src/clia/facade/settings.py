"""Settings of an opened space, and their defaults.

Invariant: clock, environment and account are read here and nowhere else.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from clia.errors import InvalidInput
from clia.space.core import Person

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from clia.values.clock import Clock


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
    """Return who is accountable: as set, else as configured in git, else the account of this process."""
    if settings.person is not None:
        return Person(*settings.person)
    environment = os.environ if settings.environment is None else settings.environment
    name = environment.get("GIT_COMMITTER_NAME") or configured("user.name")
    email = environment.get("GIT_COMMITTER_EMAIL") or configured("user.email")
    if name and email:
        return Person(name, email)
    account = _account()
    return Person(name or account, email or f"{account}@localhost")


def _account() -> str:
    import getpass

    try:
        return getpass.getuser() or "unknown"
    except (KeyError, OSError):
        return "unknown"

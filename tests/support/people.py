"""People with SSH keys, for tests of statements."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from clia.testing import Settings
from clia.trust.ssh_agent import SshProver

if TYPE_CHECKING:
    from pathlib import Path

ADA, BOB = ("Ada", "ada@example.org"), ("Bob", "bob@example.org")


def key_of(home: Path, kind: str = "ed25519") -> str:
    """Create an SSH key in a home directory; returns the public key."""
    (home / ".ssh").mkdir(parents=True, exist_ok=True)
    path = home / ".ssh" / f"id_{kind}"
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", str(path)], check=True)
    return path.with_suffix(".pub").read_text()


def settings(home: Path, person: tuple[str, str] = ADA, **changes: object) -> Settings:
    environment = {key: value for key, value in os.environ.items() if key != "SSH_AUTH_SOCK"}
    return Settings(person=person, durable=False, prove=SshProver(environment, str(home)))._replace(**changes)  # type: ignore[arg-type]

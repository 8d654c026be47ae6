"""Proofs of statements by a person's SSH key, through ``ssh-keygen``: with the ssh-agent, or with the key's file."""

from __future__ import annotations

import os
import subprocess
import tempfile

from clia.errors import InvalidInput
from clia.trust.ssh_format import read_public_key
from clia.trust.ssh_signatures import CLIA
from clia.trust.statements import SSH_KEY, StatementProof

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from clia.trust.statements import EnrolledKey, PersonalStatement

_SECONDS = 120
"""A security key waits for a touch."""


class SshProver:
    """Signs statements with the first of a person's enrolled SSH keys that works here."""

    def __init__(self, environment: dict[str, str], home: str) -> None:
        self._environment = environment
        self._home = home

    def __call__(self, statement: PersonalStatement, keys: Sequence[EnrolledKey]) -> list[StatementProof]:
        """A list with one proof, or none if no key is available: then the policy decides."""
        for key in keys:
            if key.kind != SSH_KEY:
                continue
            for path in self._places(key.public):
                signature = self._sign(path, statement.data())
                if signature is not None:
                    return [StatementProof(SSH_KEY, key.fingerprint, {"signature": signature})]
        return []

    def _places(self, public: str) -> Iterator[str]:
        """Files for ``ssh-keygen -f``: the public key for the agent, then the files of the account with that key."""
        if self._environment.get("SSH_AUTH_SOCK"):
            with tempfile.TemporaryDirectory(prefix="clia-") as directory:
                path = os.path.join(directory, "key.pub")
                with open(path, "w", encoding="ascii") as file:
                    file.write(public + "\n")
                yield path
        folder = os.path.join(self._home, ".ssh")
        try:
            names = sorted(name for name in os.listdir(folder) if name.endswith(".pub"))
        except OSError:
            return
        for name in names:
            if _holds(os.path.join(folder, name), public) and os.path.exists(os.path.join(folder, name.removesuffix(".pub"))):
                yield os.path.join(folder, name.removesuffix(".pub"))

    def _sign(self, path: str, data: bytes) -> str | None:
        words = ["ssh-keygen", "-q", "-Y", "sign", "-n", CLIA, "-f", path]
        try:
            result = subprocess.run(words, input=data, capture_output=True, check=False, timeout=_SECONDS, env=self._environment)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return result.stdout.decode("ascii", "replace").strip() if result.returncode == 0 else None


def _holds(path: str, public: str) -> bool:
    try:
        with open(path, encoding="utf-8") as file:
            return read_public_key(file.read(8192)).text == public
    except (OSError, ValueError, InvalidInput):
        return False

"""What this account has verified before, so that it is not verified again.

The cache has the ids of commits whose signature was valid, and reports without findings, each for the exact state of all refs and
settings that it was made for. An id is the hash of the commit with its signature, and git checks it when it reads the commit; so an
id says all that a valid signature says. What a signature means now (which key, which role, whether it was logged) is always judged
from the refs.

Invariant: the cache is a directory of the account that runs the check, never a part of the repository: a repository
cannot bring its own verified signatures. A file of another owner, or that others can write, is ignored.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import stat
from contextlib import suppress

from clia.store import private_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

_MAGIC = b"clia-verified-1\n"
_ID, _OTHERS, _SIZE_MAX = 20, 0o022, 512 * 1024 * 1024
REPORTS = 8
"""Number of reports kept for a space."""


def cache_directory(environment: Mapping[str, str]) -> str:
    """The directory of the account's cache."""
    cache = environment.get("XDG_CACHE_HOME") or os.path.join(environment.get("HOME") or os.path.expanduser("~"), ".cache")
    return os.path.join(cache, "clia", "verified")


class VerifiedCache:
    """The cache for one space. Failures to read or write it are not errors: then more is verified."""

    def __init__(self, directory: str, space: str) -> None:
        self._directory = directory
        self._path = os.path.join(directory, hashlib.sha256(space.encode("utf-8")).hexdigest()[:32])

    def commits(self) -> set[str]:
        """The ids of commits whose signature was valid."""
        data = self._read(f"{self._path}.commits")
        if not data.startswith(_MAGIC) or (len(data) - len(_MAGIC)) % _ID:
            return set()
        text = data[len(_MAGIC) :].hex()
        return {text[at : at + 2 * _ID] for at in range(0, len(text), 2 * _ID)}

    def keep_commits(self, cids: Iterable[str]) -> None:
        self._write(f"{self._path}.commits", _MAGIC + b"".join(bytes.fromhex(cid) for cid in sorted(cids)))

    def report(self, state: str) -> Any:
        """The report for a state; None if there is none."""
        return self._reports().get(state)

    def keep_report(self, state: str, report: Any) -> None:
        reports = {**self._reports(), state: report}
        newest = dict(list(reports.items())[-REPORTS:])
        self._write(f"{self._path}.reports", json.dumps(newest).encode("utf-8"))

    def _reports(self) -> dict[str, Any]:
        try:
            reports = json.loads(self._read(f"{self._path}.reports") or b"{}")
        except ValueError:
            return {}
        return reports if isinstance(reports, dict) else {}

    def _read(self, path: str) -> bytes:
        try:
            with open(path, "rb") as file:
                status = os.fstat(file.fileno())
                is_ours = status.st_uid == os.geteuid() and not stat.S_IMODE(status.st_mode) & _OTHERS
                return file.read(_SIZE_MAX) if is_ours and stat.S_ISREG(status.st_mode) else b""
        except OSError:
            return b""

    def _write(self, path: str, data: bytes) -> None:
        temporary = f"{path}.{secrets.token_hex(8)}"
        with suppress(OSError):
            private_files.make_directory(self._directory)
            with open(temporary, "wb", opener=private_files.open_file) as file:
                file.write(data)
            os.replace(temporary, path)

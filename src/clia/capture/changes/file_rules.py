"""Which files of a program's work are recorded: the limits of the configuration's table ``[capture]``.

Invariant: a file that is larger than the limit, or seems to contain a secret, is not recorded unless ``allow`` names it.
"""

from __future__ import annotations

import re

from clia.capture.events import NOTE, ToolEvent, digest
from clia.git.staging import StagingRules
from clia.redaction.scanning import file_secrets
from clia.redaction.secrets import redact
from clia.values.paths import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence

    from clia.facade.config import CaptureOptions
    from clia.git.staging import LeftOut

_MEGABYTE = 1_000_000
_SECRETS_MAX = 100
_NAMED_MAX = 20
_SIGNS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


class FileRules(StagingRules):
    """The limits for the files of a program that works in a directory of its own."""

    def __init__(self, options: CaptureOptions) -> None:
        self._size_max = options.size_mb * _MEGABYTE
        self._allowed = [_pattern(pattern) for pattern in options.allow]

    def wants(self, path: str, status: os.stat_result) -> bool:
        del path, status
        return True

    def size_max(self, path: str) -> int | None:
        return None if self._allows(path) else self._size_max

    def secrets(self, path: str, pieces: Iterable[bytes]) -> Mapping[str, str]:
        secrets: dict[str, str] = {}
        if not self._allows(path):
            for secret in file_secrets(pieces, path.rpartition("/")[2]):
                secrets.setdefault(secret.digest, f"{secret.kind} in line {secret.line}")
                if len(secrets) == _SECRETS_MAX:
                    break
        return secrets

    def secret_in_path(self, path: str) -> str | None:
        secrets = file_secrets([path.encode("utf-8", "replace")], "") if not self._allows(path) else ()
        return next((secret.kind for secret in secrets), None)

    def _allows(self, path: str) -> bool:
        return any(pattern.fullmatch(path) for pattern in self._allowed)


def shown_path(path: str) -> str:
    """A path to show and to record, without secrets that it may contain."""
    return redact(printable(path)).text


def reasons(left_out: Sequence[LeftOut]) -> dict[str, str]:
    """Why files were left out, by the path to show; at most 20 of them."""
    return {shown_path(file.path): file.reason for file in left_out[:_NAMED_MAX]}


def not_recorded(left_out: Sequence[LeftOut]) -> ToolEvent:
    """The note about files that were left out."""
    named = [file._replace(path=shown_path(file.path)) for file in left_out[:_NAMED_MAX]]
    lines = [f"{file.path}: {file.reason}" for file in named]
    if len(left_out) > len(named):
        lines.append(f"and {len(left_out) - len(named)} more")
    count = "1 file is not recorded" if len(left_out) == 1 else f"{len(left_out)} files are not recorded"
    files = [{"path": file.path, "code": file.code} for file in named]
    text = "\n".join([f"{count}:", *lines])
    return ToolEvent(NOTE, text, f"left-out:{digest(text)}", data={"left_out": files})


def _pattern(text: str) -> re.Pattern[str]:
    """The expression for a pattern as in ``.gitignore``, such as ``*.key``, ``/tests/**/*.txt`` or ``fixtures/``."""
    anchored = "/" in text.removesuffix("/")
    text = ("" if anchored else "**/") + text.removeprefix("/") + ("**" if text.endswith("/") else "")
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", text)
    return re.compile("".join(_SIGNS.get(part) or re.escape(part) for part in parts), re.DOTALL)

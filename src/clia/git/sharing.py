"""``core.sharedRepository``: the permissions of files that several accounts use.

Invariant: git's rules. ``group`` and ``all`` add permissions to what the umask leaves; an octal number replaces it. A directory can
be entered by everyone who may read it, and new files get its group. libgit2 ignores the setting, so clia applies it to what it
creates.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import NamedTuple

from clia.errors import InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

SETTING = "core.sharedRepository"
_GROUP, _ALL = 0o660, 0o664
_NAMED: Mapping[str, int] = {
    **dict.fromkeys(("umask", "false", "no", "off", "0", ""), 0),
    **dict.fromkeys(("group", "true", "yes", "on", "1"), _GROUP),
    **dict.fromkeys(("all", "world", "everyone", "2"), _ALL),
}


class Sharing(NamedTuple):
    """Permissions of shared files; ``bits`` 0: the umask decides."""

    bits: int = 0
    exact: bool = False  # the bits replace those of the umask

    def file_mode(self, mode: int) -> int:
        """Return the permissions of a file that was created with ``mode``."""
        bits = self.bits if mode & stat.S_IWUSR else self.bits & ~0o222
        if mode & stat.S_IXUSR:
            bits |= (bits & 0o444) >> 2
        return bits if self.exact else mode | bits

    def directory_mode(self, mode: int) -> int:
        """Return the permissions of a directory that was created with ``mode``."""
        shared = self.file_mode(mode)
        shared |= (shared & 0o444) >> 2
        return shared | (stat.S_ISGID if shared & 0o060 else 0)

    def apply(self, path: str) -> None:
        """Set the permissions of a file or directory that this account created; no effect on others."""
        if not self.bits:
            return
        with suppress(OSError):
            status = os.lstat(path)
            mode = stat.S_IMODE(status.st_mode)
            shared_mode = self.directory_mode(mode) if stat.S_ISDIR(status.st_mode) else self.file_mode(mode)
            if mode != shared_mode and status.st_uid == os.geteuid() and not stat.S_ISLNK(status.st_mode):
                os.chmod(path, shared_mode)

    def make_directory(self, path: str) -> None:
        """Create a directory and its missing parents."""
        missing = []
        while path and not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        for directory in reversed(missing):
            with suppress(FileExistsError):  # created by another process
                os.mkdir(directory)
                self.apply(directory)


def parse(text: str | None) -> Sharing:
    """Read the value of the setting; ``InvalidInput`` for one that git does not accept either."""
    value = (text or "").strip().lower()
    if value in _NAMED:
        return Sharing(_NAMED[value])
    if value and all(char in "01234567" for char in value):
        bits = int(value, 8)
        if bits & 0o600 == 0o600 and bits <= 0o777:
            return Sharing(bits & 0o666, exact=True)
    message = f"the setting {SETTING} has an invalid value: {text!r}"
    hints = ["use group, all, umask or an octal number such as 0660, in which the owner can read and write"]
    raise InvalidInput(message, code="invalid-setting", hints=hints, fields={"field": SETTING})

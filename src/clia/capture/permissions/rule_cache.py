"""Compiles the rules of a tool's session for its hooks.

Invariant: a cache names everything that was read to make it, as it was before it was read; a hook does not use it after any of that
has changed. What changed while it was read is not cached.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from typing import NamedTuple

from clia.capture.permissions.answers import cache_content, cache_file, signature
from clia.files import LocalFiles, WritableLocalFiles
from clia.store import private_files
from clia.values import refs as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from clia.facade.space import Space
    from clia.files import DirectoryEntry
    from clia.rules.model import GuardrailRule

_SECONDS, _SHORT_SECONDS = 600, 5
"""How long a cache counts; the shorter time for a session whose agent is not known yet, and where budgets are counted."""
_RACY_NANOSECONDS = 50_000_000  # a file that changed just now may change again within the same tick of its clock
_FILES_MAX = 200


class SessionRules(NamedTuple):
    """The rules for a tool's session, and whether its own permission requests are forwarded to people."""

    rules: tuple[GuardrailRule, ...]
    forwards: bool


class RecordingFiles(LocalFiles):
    """Files that remember what was looked at, and its state before."""

    def __init__(self) -> None:
        self.sources: dict[bytes, tuple[bool, bytes]] = {}
        self.is_stable = True

    def note(self, path: str, *, whole: bool) -> None:
        raw = os.fsencode(path)
        facts = signature(raw, whole=whole)
        source = self.sources.get(raw)
        if source is None or (whole and not source[0]):
            self.sources[raw] = (whole, facts)
        elif source[0] == whole and source[1] != facts:
            self.is_stable = False

    def real(self, path: str) -> str:
        self.note(path, whole=False)
        return super().real(path)

    def kind(self, path: str) -> str:
        self.note(path, whole=False)
        return super().kind(path)

    def entries(self, directory: str) -> list[DirectoryEntry] | None:
        self.note(directory, whole=True)
        return super().entries(directory)

    def read(self, path: str, limit: int) -> bytes | None:
        self.note(path, whole=True)
        return super().read(path, limit)

    def owner(self, path: str) -> int | None:
        self.note(path, whole=False)
        return super().owner(path)


def compile_rules(space: Space, agent: str | None, key: bytes, *, forwards: bool) -> SessionRules:
    """The rules of an agent here, and their cache for the next hook."""
    files = RecordingFiles()
    common = os.path.dirname(space.home)
    if agent is not None:
        for name in (names.record(agent), "packed-refs"):
            files.note(os.path.join(common, name), whole=True)
    files.note(os.path.join(space.home, "config.toml"), whole=True)
    rules = tuple(map(space.identities.shown, space.identities.rules_in_force(agent, files)))
    if files.is_stable and not _is_racy(files):
        with suppress(OSError):
            is_steady = agent is not None and not space.budgets.is_configured
            _write(common, key, rules, files, forwards=forwards, seconds=_SECONDS if is_steady else _SHORT_SECONDS)
    return SessionRules(rules, forwards)


def _is_racy(files: RecordingFiles) -> bool:
    now = time.time_ns()
    for path, (whole, _) in files.sources.items():
        with suppress(OSError):
            if whole and os.stat(path).st_ctime_ns > now - _RACY_NANOSECONDS:
                return True
    return False


def _write(common: str, key: bytes, rules: Sequence[GuardrailRule], files: RecordingFiles, *, forwards: bool, seconds: int) -> None:
    until = int(time.time()) + seconds
    text = json.dumps([[*rule[:2], list(rule.match), *rule[3:]] for rule in rules]).encode()
    file = os.fsdecode(cache_file(os.fsencode(common), key))
    writer = WritableLocalFiles()
    directory = os.path.dirname(file)
    private_files.make_directory(directory)
    _prune(directory)
    writer.replace(file, cache_content(key, until, forwards, files.sources, text))
    private_files.adjust(file)


def _prune(directory: str) -> None:
    """Remove the oldest caches: a session is not announced when it is gone for good."""
    with os.scandir(directory) as entries:
        listed = sorted(entries, key=lambda entry: entry.stat().st_mtime_ns)
    for entry in listed[: max(0, len(listed) - _FILES_MAX)]:
        with suppress(OSError):
            os.unlink(entry.path)

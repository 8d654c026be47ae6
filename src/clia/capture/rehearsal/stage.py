"""Where a rehearsal takes place: its clock, its ids, its transcripts, its hooks, and the list of all that happened.

Invariant: everything that happens goes through ``happen``, which writes the lines, runs the hook and puts the event on the list,
in this order: so the list says exactly what a recorder could have seen, and what was kept from it on purpose.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    Line = tuple[str, Any]  # a transcript's path, and what goes into it

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class Setting(NamedTuple):
    """What a rehearsal is given from outside."""

    tool: str
    directory: str  # where the tool works
    home: str  # where it keeps its transcripts
    start: datetime
    seed: int = 1
    branch: str = ""
    environment: Mapping[str, str] | None = None  # of the commands it runs
    send: Callable[[bytes], int] | None = None  # runs the hook with a payload, and gives its exit code; None: no hooks
    stop_after: int | None = None
    clock: Callable[[], datetime] | None = None  # the real time; None: time goes on by itself from the start


class Stopped(Exception):
    """The session was left where it was asked to be."""


class Stage:
    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.events: list[dict[str, Any]] = []
        self.run = 0  # which start of the session this is: ids of another start are others
        self.missing = self.truncating = self.lagging = 0
        self._now = setting.start.astimezone(UTC)
        self._counts: Counter[str] = Counter()
        self._held: list[Line] = []

    # Ids and times.

    def digest(self, *names: object) -> str:
        """64 hex digits, the same for the same seed, tool and names."""
        return hashlib.sha256("/".join(map(str, (self.setting.seed, self.setting.tool, *names))).encode()).hexdigest()

    def fresh(self, label: str) -> str:
        """64 hex digits that no other call gives."""
        self._counts[label] += 1
        return self.digest(self.run, label, self._counts[label])

    def uuid(self, label: str) -> str:
        return uuid_of(self.fresh(label))

    def word(self, label: str, length: int) -> str:
        """Letters and digits, as ids of APIs are."""
        number = int(self.fresh(label), 16)
        return "".join(_ALPHABET[number // 62**place % 62] for place in range(length))

    def number(self, label: str, below: int) -> int:
        return int(self.fresh(label), 16) % below

    def now(self) -> datetime:
        """The next moment: later than the last one, and where there is a clock, as the clock says."""
        if self.setting.clock is None:
            self._now += timedelta(milliseconds=10 + self.number("tick", 110))
        else:
            self._now = max(self._now + timedelta(milliseconds=1), self.setting.clock().astimezone(UTC))
        return self._now

    def stamp(self) -> str:
        return stamp_of(self.now())

    # What happens.

    def happen(
        self,
        kind: str,
        agent: str = "",
        *,
        text: str = "",
        lines: Sequence[Line] = (),
        hook: Mapping[str, Any] | None = None,
        **keys: Any,
    ) -> None:
        """One event: its lines, then its hook; ``agent`` is the tool's id of the sub-agent, empty for the session itself."""
        event: dict[str, Any] = {"n": len(self.events) + 1, "kind": kind, "agent": agent, "text": text, **keys}
        event["line"] = ("late" if self.lagging else "written") if lines else "none"
        self._put(lines)
        event["hook"] = None if hook is None else str(hook.get("hook_event_name"))
        event["sent"] = "none"
        self.events.append(event)
        if hook is not None:
            self._send(hook, event)
        if self.setting.stop_after is not None and len(self.events) >= self.setting.stop_after:
            raise Stopped

    def _send(self, hook: Mapping[str, Any], event: dict[str, Any]) -> None:
        if self.setting.send is None:
            event["sent"] = "off"
            return
        if self.missing:
            self.missing -= 1
            event["sent"] = "missed"
            return
        data = as_json(hook).encode("utf-8", "surrogatepass")
        event["sent"] = "whole"
        if self.truncating:
            self.truncating -= 1
            event["sent"] = "truncated"
            data = data[: len(data) // 2]
        event["exit"] = self.setting.send(data)

    def _put(self, lines: Sequence[Line]) -> None:
        if self.lagging:
            self._held.extend(lines)
        else:
            for path, record in lines:
                append(path, record)

    def step_done(self) -> None:
        """A step of the script is over: lines that lagged behind may come now."""
        if self.lagging:
            self.lagging -= 1
            if not self.lagging:
                self.release()

    def release(self) -> None:
        held, self._held, self.lagging = self._held, [], 0
        self._put(held)


def append(path: str, record: Any) -> None:
    """One more line; a text goes in as it is, so that a line can be broken on purpose."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    line = record if isinstance(record, str) else as_json(record)
    with open(path, "a", encoding="utf-8", errors="surrogatepass", newline="\n") as file:
        file.write(line + "\n")


def as_json(value: Any) -> str:
    """JSON as the tools write it: no blanks, no escapes that are not needed."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def uuid_of(digits: str, version: str = "4") -> str:
    return f"{digits[:8]}-{digits[8:12]}-{version}{digits[13:16]}-{'89ab'[int(digits[16], 16) % 4]}{digits[17:20]}-{digits[20:32]}"


def stamp_of(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"

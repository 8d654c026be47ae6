"""The hub, reached by stock git.

Invariant: a push carries the expected value of every ref, so that the server compares and swaps; what it answered is believed
only where it said that all went well. Otherwise the hub is read again, and what stands there counts. A hub that does not answer
in time is away; it is asked again after a while. No password of an address shows anywhere.
"""

from __future__ import annotations

import json
import os
import random
import re
import tempfile
import time
from contextlib import suppress
from typing import NamedTuple

from clia.errors import CliaError, Denied, GitError, StaleRef, TransportError
from clia.git.command import run_limited
from clia.git.quarantine import without_credentials
from clia.git.records import TransferLimits
from clia.git.refs import LockFile, stale
from clia.hub.interface import APART, Away
from clia.values import refs as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from clia.git.command import GitCommand, GitResult
    from clia.git.libgit2 import GitHandle
    from clia.git.refs import GitRefs
    from clia.hub.interface import Move

AGAIN_SECONDS = 5.0
"""For so long a hub that was away is not asked again, unless somebody insists."""
_ANY_SIZE = 1 << 50  # what is ours goes out and comes in, however large
_ALL_SECONDS = 3600.0
_AT_ONCE = 300  # refs that one push takes
_TRIES = 6
_LOCKED_SECONDS = 5.0  # a lock here that is older than a second was left by a process that died, and is broken
_PAUSE = 0.05
_FETCH = (
    *("fetch", "--no-tags", "--prune", "--no-auto-maintenance", "--no-recurse-submodules", "--no-write-fetch-head", "--atomic"),
    *("--quiet", "--refmap="),
)
_PUSH = ("push", "--atomic", "--porcelain", "--no-verify", "--no-follow-tags", "--no-recurse-submodules", "--no-progress")
# What people have set up for their own pushes is not for these.
_PLAIN = ("-c", "push.gpgSign=false", "-c", "push.pushOption=", "-c", "push.followTags=false")
_FORBIDDEN = re.compile(r"returned error: 40[13]|authentication failed|access denied|permission denied|denied to ", re.IGNORECASE)
_REFUSED = re.compile(r"^!\t[^\t]*\t(.*)$", re.MULTILINE)
# Others were at it at the same time: git's own words for it, here and at the server.
_CONTENDED = re.compile(
    r"cannot lock ref|unable to create .*\.lock|failed to update ref|reference already exists|stale info|incorrect old value"
    r"|atomic transaction failed",
    re.IGNORECASE,
)
# The server would have taken it, and could not: its disk is full, or may only be read. It says the same where it did not want it.
_FAILED = re.compile(r"unable to (?:create temporary|write|migrate)|no space left|read-only file system", re.IGNORECASE)
_UNPACKED = "unpacker error"
_SPEAKER = re.compile(r"^(?:remote: |fatal: |error: )+")
_LOCK = re.compile(r"unable to create '[^']+/refs/clia-tracking/[^']+\.lock'", re.IGNORECASE)
_SHARED_BY_ALL = (names.SPACE, names.TYPES, names.OBJECTS, names.KEYS, names.CAPABILITIES, names.BEHAVIOURS)


class Where(NamedTuple):
    """Which hub it is, and how long it may take."""

    remote: str
    heads: str
    seconds: float
    notebook: str  # the file that says since when the hub is away


class RemoteHub:
    """``Hub`` that is a remote of one repository."""

    def __init__(self, handle: GitHandle, command: GitCommand, refs: GitRefs, where: Where) -> None:
        self.here = refs
        self.remote, self.heads = where.remote, where.heads
        self._handle = handle
        self._command = command
        self._seconds = where.seconds
        self._notebook = where.notebook

    def address(self) -> str:
        config, key = self._handle.repo.config, f"remote.{self.remote}.url"
        return without_credentials((config[key] if key in config else None) or self.remote)  # noqa: SIM401  # it has no get

    # What is known of it

    def known(self, ref: str) -> str | None:
        return self.here.get(names.tracking(self.remote, ref))

    def known_under(self, prefix: str) -> list[tuple[str, str]]:
        below = names.tracking(self.remote, prefix)
        found = ((prefix + ref.removeprefix(below), cid) for ref, cid in self.here.under(below))
        return [(ref, cid) for ref, cid in found if names.is_shared(ref)]

    def known_all(self) -> dict[str, str]:
        return dict(each for _, source in names.KINDS for each in self.known_under(source))

    def away(self) -> Away | None:
        note = self._note()
        return None if note is None else Away(note[0], note[2])

    def _note(self) -> tuple[float, float, str] | None:
        """Since when the hub is away, when it was tried last, and why."""
        try:
            with open(self._notebook, encoding="utf-8") as file:
                made = json.load(file)
            return float(made["since"]), float(made["tried"]), str(made["reason"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _is_away(self, reason: str) -> None:
        now, before = time.time(), self._note()
        note = {"since": before[0] if before else now, "tried": now, "reason": without_credentials(reason)[:500]}
        folder = os.path.dirname(self._notebook)
        with suppress(OSError):  # then everyone tries for themselves
            os.makedirs(folder, exist_ok=True)
            handle, draft = tempfile.mkstemp(dir=folder, prefix="hub-away.")
            with open(handle, "w", encoding="utf-8") as file:
                json.dump(note, file)
            os.replace(draft, self._notebook)

    def _is_there(self) -> None:
        with suppress(OSError):
            os.unlink(self._notebook)

    def rests(self) -> bool:
        note = self._note()
        return note is not None and 0 <= time.time() - note[1] < AGAIN_SECONDS  # clocks are set, too

    # Reading it

    def fetch(self, agent: str | None = None, *, insist: bool = False) -> bool:
        if not insist and self.rests():
            return False
        # A hub that says nothing at all is found out by a small question: all of it may take long.
        if agent is None and not self._fetch(self._rules([names.SPACE]), self._seconds):
            return False
        rules = self._rules_of_all() if agent is None else self._rules(self._prefixes(agent))
        rules.append(self._mark_rule())
        return self._fetch(rules, _ALL_SECONDS if agent is None else self._seconds)

    def _fetch(self, rules: Sequence[str], seconds: float) -> bool:
        locks: dict[str, LockFile] = {}
        until = time.monotonic() + _LOCKED_SECONDS
        ran = self._git(seconds, *_FETCH, "--", self.remote, *rules)
        while ran.code and not ran.late and _CONTENDED.search(ran.err) and time.monotonic() < until:
            for path in self._locks() if _LOCK.search(ran.err) else ():
                locks.setdefault(path, LockFile(path)).break_if_stale()
            _wait_a_little()
            ran = self._git(seconds, *_FETCH, "--", self.remote, *rules)
        if ran.code == 0 and not ran.late:
            self._is_there()
            return True
        self._is_away(_reason(ran))
        return False

    def _locks(self) -> list[str]:
        """All locks on what is known of the hub. A fetch that was killed leaves one for each ref, git tells the first."""
        top = os.path.join(self._handle.common_dir, f"{names.TRACKING}{self.remote}")
        found = (os.path.join(folder, each) for folder, _, files in os.walk(top) for each in files)
        return [each for each in found if each.endswith(".lock")]

    def _there(self, ref: str) -> str:
        """What a ref is called at the hub."""
        return names.PUBLISHED + ref.removeprefix(names.HEADS) if self.heads == APART and ref.startswith(names.HEADS) else ref

    def _prefixes(self, agent: str) -> list[str]:
        return [*names.of_agent(agent), *_SHARED_BY_ALL]

    def _rules(self, prefixes: Sequence[str]) -> list[str]:
        # With a star each: git fails where a ref that is named in full does not exist. Others that begin alike come along.
        return [f"+{self._there(each)}*:{names.tracking(self.remote, each)}*" for each in prefixes]

    def _rules_of_all(self) -> list[str]:
        # Not refs/clia as a whole: what is about peers is nobody else's, and the heads that stand apart have their own rule.
        prefixes = (names.RECORDS, names.EVENTS, names.ARCHIVE, names.TRACES, names.SESSIONS, names.HEADS, *_SHARED_BY_ALL)
        return self._rules(prefixes)

    def _mark_rule(self) -> str:
        # Not to where it is tracked: a hub that was made anew has none, and what this clone has joined must not be forgotten.
        return f"+{names.HUB_MARK}*:{names.seen_mark(self.remote)}*"

    def mark(self) -> str | None:
        """What marked the hub when all of it, or all of an agent, was read last."""
        return self.here.get(names.seen_mark(self.remote))

    def read(self, *refs: str) -> bool:
        """Reads what the hub has at some refs; whether it could be reached."""
        return not self.rests() and self._fetch(self._rules(refs), self._seconds)

    def probe(self, commit: str) -> None:
        """``Denied`` where the hub does not let us write to every place that we need, ``GitError`` (hub-unfit) where it cannot keep
        our objects, or does not show what was written. What it takes goes away again."""
        places = ("refs/clia/probe", f"{names.NOTES}probe")
        # Asked once for all: where a server hides one of the places, git moves the others although all belong together.
        ran = self._git(self._seconds, *_PUSH, "--", self.remote, *(f"+{commit}:{place}" for place in places))
        refusal = _refusal(ran)
        seen = self._git(self._seconds, "ls-remote", "--quiet", "--", self.remote, *places)
        self._git(self._seconds, *_PUSH, "--", self.remote, *(f":{place}" for place in places))
        if "hash algorithm" in ran.err:
            raise self._unfit(
                "keeps objects of another kind than this repository: SHA-256, say", "git init --bare --object-format=sha1"
            )
        if refusal is not None:
            raise self._refused(refusal)
        if ran.code and _FAILED.search(ran.err):
            self._is_away(_reason(ran))
            raise self.gone()
        shown = seen.out.decode("utf-8", "replace").split()
        hidden = [place.removesuffix("/probe") for place in places if place not in shown]
        if ran.code == 0 and seen.code == 0 and hidden:
            hint = f"ask whoever runs it to show {hidden[0]}: uploadpack.hideRefs and transfer.hideRefs are git's settings for it"
            raise self._unfit(f"takes what is below {hidden[0]}, and does not show it", hint)

    def _unfit(self, why: str, hint: str) -> GitError:
        return GitError(f"the hub {self.address()} {why}", code="hub-unfit", hints=[hint], fields={"remote": self.remote})

    def give_mark(self, commit: str) -> None:
        """Marks a hub that has no mark; where another machine is quicker, its mark stays. ``mark`` tells what is there then."""
        ran = self._push([(names.HUB_MARK, None, commit)], self._seconds)
        if not self._fetch([self._mark_rule()], self._seconds):
            raise self.gone()
        if self.mark() is None:
            refusal = _refusal(ran)
            raise self.gone() if refusal is None else self._refused(refusal)

    # Moving refs there

    def send(self, moves: Sequence[Move], *, patient: bool = False) -> None:
        if self.rests():
            raise self.gone()
        for start in range(0, len(moves), _AT_ONCE):
            self._send(moves[start : start + _AT_ONCE], _ALL_SECONDS if patient else self._seconds)

    def _send(self, moves: Sequence[Move], seconds: float) -> None:
        ran = self._push(moves, seconds)
        for _ in range(_TRIES):
            if ran.code == 0 and not ran.late:
                self._is_there()
                self._learn(moves)
                return
            # It may have gone through all the same. The hub knows.
            if not self._fetch(self._rules([ref for ref, _, _ in moves]), self._seconds):
                raise self.gone()
            if all(self._landed(ref, old, new) for ref, old, new in moves):
                return
            for ref, old, _ in moves:
                actual = self.known(ref)
                if actual != old:
                    raise stale(ref, old, actual)
            refusal = _refusal(ran)
            if refusal is not None:
                raise self._refused(refusal)
            _wait_a_little()
            ran = self._push(moves, seconds)
        self._is_away(_reason(ran))
        raise self.gone()

    def _landed(self, ref: str, old: str | None, new: str | None) -> bool:
        """Whether a ref has moved at the hub as was asked; somebody may have gone on from there meanwhile."""
        there = self.known(ref)
        if there is None or new is None or there == new:
            return there == new
        # What the ref held before says nothing: a move back leads to where every later value comes from.
        return self._is_past(new, there) and (old is None or not self._is_past(new, old))

    def _is_past(self, cid: str, of: str) -> bool:
        return self._command.attempt("merge-base", "--is-ancestor", cid, of).code == 0

    def _push(self, moves: Sequence[Move], seconds: float) -> GitResult:
        leases = [f"--force-with-lease={self._there(ref)}:{old or ''}" for ref, old, _ in moves]
        plain = ("-c", f"remote.{self.remote}.mirror=false", *_PLAIN)
        wanted = (f"{new or ''}:{self._there(ref)}" for ref, _, new in moves)
        return self._git(seconds, *plain, *_PUSH, *leases, "--", self.remote, *wanted)

    def _learn(self, moves: Sequence[Move]) -> None:
        """Notes what the hub has now. Where somebody has read it meanwhile, what they read is newer."""
        for ref, _, new in moves:
            tracked = names.tracking(self.remote, ref)
            before = self.here.get(tracked)
            if before != new:
                with suppress(StaleRef):
                    self.here.move(tracked, before, new, "clia: hub")

    def _git(self, seconds: float, *words: str) -> GitResult:
        whole, environment = self._command.whole(*words)
        where = self._handle.work_dir or self._handle.common_dir
        return run_limited(whole, environment | self._command.reaching, where, TransferLimits(_ANY_SIZE, seconds))

    def gone(self) -> TransportError:
        """The hub cannot be reached: the error for whoever cannot go on without it."""
        away = self.away()
        reason = away.reason if away else "it does not answer"
        what = "cannot take anything now" if _FAILED.search(reason) else "cannot be reached"
        error = TransportError(
            f"the hub {self.address()} {what}: {reason}",
            code="hub-away",
            hints=["work goes on here; clia hub sync publishes it when the hub is back"],
            fields={"remote": self.remote, "reason": reason},
        )
        error.retryable = True
        return error

    def _refused(self, reason: str) -> CliaError:
        if "does not support --atomic" in reason:
            hints = ["ask whoever runs it for receive.advertiseAtomic, or a git server that has it"]
            return GitError(f"the hub {self.address()} cannot move refs together: {reason}", code="hub-unfit", hints=hints)
        return Denied(
            f"the hub {self.address()} does not allow this: {reason}",
            code="hub-refused",
            hints=["ask whoever runs it to allow pushes below refs/clia, refs/notes/clia and refs/heads/agents"],
            fields={"remote": self.remote, "reason": reason},
        )


def _refusal(ran: GitResult) -> str | None:
    """Why the server does not want this; None where it only came at a bad moment, or said nothing."""
    if "does not support --atomic" in ran.err:
        return "the receiving end does not support --atomic push"
    said = [each for each in _REFUSED.findall(ran.out.decode("utf-8", "replace")) if "atomic push fail" not in each]
    if _FAILED.search(ran.err):
        said = [each for each in said if _UNPACKED not in each]
    said = [each for each in said if not _CONTENDED.search(each)] or _FORBIDDEN.findall(ran.err)[:1]
    words = [line.removeprefix("remote: ").strip() for line in ran.err.splitlines() if line.startswith("remote: ")]
    whole = " ".join([*said[:1], *(f"({each})" for each in words[:3] if each)])
    return without_credentials(whole) if said else None


def _reason(ran: GitResult) -> str:
    if ran.late:
        return "it did not answer in time"
    lines = [line for line in without_credentials(ran.err).splitlines() if line.strip()]
    return _SPEAKER.sub("", lines[0]).strip() if lines else f"git ended with {ran.code}"


def _wait_a_little() -> None:
    # Jitter shapes no result; it keeps machines from meeting again and again.
    time.sleep(_PAUSE * (0.5 + random.random()))  # noqa: S311  # no secret

"""The hub as a git remote, accessed by the git command.

Invariant: a push carries the expected value of every ref, so the server compares and swaps. Only a fully successful push is
trusted; otherwise the hub is fetched and its refs count. A hub that does not answer in time is unreachable and is not
contacted again for a while. Credentials in an address are never shown.
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

from clia.errors import CliaError, Denied, GitError, InvalidInput, NotFound, StaleRef, TransportError
from clia.git.command import OUTPUT_MAX, refused_transport, run_limited, without_credentials
from clia.git.records import TransferLimits
from clia.git.refs import stale
from clia.git.repository import HUB, HUB_HEADS
from clia.hub.fetch_marks import FetchMarks
from clia.hub.model import BRANCHES, PUBLISHED_REFS, Outage
from clia.store import private_files
from clia.values import refs as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from clia.git.command import GitCommand, GitResult
    from clia.git.libgit2 import GitHandle
    from clia.git.refs import GitRefs
    from clia.git.repository import Git
    from clia.hub.model import Move

HUB_SECONDS = 60
"""The default time limit of one exchange."""
OUTAGE_FILE = "hub-away.json"
"""The file beside the store that records since when the hub is unreachable."""
BACKOFF_SECONDS = 5.0
"""An unreachable hub is not contacted again for this long."""
_NO_LIMIT = 1 << 50
_FULL_SECONDS = 3600.0
_BATCH = 300  # refs per push
TRIES = 6
LOCKED_SECONDS = 5.0  # wait for locks of other processes; those of dead fetches are broken
_PAUSE_SECONDS = 0.05
_FETCH = (
    *("fetch", "--no-tags", "--prune", "--no-auto-maintenance", "--no-recurse-submodules", "--no-write-fetch-head", "--atomic"),
    *("--quiet", "--refmap="),
)
_PUSH = ("push", "--atomic", "--porcelain", "--no-verify", "--no-follow-tags", "--no-recurse-submodules", "--no-progress")
# Ignore the user's configuration for pushes.
_PLAIN = ("-c", "push.gpgSign=false", "-c", "push.pushOption=", "-c", "push.followTags=false")
_FORBIDDEN = re.compile(r"returned error: 40[13]|authentication failed|access denied|permission denied|denied to ", re.IGNORECASE)
_REFUSED = re.compile(r"^!\t[^\t]*\t(.*)$", re.MULTILINE)
# Git's messages for a concurrent update, here or at the server.
_CONTENDED = re.compile(
    r"cannot lock ref|unable to create .*\.lock|failed to update ref|reference already exists|stale info|incorrect old value"
    r"|atomic transaction failed",
    re.IGNORECASE,
)
# The server failed (disk full or read-only) rather than refused.
_SERVER_FAILED = re.compile(r"unable to (?:create temporary|write|migrate)|no space left|read-only file system", re.IGNORECASE)
_UNPACKED = "unpacker error"
_PREFIX = re.compile(r"^(?:remote: |fatal: |error: )+")
_LOCK = re.compile(r"unable to create '[^']+/refs/clia-tracking/[^']+\.lock'", re.IGNORECASE)
_LOCK_FILE = re.compile(r"'([^']+\.lock)'")
# Not all of refs/clia: refs about peers are private, and published heads have their own rule.
_ALL_KINDS = (names.RECORDS, names.EVENTS, names.ARCHIVE, names.TRACES, names.SESSIONS, names.HEADS)
_SHARED_CHAINS = (
    *(names.SPACE, names.TYPES, names.OBJECTS, names.GUARDRAILS, names.KEYS),
    *(names.CAPABILITIES, names.STATEMENTS, names.BEHAVIOURS, names.ATTRIBUTION),
)


class RemoteHubOptions(NamedTuple):
    """Which remote is the hub, and how to use it."""

    remote: str
    heads: str
    seconds: float  # timeout of one exchange
    outage_file: str


class RemoteHub:
    """The hub of a repository.

    Refs move by compare-and-swap, several atomically, never by force. What was fetched last is kept in tracking refs.
    """

    def __init__(self, handle: GitHandle, command: GitCommand, refs: GitRefs, options: RemoteHubOptions) -> None:
        self.local_refs = refs
        self.remote, self.heads = options.remote, options.heads
        self._handle = handle
        self._command = command
        self._seconds = options.seconds
        self._outage_file = options.outage_file
        self._marks = FetchMarks(handle)
        self._locked: str | None = None  # why the last exchange failed, if a lock of a ref was in its way

    def address(self) -> str:
        config, key = self._handle.repo.config, f"remote.{self.remote}.url"
        return without_credentials((config[key] if key in config else None) or self.remote)  # noqa: SIM401  # it has no get

    # Tracking refs and outages

    def tracked(self, ref: str) -> str | None:
        """Return the value of a shared ref at the last fetch."""
        return self.local_refs.get(names.tracking(self.remote, ref))

    def tracked_under(self, prefix: str) -> list[tuple[str, str]]:
        below = names.tracking(self.remote, prefix)
        refs = ((prefix + ref.removeprefix(below), cid) for ref, cid in self.local_refs.under(below))
        return [(ref, cid) for ref, cid in refs if names.is_shared(ref)]

    def all_tracked(self) -> dict[str, str]:
        return dict(item for _, source in names.KINDS for item in self.tracked_under(source))

    def outage(self) -> Outage | None:
        """Return the outage if the last contact failed."""
        note = self._read_outage()
        return None if note is None else Outage(note[0], note[2])

    def _read_outage(self) -> tuple[float, float, str] | None:
        """Return since when the hub is unreachable, when it was last tried, and why."""
        try:
            with open(self._outage_file, encoding="utf-8") as file:
                outage = json.load(file)
            return float(outage["since"]), float(outage["tried"]), str(outage["reason"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _record_outage(self, reason: str) -> None:
        now, before = time.time(), self._read_outage()
        note = {"since": before[0] if before else now, "tried": now, "reason": without_credentials(reason)[:500]}
        directory = os.path.dirname(self._outage_file)
        with suppress(OSError):  # then every process tries by itself
            private_files.make_directory(directory)
            handle, temporary = tempfile.mkstemp(dir=directory, prefix="hub-away.")
            with open(handle, "w", encoding="utf-8") as file:
                json.dump(note, file)
            private_files.adjust(temporary)
            os.replace(temporary, self._outage_file)

    def clear_outage(self) -> None:
        """Contact the hub again at the next need."""
        with suppress(OSError):
            os.unlink(self._outage_file)

    def in_backoff(self) -> bool:
        """Whether the hub was unreachable a moment ago and is not contacted yet."""
        note = self._read_outage()
        return note is not None and 0 <= time.time() - note[1] < BACKOFF_SECONDS  # negative: the clock was set back

    # Fetch

    def fetch(self, agent: str | None = None, *, retry_now: bool = False) -> bool:
        """Fetch one agent and the shared chains, or everything; False if the hub is unreachable.

        ``retry_now``: contact the hub even during a backoff.
        """
        if not retry_now and self.in_backoff():
            return False
        # Detect a silent hub with a small fetch first: a full fetch has a long timeout.
        chains = [*self._rules(_SHARED_CHAINS), self._mark_rule()]
        if agent is not None:
            own = names.of_agent(agent)
            self._bring_back(own)
            return self._fetch([*self._rules(own), *chains], self._seconds)
        if self.local_refs.has_archive():
            return self._fetch(chains, self._seconds) and self._fetch_changed()
        if not self._fetch(self._rules([names.SPACE]), self._seconds):
            return False
        return self._fetch([*self._rules(_ALL_KINDS), *chains], _FULL_SECONDS)

    def _bring_back(self, refs: Sequence[str]) -> None:
        """Bring tracking refs back from the archive repository, which a fetch does not see."""
        if self.local_refs.has_archive():
            with suppress(OSError):  # another process does it
                self.local_refs.bring_back(self.local_refs.archive.among(names.tracking(self.remote, ref) for ref in refs))

    def _fetch_changed(self) -> bool:
        """Fetch the agents' refs that differ from the last fetch: by patterns, git would create the tracking refs of idle agents
        again, which are in the archive repository."""
        listed = self._list(_ALL_KINDS)
        if listed is None:
            return False
        before = {ref: cid for kind in _ALL_KINDS for ref, cid in self.tracked_under(kind)}
        changed = sorted(ref for ref, cid in listed.items() if before.get(ref) != cid)
        # One may have vanished in between: patterns do not fail then.
        if changed and not (self._fetch_each(changed) or self._fetch(self._rules(_ALL_KINDS), _FULL_SECONDS)):
            return False
        for ref in before.keys() - listed.keys():
            with suppress(StaleRef):  # a concurrent fetch is newer
                self.local_refs.move(names.tracking(self.remote, ref), before[ref], None, "clia: gone at the hub")
        return True

    def _list(self, prefixes: Sequence[str]) -> dict[str, str] | None:
        """The shared refs of the hub below some prefixes; None if it is unreachable."""
        patterns = [f"{self._hub_name(prefix)}*" for prefix in prefixes]
        result = self._git(_FULL_SECONDS, "ls-remote", "--quiet", "--refs", "--", self.remote, *patterns, most=_NO_LIMIT)
        if result.code or result.late:
            self._record_outage(_reason(result))
            return None
        lines = (line.split("\t") for line in result.out.decode("utf-8", "replace").splitlines())
        refs = {self._own_name(ref): cid for cid, ref in lines}
        return {ref: cid for ref, cid in refs.items() if names.is_shared(ref)}

    def _fetch_each(self, refs: Sequence[str]) -> bool:
        """Fetch some refs by their full names."""
        rules = [f"+{self._hub_name(ref)}:{names.tracking(self.remote, ref)}" for ref in refs]
        with tempfile.NamedTemporaryFile("w", encoding="ascii") as file:
            file.write("".join(f"{rule}\n" for rule in rules))
            file.flush()
            return self._fetch(["--stdin"], _FULL_SECONDS, stdin=file.name)

    def _fetch(self, rules: Sequence[str], seconds: float, stdin: str | None = None) -> bool:
        """``stdin``: a file with the rules, for the rule ``--stdin``."""
        words = (*_FETCH, "--", self.remote, *rules) if stdin is None else (*_FETCH, "--no-prune", *rules, "--", self.remote)
        until = time.monotonic() + LOCKED_SECONDS
        while True:
            with self._marks.fetching():
                result = self._git(seconds, *words, stdin=stdin)
                if result.late:
                    self._marks.keep()
            if not (_is_contended(result) and time.monotonic() < until):
                break
            if _LOCK.search(result.err):  # git names only the first of the locks that a killed fetch left
                self._marks.break_locks(f"{names.TRACKING}{self.remote}")
            _pause()
        if result.code == 0 and not result.late:
            self.clear_outage()
            return True
        if _is_contended(result):
            self._locked = _reason(result)  # about these refs alone: the hub is not away
        else:
            self._record_outage(_reason(result))
        return False

    def _hub_name(self, ref: str) -> str:
        """Return the name of a ref at the hub."""
        if self.heads == PUBLISHED_REFS and ref.startswith(names.HEADS):
            return names.PUBLISHED + ref.removeprefix(names.HEADS)
        return ref

    def _own_name(self, ref: str) -> str:
        """Return the name of a ref of the hub here."""
        if self.heads == PUBLISHED_REFS and ref.startswith(names.PUBLISHED):
            return names.HEADS + ref.removeprefix(names.PUBLISHED)
        return ref

    def _rules(self, prefixes: Sequence[str]) -> list[str]:
        # Patterns: git fails if a ref named in full is missing. Refs with the same prefix are fetched too.
        return [f"+{self._hub_name(prefix)}*:{names.tracking(self.remote, prefix)}*" for prefix in prefixes]

    def _mark_rule(self) -> str:
        # Not a tracking ref: a recreated hub has no mark, and the mark this clone joined must be kept.
        return f"+{names.HUB_MARK}*:{names.seen_mark(self.remote)}*"

    def mark(self) -> str | None:
        """Return the mark of the hub at the last fetch."""
        return self.local_refs.get(names.seen_mark(self.remote))

    def read(self, *refs: str, retry_now: bool = False) -> bool:
        """Fetch some refs; False if the hub is unreachable, or in backoff and not ``retry_now``."""
        if self.in_backoff() and not retry_now:
            return False
        self._bring_back([ref for ref in refs if names.agent_of(ref) is not None])
        return self._fetch(self._rules(refs), self._seconds)

    def probe(self, commit: str) -> None:
        """Check with temporary refs that the hub can be used.

        ``Denied`` if it does not allow a write, ``GitError`` (hub-unfit) if it cannot store our objects or hides our refs.
        """
        probes = ("refs/clia/probe", f"{names.NOTES}probe")
        # Listed separately: if a server hides one of the refs, git updates the others despite --atomic.
        result = self._git(self._seconds, *_PUSH, "--", self.remote, *(f"+{commit}:{probe}" for probe in probes))
        refusal = _refusal(result)
        listed = self._git(self._seconds, "ls-remote", "--quiet", "--", self.remote, *probes)
        self._git(self._seconds, *_PUSH, "--", self.remote, *(f":{probe}" for probe in probes))
        if "hash algorithm" in result.err:
            problem = "uses another object format than this repository, such as SHA-256"
            raise self._unfit(problem, "git init --bare --object-format=sha1")
        if refusal is not None:
            raise self._refused(refusal)
        if result.code and _SERVER_FAILED.search(result.err):
            self._record_outage(_reason(result))
            raise self.unreachable()
        visible = listed.out.decode("utf-8", "replace").split()
        hidden = [probe.removesuffix("/probe") for probe in probes if probe not in visible]
        if result.code == 0 and listed.code == 0 and hidden:
            hint = f"ask the server's administrator to show {hidden[0]} (uploadpack.hideRefs, transfer.hideRefs)"
            raise self._unfit(f"accepts refs below {hidden[0]} but hides them", hint)

    def _unfit(self, problem: str, hint: str) -> GitError:
        return GitError(f"the hub {self.address()} {problem}", code="hub-unfit", hints=[hint], fields={"remote": self.remote})

    def push_mark(self, commit: str) -> None:
        """Mark a hub that has no mark. Another machine's mark wins if it was first; ``mark`` returns the result."""
        result = self._push([(names.HUB_MARK, None, commit)], self._seconds)
        if not self._fetch([self._mark_rule()], self._seconds):
            raise self.unreachable()
        if self.mark() is None:
            refusal = _refusal(result)
            raise self.unreachable() if refusal is None else self._refused(refusal)

    # Push

    def send(self, moves: Sequence[Move], *, patient: bool = False) -> None:
        """Move refs at the hub, all or none (``StaleRef``). ``TransportError`` (hub-away) if it is unreachable.

        ``Denied`` (hub-refused) if the server does not allow it. ``patient``: without the usual timeout.
        """
        if self.in_backoff():
            raise self.unreachable()
        for start in range(0, len(moves), _BATCH):
            self._send(moves[start : start + _BATCH], _FULL_SECONDS if patient else self._seconds)

    def _send(self, moves: Sequence[Move], seconds: float) -> None:
        result = self._push(moves, seconds)
        for _ in range(TRIES):
            if result.code == 0 and not result.late:
                self.clear_outage()
                for ref, _, new in moves:
                    tracked = names.tracking(self.remote, ref)
                    before = self.local_refs.get(tracked)
                    if before != new:
                        with suppress(StaleRef, GitError):  # a concurrent fetch is newer, and the next one renews it
                            self.local_refs.move(tracked, before, new, "clia: hub")
                return
            # It may have succeeded anyway: ask the hub.
            if not self._fetch(self._rules([ref for ref, _, _ in moves]), self._seconds):
                raise self.unreachable()
            if all(self._landed(ref, old, new) for ref, old, new in moves):
                return
            for ref, old, _ in moves:
                actual = self.tracked(ref)
                if actual != old:
                    raise stale(ref, old, actual)
            refusal = _refusal(result)
            if refusal is not None:
                raise self._refused(refusal)
            _pause()
            result = self._push(moves, seconds)
        if _is_contended(result):
            raise self._ref_locked(moves, _reason(result))
        self._record_outage(_reason(result))
        raise self.unreachable()

    def _landed(self, ref: str, old: str | None, new: str | None) -> bool:
        """Whether a ref has moved at the hub as requested, possibly further since."""

        def is_ancestor(cid: str, of: str) -> bool:
            return self._command.attempt("merge-base", "--is-ancestor", cid, of).code == 0

        actual = self.tracked(ref)
        if actual is None or new is None or actual == new:
            return actual == new
        # After a move back every later value descends from the new one, so ancestry proves nothing then.
        return is_ancestor(new, actual) and (old is None or not is_ancestor(new, old))

    def _push(self, moves: Sequence[Move], seconds: float) -> GitResult:
        leases = [f"--force-with-lease={self._hub_name(ref)}:{old or ''}" for ref, old, _ in moves]
        plain = ("-c", f"remote.{self.remote}.mirror=false", *_PLAIN)
        specs = (f"{new or ''}:{self._hub_name(ref)}" for ref, _, new in moves)
        return self._git(seconds, *plain, *_PUSH, *leases, "--", self.remote, *specs)

    def _git(self, seconds: float, *words: str, stdin: str | None = None, most: int = OUTPUT_MAX) -> GitResult:
        command, environment = self._command.whole(*words)
        directory, limits = self._handle.work_dir or self._handle.common_dir, TransferLimits(_NO_LIMIT, seconds)
        variables = environment | self._command.reaching
        return run_limited(command, variables, directory, limits, stdin or os.devnull, most)

    def _ref_locked(self, moves: Sequence[Move], reason: str) -> TransportError:
        """Return the error for refs that are locked at the hub. Other refs are not concerned."""
        refs = [ref for ref, _, _ in moves]
        lock = _LOCK_FILE.search(reason)
        message = f"the hub {self.address()} has locked {refs[0]}: {reason}"
        hints = ["work continues locally; clia hub sync publishes it when the lock is gone"]
        if lock is not None:
            hints.append(f"if no git process uses it, ask the hub's administrator to remove {lock[1]}")
        return TransportError(message, code="hub-ref-locked", hints=hints, fields={"remote": self.remote, "refs": refs})

    def unreachable(self) -> TransportError:
        """Return the error for a caller that needs the hub."""
        outage = self.outage()
        if outage is None and self._locked is not None:
            return TransportError(f"cannot fetch from the hub: {self._locked}", code="ref-locked", fields={"remote": self.remote})
        reason = outage.reason if outage else "it does not answer"
        refused = refused_transport(reason)
        if refused is not None:
            return refused
        problem = "cannot accept pushes now" if _SERVER_FAILED.search(reason) else "cannot be reached"
        message, fields = f"the hub {self.address()} {problem}: {reason}", {"remote": self.remote, "reason": reason}
        hints = ["work continues locally; clia hub sync publishes it when the hub is back"]
        error = TransportError(message, code="hub-away", hints=hints, fields=fields)
        error.retryable = True
        return error

    def _refused(self, reason: str) -> CliaError:
        if "does not support --atomic" in reason:
            hints = ["enable receive.advertiseAtomic on the server, or use another git server"]
            return GitError(f"the hub {self.address()} does not support atomic pushes: {reason}", code="hub-unfit", hints=hints)
        message, fields = f"the hub {self.address()} does not allow this: {reason}", {"remote": self.remote, "reason": reason}
        hints = ["ask its administrator to allow pushes below refs/clia, refs/notes/clia and refs/heads/agents"]
        return Denied(message, code="hub-refused", hints=hints, fields=fields)


def hub_of(git: Git) -> RemoteHub | None:
    """The hub that the repository's settings name."""
    remote = git.setting(HUB)
    if remote is None:
        return None
    if git.setting(f"remote.{remote}.url") is None:
        raise NotFound(
            f"the setting {HUB} names the remote {remote!r}, which does not exist",
            code="no-such-remote",
            hints=["clia hub set URL", f"or work without a hub: git config --unset {HUB}"],
            fields={"remote": remote},
        )
    heads = git.setting(HUB_HEADS) or BRANCHES
    if heads not in (BRANCHES, PUBLISHED_REFS):
        message = f"the setting {HUB_HEADS} must be {BRANCHES} or {PUBLISHED_REFS}, not {heads!r}"
        raise InvalidInput(message, code="invalid-setting", fields={"field": HUB_HEADS})
    seconds = git.positive_number("clia.hubSeconds") or HUB_SECONDS
    options = RemoteHubOptions(remote, heads, float(seconds), os.path.join(git.handle.common_dir, "clia", OUTAGE_FILE))
    return RemoteHub(git.handle, git.command, git.refs, options)


def _refusal(result: GitResult) -> str | None:
    """Return why the server refuses a push; None if it did not, or only because of a concurrent update."""
    if "does not support --atomic" in result.err:
        return "the receiving end does not support --atomic push"
    refusals = [text for text in _REFUSED.findall(result.out.decode("utf-8", "replace")) if "atomic push fail" not in text]
    if _SERVER_FAILED.search(result.err):
        refusals = [text for text in refusals if _UNPACKED not in text]
    refusals = [text for text in refusals if not _CONTENDED.search(text)] or _FORBIDDEN.findall(result.err)[:1]
    lines = [line.removeprefix("remote: ").strip() for line in result.err.splitlines() if line.startswith("remote: ")]
    message = " ".join([*refusals[:1], *(f"({line})" for line in lines[:3] if line)])
    return without_credentials(message) if refusals else None


def _is_contended(result: GitResult) -> bool:
    """Return whether another process held a ref, here or at the hub."""
    output = f"{result.err}\n{result.out.decode('utf-8', 'replace')}"
    return bool(result.code) and not result.late and _CONTENDED.search(output) is not None


def _reason(result: GitResult) -> str:
    if result.late:
        return "it did not answer in time"
    lines = [line for line in without_credentials(result.err).splitlines() if line.strip()]
    return _PREFIX.sub("", lines[0]).strip() if lines else f"git ended with {result.code}"


def _pause() -> None:
    # Jitter keeps machines from colliding again.
    time.sleep(_PAUSE_SECONDS * (0.5 + random.random()))  # noqa: S311  # not a secret

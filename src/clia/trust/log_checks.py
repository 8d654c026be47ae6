"""Comparing the logs of machines with the refs: nothing is missing, nothing was added.

Each log says from where to where a machine moved a ref. Taken together, the moves of a ref lead from nothing to one value, which is
where the ref must be. Machines that worked on different clones may have moved a ref from the same value; then a later move unites
both, or there is a finding.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import takewhile
from typing import NamedTuple

from clia.errors import BadSignature, GitError, NoSuchObject
from clia.trust.key_chain import MACHINE_KEY, signer_fingerprint
from clia.trust.machine_keys import machine_name
from clia.trust.machine_log import (
    LOG_END_TEXT,
    MALFORMED,
    LogEnd,
    LogEntry,
    MachineLog,
    is_prefix,
    linked_lines,
    read_linked_entry,
    read_machine_log,
)
from clia.trust.ssh_format import read_public_key
from clia.values import refs as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from clia.trust.key_chain import Enrolment, KeyChain
    from clia.trust.machine_log import LoggedMove
    from clia.trust.raw_commits import RawCommit
    from clia.trust.statements import EnrolledKey
    from clia.trust.verification import TrustChecks

_SHOWN = 12


class _SoundLog(NamedTuple):
    """The entries of one machine that count, oldest first, and the entry with which each commit was logged."""

    entries: list[LogEntry]
    covered: dict[str, LogEntry]


class LogChecks:
    """The logs of a space. ``history``: refs from before the space was signed."""

    def __init__(self, checks: TrustChecks, chain: KeyChain, history: Mapping[str, str]) -> None:
        self._checks = checks
        self._chain = chain
        self.history = dict(history)
        self._machines: dict[str, _SoundLog] = {}
        self._moves: defaultdict[str, list[tuple[str, LoggedMove]]] = defaultdict(list)
        self.moves = 0

    def check(self) -> None:
        for ref, tip in sorted(self._checks.refs.items()):
            if ref.startswith(names.LOGS):
                self._read(ref, tip)
        for enrolment in self._chain.enrolments:
            if enrolment.key.kind == MACHINE_KEY:
                self._missing_log(enrolment)
        self._check_refs()

    def entry_of(self, key: EnrolledKey, cid: str) -> LogEntry | None:
        """The entry with which the machine with this key logged a commit; None: it never did."""
        log = self._machines.get(_name_of(key))
        return None if log is None else log.covered.get(cid)

    def entries(self, key: EnrolledKey) -> list[LogEntry]:
        """The entries of the machine with this key that count, oldest first."""
        log = self._machines.get(_name_of(key))
        return [] if log is None else log.entries

    def position_of(self, entry: LogEntry) -> int:
        """The position in the chain of keys that was current at an entry."""
        return self._chain.positions.get(entry.keys or "", 0)

    def values(self) -> Iterator[tuple[str, str, bool]]:
        """Every value that a shared ref had, for a walk that may find it missing."""
        for ref, moves in sorted(self._moves.items()):
            yield from ((ref, move.new, True) for _, move in moves if move.new is not None and names.is_shared(ref))

    # Reading

    def _read(self, ref: str, tip: str) -> None:
        """Read the log of one machine as far as it is sound."""
        name = ref.removeprefix(names.LOGS)
        enrolment = next((item for item in reversed(self._chain.enrolments) if _is_of(item, name)), None)
        if enrolment is None:
            self._checks.found("unknown-machine", f"{ref} is the log of a machine that is not enrolled", ref, tip)
            return
        log = self._signed_log(ref, tip, enrolment)
        number = number_that_counts(enrolment, log)
        if number < len(log.entries):
            message = f"{ref} continues after the key of {name} was revoked"
            self._checks.found("revoked-key", message, ref, log.entries[number].commit)
        self._machines[name] = sound = _SoundLog([], {})
        position = -1
        for count, entry in enumerate(log.entries[:number]):
            current = self._chain.positions.get(entry.keys or "", -1)
            if current < position:
                message = f"entry {count} of {ref} names older keys than the entry before"
                self._checks.found("backdated-log", message, ref, entry.commit)
                return
            position = current
            end = self._checks.ends.get(name)
            self._add(name, sound, entry, is_before=end is not None and len(sound.entries) < end.length)

    def _signed_log(self, ref: str, tip: str, enrolment: Enrolment) -> MachineLog:
        """The log as far as the machine signed it; what is wrong with it is a finding."""
        name = ref.removeprefix(names.LOGS)
        commit = self._checks.commit(tip)
        if commit is not None and commit.log is None:
            return self._linked_log(ref, tip, enrolment)
        if commit is not None and self._is_signed(ref, commit, enrolment):
            try:
                log = read_machine_log(self._checks.objects, name, tip)
                log.entries  # noqa: B018  # each is read
            except NoSuchObject as err:
                self._checks.found("missing-commit", f"a part of {ref} cannot be read: {err.message}", ref)
            except GitError as err:
                code = err.code if err.code == MALFORMED else "damaged-commit"
                self._checks.found(code, f"{ref} cannot be read: {err.message}", ref)
            else:
                if not commit.parents:
                    return log
                self._checks.found(MALFORMED, f"{ref} has another form than clia gives a log", ref)
        return MachineLog(name, [])

    def _linked_log(self, ref: str, tip: str, enrolment: Enrolment) -> MachineLog:
        """A log of an earlier version, of which each entry is signed."""
        name = ref.removeprefix(names.LOGS)
        sound = list(takewhile(lambda commit: self._is_signed(ref, commit, enrolment), self._first_parents(tip)))
        for number, commit in enumerate(sound):
            try:
                read_linked_entry(commit)
            except GitError:
                self._checks.found(MALFORMED, f"an entry of {ref} cannot be read", ref, commit.cid)
                sound = sound[:number]
                break
        return MachineLog(name, linked_lines(name, sound))

    def _first_parents(self, tip: str) -> list[RawCommit]:
        commits: list[RawCommit] = []
        cid: str | None = tip
        while cid is not None:
            commit = self._checks.commit(cid)
            if commit is None:
                break
            commits.append(commit)
            cid = commit.parents[0] if commit.parents else None
        return commits[::-1]

    def _is_signed(self, ref: str, commit: RawCommit, enrolment: Enrolment) -> bool:
        """Whether a commit is signed by the machine; a finding, if not."""
        try:
            signer = signer_fingerprint(commit)
        except BadSignature as err:
            self._checks.found("forged-log", f"what {ref} has does not count: {err.message}", ref, commit.cid)
            return False
        if signer != enrolment.key.fingerprint:
            self._checks.found("forged-log", f"what {ref} has is signed with the key of another machine", ref, commit.cid)
            return False
        return True

    def _add(self, name: str, log: _SoundLog, entry: LogEntry, *, is_before: bool) -> None:
        """Add an entry; ``is_before``: it was verified before, and so was what it leads to."""
        log.entries.append(entry)
        self.moves += len(entry.moves)
        visited = _Visited(log.covered)
        for move in entry.moves:
            self._moves[move.ref].append((name, move))
            if move.new is not None and is_before:
                self._checks.before.add(move.new)
            elif move.new is not None:
                for commit in self._checks.walk(move.ref, move.new, visited, quiet=True):
                    log.covered[commit.cid] = entry
        if entry.commit is not None:
            log.covered.setdefault(entry.commit, entry)

    def _missing_log(self, enrolment: Enrolment) -> None:
        name = _name_of(enrolment.key)
        is_root = enrolment.since == 0
        if (is_root or enrolment.log) and name not in self._machines:
            self._checks.found("missing-log", f"the log of {name} is missing: {names.log(name)}", names.log(name))

    # Comparing

    def _check_refs(self) -> None:
        refs = {ref: cid for ref, cid in self._checks.refs.items() if names.is_shared(ref)}
        for ref in sorted({*refs, *self._moves, *self.history}):
            if not names.is_shared(ref):
                continue  # a branch of people, which they move themselves
            moves, present = self._moves.get(ref, []), refs.get(ref)
            initial = self.history.get(ref)
            if not moves and initial is None:
                self._checks.found("unlogged-ref", f"{ref} is in no log", ref, present)
            else:
                self._check_ref(ref, present, initial, moves)

    def _check_ref(self, ref: str, present: str | None, initial: str | None, moves: list[tuple[str, LoggedMove]]) -> None:
        """Compare one ref with its logged moves."""
        for (name, move), count in Counter(moves).items():
            if count > 1 and sum(other.new == move.old for other_name, other in moves if other_name == name) < count - 1:
                self._checks.found("repeated-move", f"the log of {name} has a move of {ref} {count} times", ref, move.new)
        came, left = Counter([initial]), Counter[str | None]()
        for _, move in moves:
            came[move.new] += 1
            left[move.old] += 1
        for _, move in moves:
            if move.old not in came and move.old is not None:
                message = f"the log lacks the move of {ref} to {move.old[:_SHOWN]}"
                self._checks.found("log-gap", message, ref, move.old)
        ends = [value for value in came if came[value] > left[value]]
        if present in ends:
            ends = [value for value in ends if value not in (present, None)]
        elif present is None:
            lost = next((value for value in ends if value is not None), None)
            self._checks.found("missing-ref", f"{ref} is missing; its last logged value is {lost}", ref, lost)
            return
        elif present in came:
            newest = next((value for value in ends if value is not None), None)
            self._checks.found("rewound-ref", f"{ref} went back to {present}; the log has {newest}", ref, newest or present)
            return
        else:
            self._checks.found("unlogged-move", f"{ref} was moved to {present} without an entry in a log", ref, present)
            return
        for value in ends:
            if value is not None and present is not None and not self._contains(ref, present, value):
                self._checks.found("rewound-ref", f"{ref} lacks {value}, which a machine logged", ref, value)

    def _contains(self, ref: str, tip: str, cid: str) -> bool:
        return any(commit.cid == cid for commit in self._checks.walk(ref, tip, set(), quiet=True, whole=True))


class _Visited(set[str]):
    """The commits that one machine has logged, as the set that a walk fills: what it adds for one entry counts only then."""

    def __init__(self, covered: Mapping[str, LogEntry]) -> None:
        super().__init__()
        self._covered = covered

    def __contains__(self, cid: object) -> bool:
        return cid in self._covered or super().__contains__(cid)


def number_that_counts(enrolment: Enrolment, log: MachineLog) -> int:
    """The number of entries that count: of a machine whose key was revoked or replaced, those until then."""
    if enrolment.until is None:
        return len(log.entries)
    match = LOG_END_TEXT.fullmatch(enrolment.log or "")
    if match is not None:
        end = LogEnd(log.machine, int(match[1]), match[2])
        return end.length if is_prefix(end, log) else 0
    return next((number for number, entry in enumerate(log.entries, 1) if entry.commit == enrolment.log and entry.commit), 0)


def _name_of(key: EnrolledKey) -> str:
    return machine_name(read_public_key(key.public))


def _is_of(enrolment: Enrolment, name: str) -> bool:
    return enrolment.key.kind == MACHINE_KEY and _name_of(enrolment.key) == name

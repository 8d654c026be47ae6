"""Checking a record from a plain clone: what is signed, by whom, and whether anything is missing.

It reads objects and refs only: no store, none of the operator's configuration. ``refs/replace``, grafts and the boundary of a
shallow clone are ignored and reported.

Invariant: it changes nothing. Every commit of clia that is not signed by a key of the chain of keys is a finding, unless the root
lists it as older than the chain. Every shared ref is where the logs end.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from contextlib import suppress
from typing import NamedTuple

from clia.errors import BadSignature, CliaError, NoSuchObject
from clia.git.tree_changes import changed_paths
from clia.trust.acts import DECISION_TYPE, ActChecks
from clia.trust.agent_key_checks import AgentKeyChecks
from clia.trust.checkpoints.checks import CheckpointChecks, CheckpointState, EndorsedHistory, read_checkpoint_name
from clia.trust.enrolling import HISTORY
from clia.trust.key_chain import MACHINE_KEY, read_key_chain, signer_fingerprint
from clia.trust.log_checks import LogChecks
from clia.trust.peer_commits import FOREIGN_CODES, PeerCommits
from clia.trust.raw_commits import LOG_HEADER, is_of_clia, raw_commit
from clia.trust.signature_workers import verified_in_parallel
from clia.trust.ssh_signatures import GIT, read_verified_signature, verify_signature
from clia.trust.statements import ATTESTED
from clia.trust.verified_cache import VerifiedCache
from clia.values import refs as names
from clia.values.commit_messages import PREFIX
from clia.verbs import Count  # noqa: TC001  # the annotations of records are read at run time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from clia.git.objects import GitObjects
    from clia.git.records import TreeEntry
    from clia.git.repository import Git
    from clia.trust.key_chain import Acceptance, KeyChain
    from clia.trust.machine_log import LogEnd
    from clia.trust.raw_commits import RawCommit

SIGNED, PARTLY, UNSIGNED_SPACE = "signed", "partly signed", "unsigned"
SPACE_TRAILER = "Clia-Space"
_PREFIXES = (names.HEADS, "refs/clia/", names.NOTES)
_OTHERS = (names.LOGS, names.CHECKPOINTS, names.COSIGNATURES)
_NO_HISTORY = (names.CHECKPOINTS, names.COSIGNATURES)
"""Refs whose commits are judged by their contents."""
_MAY_REPEAT = ("Clia-Kept", "Clia-Decision", "Clia-Proof")


class TrustFinding(NamedTuple):
    """A part of the record that does not verify."""

    code: str  # one of the codes of findings
    message: str  # one sentence for a person
    ref: str | None = None  # the ref that it is about
    cid: str | None = None  # the object that it is about


class AcceptedFinding(NamedTuple):
    """A finding that a person accepted."""

    finding: TrustFinding  # the finding
    by: str  # who accepted it
    reason: str  # why
    strength: str  # how strongly the acceptance is proved


class SignerCount(NamedTuple):
    """What one key signed."""

    key: str  # its fingerprint
    owner: str  # the machine or agent
    commits: Count  # commits that it signed


class TrustReport(NamedTuple):
    """The result of checking signatures and logs."""

    space: str | None  # the id of the space; null: there is none
    state: str  # signed, partly signed or unsigned
    root: str | None  # the fingerprint of the first key; null: there are no keys
    commits: Count  # commits of clia that were checked
    signers: tuple[SignerCount, ...]  # who signed them
    unsigned: Count  # commits from before the space was signed
    strengths: dict[str, Count]  # decisions, by the strength of their proofs
    acts: dict[str, Count]  # other acts of people, such as adoptions, by the strength of their proofs
    moves: Count  # logged moves of refs
    findings: tuple[TrustFinding, ...]  # problems
    accepted: tuple[AcceptedFinding, ...]  # problems that people accepted
    ignored: tuple[str, ...]  # settings of the clone that were ignored
    checkpoints: CheckpointState  # checkpoints, and how fresh the record is
    endorsed: tuple[EndorsedHistory, ...]  # who vouches for the unsigned history
    of_peers: Count = 0  # commits of other spaces that agents build on; their own spaces show who signed them

    @property
    def clean(self) -> bool:
        return self.state != UNSIGNED_SPACE and not self.findings


class TrustOptions(NamedTuple):
    """What a check asks for, in addition to what the policy of the space does."""

    root: str | None = None  # the fingerprint that the space must have
    strict: bool = False  # people's own proofs, a cosigned checkpoint, and nothing unsigned that nobody endorsed
    since: str | None = None  # a checkpoint that the record must contain; only what came after it is checked
    witnesses: tuple[str, ...] = ()  # keys of witnesses that count in addition to the enrolled ones
    now: int | None = None  # the time, in seconds since the epoch
    cache: str | None = None  # the directory of the account's cache of what it verified before


def verify_trust(
    git: Git,
    *,
    root: str | None = None,
    strict: bool = False,
    since: str | None = None,
    witnesses: Sequence[str] = (),
    now: int | None = None,
    cache: str | None = None,
) -> TrustReport:
    """Check everything that a clone has. ``root``: the fingerprint that the space must have. ``strict``: decisions need a person's
    own proof, a trusted witness must have cosigned a checkpoint, and nothing may be unsigned that no person endorsed.

    ``since``: a checkpoint that the record must contain; what came before it is not checked again. ``witnesses``: keys of witnesses
    that count in addition to the enrolled ones. ``now``: the time, for the age of the newest cosigned checkpoint. ``cache``: the
    directory where this account keeps what it verified before.
    """
    options = TrustOptions(root, strict, since, tuple(witnesses), now, cache)
    if cache is None:
        return TrustChecks(git).report(options)
    from clia.trust.repeated_checks import repeated_report  # it builds on this module

    return repeated_report(git, options)


class TrustChecks:
    """One run of the checks."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self._commits: dict[str, RawCommit | None] = {}
        self.refs = self._shared_refs()
        self.findings: list[TrustFinding] = []
        self.ignored: list[str] = []
        self.signers: Counter[tuple[str, str]] = Counter()
        self.unsigned = 0
        self._agent_keys = AgentKeyChecks(self)
        self._peers = PeerCommits(self, (cid for ref, cid in git.refs.under(names.REMOTES) if "/agents/" in ref))
        self._checked: set[str] = set()  # the commits that were visited
        self._old: set[str] = set()  # the commits from before the chain of keys
        self.before: set[str] = set()  # values of refs that ``since`` leaves out
        self.ends: Mapping[str, LogEnd] = {}  # of the logs at ``since``
        self._valid: set[str] = set()  # commits whose signature is valid

    def found(self, code: str, message: str, ref: str | None = None, cid: str | None = None) -> None:
        self.findings.append(TrustFinding(code, message, ref, cid))

    def commit(self, cid: str, *, quiet: bool = False) -> RawCommit | None:
        """A commit; None if it is missing or damaged, which is a finding unless the record may lack it (``quiet``)."""
        if self._commits.get(cid) is None:
            try:
                self._commits[cid] = raw_commit(cid, self._git.objects.raw(cid))
            except (CliaError, ValueError) as err:
                self._commits[cid] = None
                if quiet:
                    return None
                missing = isinstance(err, NoSuchObject)
                hidden = " (a promisor remote is configured to supply it)" if missing and self._is_partial() else ""
                code = "missing-commit" if missing else "damaged-commit"
                self.found(code, f"the commit {cid} of the record cannot be read{hidden}", cid=cid)
        return self._commits[cid]

    @property
    def objects(self) -> GitObjects:
        return self._git.objects

    def blob(self, cid: str) -> bytes:
        """The content of a blob."""
        return self._git.objects.blob(cid)

    def entries(self, tree: str) -> dict[str, TreeEntry]:
        """Every file of a tree."""
        return self._git.objects.entries(tree)

    def changed_paths(self, before: str | None, after: str) -> tuple[str, ...] | None:
        """The paths that differ between two trees; None if a tree is missing."""
        try:
            return tuple(changed_paths(self._git.objects, before, after))
        except CliaError:
            return None

    def notes(self, ref: str) -> dict[str, str]:
        """The blob that is bound to each commit."""
        try:
            return self._git.notes.all(ref)
        except CliaError:
            return {}

    def read_space(self) -> str | None:
        """The id of the space; None if there is none."""
        return self._space()

    def key_chain(self) -> KeyChain:
        """The chain of keys of the space."""
        return self._chain(self._space())

    def report(self, options: TrustOptions) -> TrustReport:
        since = None if options.since is None else read_checkpoint_name(options.since)
        self._surroundings()
        space = self._space()
        chain = self._chain(space)
        logs = LogChecks(self, chain, self._history(chain))
        checkpoints = CheckpointChecks(self, chain, self._git, options.witnesses)
        checkpoints.check(since)
        self.ends = {} if since is None else checkpoints.ends_at(since)
        if chain.commits:
            logs.check()
            self._check_growth(chain, logs)
        cached = self._recall(options.cache, space)
        acts = ActChecks(self, chain, logs, strict=options.strict)
        checked = self._all_commits(chain, logs, acts)
        checked += self._hidden_decisions(chain, logs, acts)
        acts.check_decisions()
        acts.check_chains()
        endorsed = checkpoints.endorsed()
        if options.cache is not None and not self._valid <= cached:
            VerifiedCache(options.cache, space or "").keep_commits(self._valid | cached)
        self._check_root(chain, options.root)
        if options.strict:
            self._check_strictly(checkpoints, endorsed)
        of_peers = self._set_peers_aside()
        findings, accepted = _accepted(self.findings, chain.accepted)
        state = UNSIGNED_SPACE if chain.root is None else PARTLY if self.unsigned else SIGNED
        signers = tuple(SignerCount(*key, count) for key, count in sorted(self.signers.items(), key=lambda item: item[0][::-1]))
        fingerprint = chain.root.fingerprint if chain.root else None
        numbers = [dict(sorted(counter.items())) for counter in (acts.strengths, acts.acts)]
        return TrustReport(
            *(space, state, fingerprint, checked, signers, self.unsigned, numbers[0], numbers[1], logs.moves),
            *(findings, accepted, tuple(self.ignored), checkpoints.state(options.now), tuple(endorsed), of_peers),
        )

    def _recall(self, cache: str | None, space: str | None) -> set[str]:
        """Fill in which signatures are valid: from the cache, and by several processes. Returns those of the cache."""
        cached = set() if cache is None else VerifiedCache(cache, space or "").commits()
        signed = [cid for cid, commit in self._commits.items() if commit is not None and commit.signature is not None]
        self._valid = cached.intersection(signed)
        remaining = [cid for cid in signed if cid not in cached]
        self._valid |= verified_in_parallel(self._git.handle.path, remaining)
        return cached

    def _check_root(self, chain: KeyChain, root: str | None) -> None:
        if chain.root is None and any(names.LOGS in ref for ref in self.refs):
            self.found("keys-missing", f"there are logs of machines, but no chain of keys: {names.KEYS}", names.KEYS)
        elif chain.root is None and any(commit.signature for commit in self._commits.values() if commit):
            self.found("keys-missing", f"commits are signed, but there is no chain of keys: {names.KEYS}", names.KEYS)
        if root is not None and (chain.root is None or chain.root.fingerprint != root):
            actual = chain.root.fingerprint if chain.root else "none"
            self.found("wrong-root", f"the root of the space is {actual}, not {root}", names.KEYS)

    def _check_strictly(self, checkpoints: CheckpointChecks, endorsed: Sequence[EndorsedHistory]) -> None:
        if self.unsigned and all(item.strength == ATTESTED for item in endorsed):
            message = f"{self.unsigned} commits are older than the chain of keys and not signed, and no person endorsed them"
            self.found("unsigned-history", message, names.KEYS)
        if not checkpoints.is_cosigned():
            self.found(
                "no-cosigned-checkpoint", "no trusted witness cosigned a checkpoint, so the record may be old", names.CHECKPOINTS
            )

    # What is in the clone

    def _shared_refs(self) -> dict[str, str]:
        refs = dict(item for prefix in _PREFIXES for item in self._git.refs.under(prefix))
        for ref, cid in self._git.refs.under(names.PUBLISHED):  # where a hub has the heads of agents
            refs.setdefault(names.HEADS + ref.removeprefix(names.PUBLISHED), cid)
        return {ref: cid for ref, cid in refs.items() if names.is_shared(ref) or ref.startswith(_OTHERS)}

    def _is_partial(self) -> bool:
        return self._git.handle.is_partial()

    def _surroundings(self) -> None:
        """Report what makes git show another history than the objects have."""
        for ref, cid in self._git.refs.under("refs/replace/"):
            original = ref.rpartition("/")[2]
            self.found("replaced-object", f"git shows {cid} in the place of {original}; the original was checked", ref, original)
        for name, code in (("info/grafts", "graft"), ("shallow", "shallow")):
            path = os.path.join(self._git.handle.common_dir, *name.split("/"))
            with suppress(OSError):
                if os.path.getsize(path):
                    self.ignored.append(f"{name}: git hides parents of commits; they were looked for")
                    if code == "graft":
                        self.found("graft", "git shows other parents of commits than they have (info/grafts)", cid=None)
        if self._is_partial():
            self.ignored.append("a promisor remote: objects that it would supply count as missing")

    def _space(self) -> str | None:
        tip = self.refs.get(names.SPACE)
        commit = None if tip is None else self.commit(tip)
        if commit is None:
            self.found("no-space", f"this clone has no space: {names.SPACE} is missing", names.SPACE)
            return None
        with suppress(ValueError, TypeError, KeyError):
            return str(json.loads(commit.trailer(SPACE_TRAILER) or "")["id"])
        self.found("no-space", f"{names.SPACE} does not name a space", names.SPACE, tip)
        return None

    def _chain(self, space: str | None) -> KeyChain:
        tip = self.refs.get(names.KEYS)

        def read(cid: str) -> RawCommit:
            commit = self.commit(cid)
            if commit is None:
                raise NoSuchObject(f"{cid} is missing", fields={"cid": cid})
            return commit

        try:
            chain = read_key_chain(read, tip, space or "")
        except CliaError:  # the commit that is missing is a finding
            return read_key_chain(read, None, space or "")
        if chain.problem is not None:
            self.found(
                chain.problem.code, f"the chain of keys is broken: {chain.problem.message}", names.KEYS, chain.problem.commit
            )
        return chain

    def _history(self, chain: KeyChain) -> dict[str, str]:
        """The refs from before the space was signed, as its root lists them."""
        if not chain.root_tree:
            return {}
        try:
            entry = self._git.objects.entry(chain.root_tree, HISTORY)
            text = "" if entry is None else self._git.objects.blob(entry.cid).decode("utf-8", "replace")
        except CliaError:
            self.found("missing-commit", "the list of refs from before the space was signed is missing", names.KEYS)
            return {}
        return {ref: cid for cid, _, ref in (line.partition(" ") for line in text.splitlines())}

    # Commits

    def walk(self, ref: str, start: str, visited: set[str], *, quiet: bool = False, whole: bool = False) -> Iterator[RawCommit]:
        """The commits of clia that are reachable from a value of a ref, without those that were visited.

        ``whole``: also those that ``since`` leaves out.
        """
        everything = not is_branch(ref)
        queue = [start]
        while queue:
            cid = queue.pop()
            if cid in visited or (cid in self.before and not whole):
                continue
            visited.add(cid)
            commit = self.commit(cid, quiet=quiet)
            if commit is not None and (everything or is_of_clia(commit)):
                yield commit
                queue += commit.parents

    def _all_commits(self, chain: KeyChain, logs: LogChecks, acts: ActChecks) -> int:
        """Check each commit of clia once; returns their number."""
        visited, old = self._checked, self._old
        for ref, cid in logs.history.items():
            for commit in self.walk(ref, cid, old):
                self.unsigned += commit.signature is None
        count = 0
        # What was logged is checked, too: commits that a program made itself may be in between.
        for ref, tip, quiet in (*((*item, False) for item in self._histories()), *logs.values()):
            for commit in self.walk(ref, tip, visited, quiet=quiet):
                count += 1
                self._check(commit, ref, chain, logs, acts, old)
        return count

    def _hidden_decisions(self, chain: KeyChain, logs: LogChecks, acts: ActChecks) -> int:
        """Check decisions of agents' branches that are below commits of people; returns their number."""
        older = {commit.cid for commit in self._reachable(logs.history.values(), set())}
        tips = [cid for ref, cid in self.refs.items() if ref.startswith((names.HEADS, names.ARCHIVE))]
        decisions = (commit for commit in self._reachable(tips, older) if commit.trailer("Clia-Type") == DECISION_TYPE)
        hidden = [commit for commit in decisions if commit.cid not in self._checked]
        for commit in hidden:
            self._check(commit, names.HEADS + (commit.trailer("Clia-Agent") or ""), chain, logs, acts, older)
        return len(hidden)

    def _reachable(self, tips: Iterable[str], visited: AbstractSet[str]) -> Iterator[RawCommit]:
        """Every commit that is reachable from some and present, without those that were visited."""
        queue, passed = list(tips), set(visited)
        while queue:
            cid = queue.pop()
            commit = None if cid in passed or cid in self.before else self.commit(cid, quiet=True)
            passed.add(cid)
            if commit is not None:
                yield commit
                queue += commit.parents

    def _check_growth(self, chain: KeyChain, logs: LogChecks) -> None:
        """The chain of keys only grows: it contains every value that it had."""
        for ref, value, _ in logs.values():
            if ref == names.KEYS and value not in chain.positions:
                self.found("rewound-ref", f"{ref} lacks {value}, which a machine logged", ref, value)

    def _set_peers_aside(self) -> int:
        """Drop the findings about commits of other spaces; returns the number of these commits."""
        if not any(finding.code in FOREIGN_CODES for finding in self.findings):
            return 0
        commits = self._peers.all()
        foreign = [finding for finding in self.findings if finding.code in FOREIGN_CODES and finding.cid in commits]
        self.findings = [finding for finding in self.findings if finding not in foreign]
        return len({finding.cid for finding in foreign})

    def _histories(self) -> list[tuple[str, str]]:
        return sorted(item for item in self.refs.items() if not item[0].startswith(_NO_HISTORY))

    def _check(  # one row of the checks
        self, commit: RawCommit, ref: str, chain: KeyChain, logs: LogChecks, acts: ActChecks, old: set[str]
    ) -> None:
        if commit.log is not None and ref.startswith(names.LOGS):  # it was checked with its log
            self._count_signer(commit, chain)
            return
        repeated = commit.repeated(PREFIX, _MAY_REPEAT)
        if repeated is not None:
            self.found("repeated-trailer", f"{commit.cid} has the trailer {repeated} more than once", ref, commit.cid)
        if commit.signature is None:
            if commit.cid not in old and chain.root is not None:
                self.found(
                    "unsigned-commit", f"{commit.cid} ({commit.text.partition(chr(10))[0][:60]}) is not signed", ref, commit.cid
                )
            return
        if chain.root is None:
            return
        if chain.counts(commit.cid):  # it was judged by the entries before it
            self._count_signer(commit, chain)
            acts.check(commit, ref, chain.positions[commit.cid])  # it may claim to be a decision, too
            return
        try:
            position = self._signer_position(commit, chain, logs)
        except BadSignature as err:
            self.found(err.code, f"{commit.cid}: {err.message}", ref, commit.cid)
            return
        self._peers.note(commit)
        acts.check(commit, ref, position)

    def _count_signer(self, commit: RawCommit, chain: KeyChain) -> None:
        with suppress(BadSignature):
            key = signer_fingerprint(commit)
            enrolment = chain.enrolment_of(key)
            self.signers[key, enrolment.key.owner if enrolment else ""] += 1

    def _signer_position(self, commit: RawCommit, chain: KeyChain, logs: LogChecks) -> int:
        """The position in the chain of keys as of which a commit counts; ``BadSignature`` if its signer may not sign it."""
        strange = LOG_HEADER if commit.log is not None else commit.strange
        if strange is not None:
            raise BadSignature(f"it has a header that git does not write: {strange[:60]!r}", code="strange-commit")
        if commit.cid in self._valid:
            signature = read_verified_signature(str(commit.signature), GIT)
        else:
            signature = verify_signature(str(commit.signature), commit.signed, GIT)
            self._valid.add(commit.cid)
        certificate = signature.certificate
        fingerprint = signature.key.fingerprint if certificate is None else certificate.issuer.fingerprint
        enrolment = chain.enrolment_of(fingerprint)
        if enrolment is None or enrolment.key.kind != MACHINE_KEY:
            raise BadSignature(f"it is signed with {fingerprint}, which is not the key of an enrolled machine", code="unknown-key")
        entry = logs.entry_of(enrolment.key, commit.cid)
        if entry is None and enrolment.until is not None:
            message = f"it is signed with {fingerprint}, which was revoked, and was not logged before"
            raise BadSignature(message, code="revoked-key")
        if entry is None and commit.trailer("Clia-Log") is None:
            self.found("unlogged-commit", f"{commit.cid} is in no log of the machine that signed it", cid=commit.cid)
        owner = enrolment.key.owner
        if certificate is not None:
            owner = self._agent_keys.check(commit, signature, chain, entry, logs)
        self.signers[signature.key.fingerprint, owner] += 1
        return chain.position if entry is None else max(logs.position_of(entry), enrolment.since)


def is_branch(ref: str) -> bool:
    """Whether the history of a ref continues in commits of people."""
    return ref.startswith((names.HEADS, names.ARCHIVE, names.BRANCHES))


def _accepted(
    findings: Iterable[TrustFinding], acceptances: Iterable[Acceptance]
) -> tuple[tuple[TrustFinding, ...], tuple[AcceptedFinding, ...]]:
    """Separate the findings that a person accepted."""
    remaining, accepted = [], []
    by_object = {(acceptance.finding, acceptance.object): acceptance for acceptance in acceptances}
    for finding in sorted(set(findings), key=str):
        labels = by_object.get((finding.code, finding.cid or "")) or by_object.get((finding.code, finding.ref or ""))
        if labels is None:
            remaining.append(finding)
        else:
            accepted.append(AcceptedFinding(finding, labels.by, labels.reason, labels.strength))
    return tuple(remaining), tuple(accepted)

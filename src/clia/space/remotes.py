"""Adoption of refs from other clones, and publishing to them.

Invariant: nothing that exists only here is lost or overwritten. Fetched refs land below refs of the remote. A ref is adopted by
compare-and-swap if it is new or a fast-forward; chains without order are united; a diverged head, and history purged here, is
left. The caller holds the ref's lock. Nothing is published unless asked.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from clia.errors import GitError, InvalidInput, NoSuchObject, NotFound, StaleRef
from clia.space.attribution.notes import ATTRIBUTION_LOCK, merge_notes
from clia.space.behaviour_chains import unite as unite_behaviours
from clia.space.events import PURGED, event_of, read_events, revoked_by, texts_in, unite
from clia.space.type_registry import OBJECTS_LOCK, TYPES_LOCK
from clia.trust.machine_log import continues as log_continues
from clia.values import refs as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from clia.git.porcelain import GitPorcelain
    from clia.git.records import Pushed, TreeEntry
    from clia.space.core import Core
    from clia.space.envelope import Envelope
    from clia.trust.checkpoints.exchange import CheckpointExchange

NEW, AHEAD, UNITED, DIVERGED, REFUSED, UNSOUND = "new", "ahead", "united", "diverged", "purged", "unsound"
KEYS_LOCK, CAPABILITIES_LOCK, STATEMENTS_LOCK = "@keys", "@capabilities", names.STATEMENTS_LOCK
_LOCKS = {
    names.SPACE: "@adopt",
    names.TYPES: TYPES_LOCK,
    names.OBJECTS: OBJECTS_LOCK,
    names.GUARDRAILS: names.GUARDRAILS_LOCK,
    names.KEYS: KEYS_LOCK,
    names.CAPABILITIES: CAPABILITIES_LOCK,
    names.STATEMENTS: STATEMENTS_LOCK,
    names.ATTRIBUTION: ATTRIBUTION_LOCK,
}
"""Locks of the refs that belong to no agent."""
_FEW = 100
AS_BRANCHES, AS_PUBLISHED = "branches", "published"


def lock_of(ref: str) -> str:
    """The lock for a shared ref: its agent's, or its own."""
    if ref.startswith(names.BEHAVIOURS):
        return names.behaviour_lock(ref.removeprefix(names.BEHAVIOURS))
    return _LOCKS.get(ref) or ref.rpartition("/")[2]


def owner_of(lock: str) -> str:
    """The owner of a lock's refs: an agent's name, or the one ref that the lock protects."""
    chain = lock.removeprefix(names.behaviour_lock(""))
    if chain != lock:
        return names.behaviour(chain)
    return next((ref for ref, other in _LOCKS.items() if other == lock), lock)


def title_of(owner: str) -> str:
    """The owner as shown to people. Refs are in parentheses, so they cannot be taken for agents."""
    return owner if names.is_name(owner) else f"({owner.removeprefix('refs/clia/').removeprefix(names.NOTES)})"


class Adoption:
    def __init__(self, core: Core) -> None:
        self._core = core

    def is_sound(self, ref: str, cid: str) -> bool:
        """Whether a commit is valid at this ref: the capabilities ref may hold capabilities only."""
        if ref != names.CAPABILITIES:
            return True
        paths = self._core.objects.entries(self._core.objects.commit(cid).tree)
        return all(path.endswith(".json") and names.is_id(path.removesuffix(".json")) for path in paths)

    def settle(self, ref: str, ours: str | None, theirs: str) -> str | None:
        """Adopt another clone's value of a ref. Returns the outcome, or None if ours already contains it."""
        core = self._core
        if ref.startswith(names.TRACES) and self.was_purged(ref, theirs):
            return REFUSED
        if ours is None and ref.startswith(names.HEADS):
            return self._settle_head(ref.removeprefix(names.HEADS), theirs)
        if ours is None or self.continues(ref, theirs, ours):
            if ref.startswith(names.HEADS) and core.refs.followed_by(ref) is not None:
                return DIVERGED  # it is checked out
            core.refs.move(ref, ours, theirs, "clia: adopt")
            return NEW if ours is None else AHEAD
        if self.continues(ref, ours, theirs):
            return None
        if ref.startswith(names.NOTES):
            core.notes.unite(ref, theirs, core.person_stamp(), merge_notes if ref == names.ATTRIBUTION else None)
            return UNITED
        if ref.startswith(names.BEHAVIOURS):
            return UNITED if unite_behaviours(core, ref, ours, theirs) else DIVERGED
        if ref == names.OBJECTS:
            self._unite_files(ref, ours, theirs)
            return UNITED
        if ref == names.CAPABILITIES:
            self._unite_grants(ours, theirs)
            return UNITED
        if ref in (names.TYPES, names.GUARDRAILS, names.STATEMENTS) or ref.startswith(names.EVENTS):
            unite(core, ref, theirs)
            return UNITED
        return DIVERGED

    def continues(self, ref: str, new: str, old: str) -> bool:
        """Whether one value of a ref contains another."""
        if ref.startswith(names.LOGS):
            return log_continues(self._core.objects, ref.removeprefix(names.LOGS), new, old)
        return self._core.graph.descends(new, old)

    def _settle_head(self, name: str, theirs: str) -> str | None:
        """Adopt the head of an agent that is not at work here; it may be archived."""
        core = self._core
        archived = core.refs.get(names.archived(name))
        if archived is not None:
            return None if core.graph.descends(archived, theirs) else DIVERGED
        if core.clone is None:
            core.mark_foreign(name)  # before anyone can see it and work on it; a shared store has no foreign agents
        core.refs.move(names.head(name), None, theirs, "clia: adopt")
        return NEW

    def carry_notes(self, ref: str, notes: Mapping[str, str]) -> None:
        """Bind the notes of another history that ours lacks."""
        core = self._core
        ours = core.notes.all(ref)
        for commit, blob in sorted(notes.items()):
            if commit not in ours:
                core.notes.bind(ref, commit, blob, core.person_stamp(), f"carry over: note of {commit}\n")

    def was_purged(self, ref: str, theirs: str) -> bool:
        """Whether a history contains what was purged from it here."""
        core = self._core
        for event in read_events(core, core.refs.get(names.events(ref.removeprefix(names.TRACES)))):
            for cid in texts_in(event.body, PURGED, "gone") if event.body.get("ref") == ref else ():
                with suppress(GitError, NoSuchObject):
                    if names.is_id(cid) and core.contains(theirs, cid):
                        return True
        return False

    def _unite_files(self, ref: str, ours: str, theirs: str) -> None:
        """Unite two trees of objects. They are content-addressed, so they never conflict."""
        core = self._core
        our_entries, their_entries = (core.objects.entries(core.objects.commit(cid).tree) for cid in (ours, theirs))
        new = {path: entry for path, entry in their_entries.items() if path not in our_entries}
        self._unite(ref, ours, theirs, new, "objects")

    def _unite(self, ref: str, ours: str, theirs: str, changes: Mapping[str, TreeEntry | None], kind: str) -> None:
        """Unite two commits: our tree with some changes."""
        core = self._core
        by, tree = core.person_stamp(), core.objects.update_tree(core.objects.commit(ours).tree, changes)
        both = core.objects.write_commit(tree, [ours, theirs], by, by, f"{kind.capitalize()} of two clones united by clia\n")
        core.refs.move(ref, ours, both, f"clia: unite {kind}")

    def _unite_grants(self, ours: str, theirs: str) -> None:
        """Unite two sets of grants, without those that either clone revoked."""
        core = self._core
        our_entries, their_entries = (core.objects.entries(core.objects.commit(cid).tree) for cid in (ours, theirs))
        events = (event_of(commit) or {} for commit in core.graph.walk([ours, theirs]))
        revoked = {f"{cid}.json" for body in events for cid in revoked_by(body)}
        new = {path: entry for path, entry in their_entries.items() if path not in our_entries and path not in revoked}
        self._unite(names.CAPABILITIES, ours, theirs, {**new, **dict.fromkeys(our_entries.keys() & revoked)}, "capabilities")


class Adopted(NamedTuple):
    """The outcome for a ref of another clone. Refs that ``diverged`` or were ``purged`` here are left alone."""

    ref: str  # the ref
    what: str  # new, ahead, united, diverged or purged
    cid: str  # the other clone's commit


def fetch_rules(remote: str) -> list[str]:
    """The refspecs that fetch a space's refs into refs of the remote."""
    return [f"+{source}*:{names.TRACKING}{remote}/{kind}*" for kind, source in names.KINDS]


class _PushTarget(NamedTuple):
    """The repository that pushes to a remote go to. It may be another one than fetches come from."""

    remote: str
    source: str  # what git fetches from
    place: str  # of its tracking refs and of what it has shown: the name of the remote, or one of its own

    @classmethod
    def of(cls, porcelain: GitPorcelain, remote: str) -> _PushTarget:
        address = porcelain.push_address(remote)
        return cls(remote, remote, remote) if address is None else cls(remote, address, f"{remote}.push")


class RemoteExchange:
    def __init__(
        self,
        core: Core,
        envelope: Envelope,
        porcelain: GitPorcelain,
        setting: Callable[[str], str | None] = lambda _: None,
        own_logs: Callable[[], list[str]] = list,
        checkpoints: Callable[[], CheckpointExchange] | None = None,
    ) -> None:
        """``setting`` reads git's configuration; ``own_logs`` returns the logs that this clone writes; ``checkpoints`` exchanges
        the checkpoints of machines and the cosignatures of witnesses.
        """
        self._own_logs = own_logs
        self._checkpoints = checkpoints
        self._core = core
        self._envelope = envelope
        self._porcelain = porcelain
        self._setting = setting
        self._adoption = Adoption(core)

    def adopt(self, remote: str, continues: Callable[[str], bool], *, fetch: bool) -> list[Adopted]:
        """Adopt what was fetched from a remote. ``continues`` tells whether a chain of keys extends ours.

        The refspecs are not in git's configuration: a plain ``git fetch`` would list and compare every ref of the space.
        """
        rules = fetch_rules(remote)
        self._porcelain.remove_fetch_rules(remote, rules)  # earlier versions added them
        if fetch:
            self._porcelain.fetch(remote, rules)
        adopted: list[Adopted] = []
        settled: dict[str, str] = {}
        top = f"{names.TRACKING}{remote}/"
        for tracked, ref, cid in self._fetched(top):
            outcome = self._adopt(ref, cid, continues)
            if outcome is not None and not (ref.startswith(names.LOGS) and outcome in (NEW, AHEAD)):
                adopted.append(Adopted(ref, outcome, cid))
            if outcome not in (DIVERGED, REFUSED, UNSOUND):
                settled[tracked] = cid
        self._settle_checkpoints(remote, complete=fetch)
        if not self._core.refs.shared:  # a hub's are compared with
            self._porcelain.forget_fetched(settled)
        return [item for item in adopted if item.what != UNSOUND]

    def _fetched(self, top: str) -> list[tuple[str, str, str]]:
        """The tracking refs below ``top``, each with the ref that it is about and its value; heads come last."""
        fetched = []
        for kind, target in names.KINDS:
            for tracked, cid in self._core.refs.under(top + kind):
                ref = target + tracked.removeprefix(top + kind)
                if ref.startswith(names.PUBLISHED):
                    ref = names.HEADS + ref.removeprefix(names.PUBLISHED)
                if names.is_shared(ref) or ref.startswith(names.LOGS):
                    fetched.append((tracked, ref, cid))
        return sorted(fetched, key=lambda entry: entry[1].startswith(names.HEADS))

    def _adopt(self, ref: str, theirs: str, continues: Callable[[str], bool]) -> str | None:
        """Adopt a ref; None if ours already contains it."""
        ours = self._core.refs.get(ref)
        if ours is not None and self._adoption.continues(ref, ours, theirs):
            return None
        if not self._adoption.is_sound(ref, theirs):
            return UNSOUND
        # Only a chain that extends our keys may replace them.
        return self._settle(ref, theirs) if ref != names.KEYS or continues(theirs) else DIVERGED

    def _settle(self, ref: str, theirs: str) -> str | None:
        with self._envelope.at_work(lock_of(ref)):
            try:
                return self._adoption.settle(ref, self._core.refs.get(ref), theirs)
            except StaleRef:
                return DIVERGED  # plain git moved it just now; the next adoption retries

    def publish(
        self, agents: Sequence[str], remote: str, *, traces: bool = True, federation: bool = False, heads: str | None = None
    ) -> list[Pushed]:
        """Push agents to a remote: head, record, events, types, flows and, if requested, traces and session checkpoints.

        Heads are pushed outside of the branches, so that other people's clones do not get a branch for each agent, unless
        ``heads`` or the setting ``clia.publish`` asks for it. Notes on the authors of people's lines follow in a second push.

        ``federation`` adds the space's public keys and its grants to peers. All or nothing; never forced.
        """
        core = self._core
        remotes = self._porcelain.remotes()
        if remote not in remotes:
            hints = [f"remotes here: {', '.join(remotes) or 'none'}"]
            raise NotFound(f"no remote {remote!r}", code="no-such-remote", hints=hints)
        refs = [names.SPACE, names.TYPES, names.OBJECTS, names.GUARDRAILS, *(ref for ref, _ in core.refs.under(names.BEHAVIOURS))]
        if self._checkpoints is not None and self._own_logs():
            self._checkpoints().renew()  # before the logs are pushed: they must have all that it names
        logs = self._own_logs()  # copies of other machines' may be old, and would have the push refused
        refs += [names.KEYS, names.STATEMENTS, *logs] if federation or logs else []
        refs += [names.CAPABILITIES] if federation else []
        for name in map(names.check_name, agents):
            refs += [names.head(name), names.archived(name), names.record(name), names.events(name)]
            refs += [names.traces(name), names.sessions(name)] if traces else []
        present = self._present(refs)
        absent = [name for name in agents if present.isdisjoint((names.head(name), names.archived(name)))]
        for name in absent:
            core.require_known(name)
        present |= self._present(refs) if absent else set()  # fetched from other machines
        named = str if self._heads(heads) == AS_BRANCHES else names.published
        target = _PushTarget.of(self._porcelain, remote)
        pushed = self._porcelain.push(remote, [ref for ref in refs if ref in present], named, self._replaced_logs(target, logs))
        if any(ref.state == "refused" for ref in pushed):
            return pushed
        return [*pushed, *self._publish_attribution(target), *(self._publish_checkpoints(target) if logs else ())]

    def _replaced_logs(self, target: _PushTarget, logs: Sequence[str]) -> dict[str, str]:
        """What the remote has of logs of this clone, if ours continue it: a log is one commit, which replaces the one before."""
        replaced: dict[str, str] = {}
        for ref in logs:
            tracked = names.tracking(target.place, ref)
            self._porcelain.fetch(target.source, [f"+{ref}*:{tracked}*"])
            ours, theirs = self._core.refs.get(ref), self._core.refs.get(tracked)
            if theirs is None:
                continue
            if ours is not None and self._adoption.continues(ref, ours, theirs):
                replaced[ref] = theirs
            if not self._core.refs.shared:
                self._porcelain.forget_fetched({tracked: theirs})
        return replaced

    def _heads(self, requested: str | None) -> str:
        """Where the remote keeps heads: as requested, else as configured."""
        chosen = requested or self._setting("clia.publish") or AS_PUBLISHED
        if chosen in (AS_BRANCHES, AS_PUBLISHED):
            return chosen
        field = "heads" if requested else "the setting clia.publish"
        raise InvalidInput(f"{field} must be branches or published, not {chosen!r}", code="invalid-heads", fields={"field": field})

    def _present(self, refs: Sequence[str]) -> set[str]:
        """The refs that exist. Listing them is faster than many single reads."""
        if len(refs) <= _FEW:
            return {ref for ref in refs if self._core.refs.get(ref) is not None}
        return {ref for prefix in ("refs/heads/agents/", "refs/clia/", names.NOTES) for ref, _ in self._core.refs.under(prefix)}

    def _settle_checkpoints(self, place: str, *, complete: bool = True) -> list[tuple[str, str | None, str]]:
        """Settle what was fetched of checkpoints and cosignatures; returns what the remote lacks.

        ``complete``: they were fetched just now, so the remote has no others. Their tracking refs are removed: a later fetch would
        not remove those that the remote no longer has.
        """
        kinds = (names.CHECKPOINTS, names.COSIGNATURES)
        fetched = {ref: cid for kind in kinds for ref, cid in self._core.refs.under(names.tracking(place, kind))}
        if self._checkpoints is None:
            return []
        theirs = {str(names.tracked(ref)): cid for ref, cid in fetched.items()}
        moves = self._checkpoints().settle(place, theirs, complete=complete)
        if not self._core.refs.shared:
            self._porcelain.forget_fetched(fetched)
        return [(ref, old, new) for ref, old, new in moves if new is not None]

    def _publish_checkpoints(self, target: _PushTarget) -> list[Pushed]:
        """Push the checkpoints and cosignatures that the remote lacks, and the logs that they name."""
        if self._checkpoints is None:
            return []
        checkpoints = self._checkpoints()
        kinds = (names.LOGS, names.CHECKPOINTS, names.COSIGNATURES)
        self._porcelain.fetch(target.source, [f"+{kind}*:{names.tracking(target.place, kind)}*" for kind in kinds])
        fetched = dict(self._core.refs.under(names.tracking(target.place, names.LOGS)))
        logs = {str(names.tracked(ref)): cid for ref, cid in fetched.items()}
        moves = [*checkpoints.missing_logs(logs), *self._settle_checkpoints(target.place)]
        if not self._core.refs.shared:
            self._porcelain.forget_fetched(fetched)
        pushed = self._porcelain.replace(target.remote, moves)
        checkpoints.pushed(target.place, [move for move in moves if all(item.state != "refused" for item in pushed)])
        return pushed

    def _publish_attribution(self, target: _PushTarget) -> list[Pushed]:
        """Push the notes on the authors of lines, united with those at the remote: every clone writes them."""
        ref, refs = names.ATTRIBUTION, self._core.refs
        if refs.get(ref) is None:
            return []
        self._porcelain.fetch(target.source, [f"+{ref}*:{names.tracking(target.place, ref)}*"])
        theirs = refs.get(names.tracking(target.place, ref))
        if theirs is not None:
            self._settle(ref, theirs)
        return self._porcelain.push(target.remote, [ref])

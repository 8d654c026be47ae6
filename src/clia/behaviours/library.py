"""Behaviours by name: adding, proposing, trying, adopting, retiring and reading versions.

Invariant: only a person allows a version to run; a proposal is only stored. A body that is already a version cannot be
proposed, and all versions of a name have the same kind. A refused operation changes nothing.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from contextlib import suppress
from types import MappingProxyType
from typing import NamedTuple

from clia.behaviours.model import (
    CURRENT,
    FOREIGN,
    FORMER,
    PROPOSED,
    RETIRED,
    TRIAL,
    BehaviourEvent,
    BehaviourVersion,
    KnownBehaviour,
)
from clia.errors import Ambiguous, CliaError, Conflict, InvalidInput, NoSuchObject, NotFound, StaleRef
from clia.sessions.flows import SOURCE_MAX, check_new_name
from clia.space.behaviour_chains import ADOPT, AUTOMATIC, DEFINE, PROPOSE, RETIRE, ChainChange, ChainState, read_behaviour
from clia.space.behaviour_chains import TRIAL as TRIAL_EVENT
from clia.values import refs as names
from clia.values.commit_messages import check_text
from clia.values.identity_documents import DOCUMENT, check_document, document_path
from clia.values.typed_objects import BEHAVIOUR_KINDS, IDENTITY_DOCUMENT, PROMPT, SESSION_FLOW, Behaviour, as_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from clia.git.records import Stamp
    from clia.sessions.flows import Flows
    from clia.space.behaviour_chains import BehaviourChains, ChainEntry
    from clia.space.core import Core

NOTES_MAX = 16 * 1024
EVIDENCE_MAX = 200
NOTHING = "none"
"""The expected version if nothing is current."""


class BehaviourDraft(NamedTuple):
    """A new version. Without ``kind``, the behaviour must exist and its kind is used."""

    name: str
    body: str
    kind: str | None = None
    parent: str | None = None
    why: str = ""
    notes: str = ""
    document: str | None = None  # by default that of the behaviour


class AdoptionOrder(NamedTuple):
    """Reason and conditions of an adoption or retirement. ``expect``: the expected current version, or ``NOTHING``."""

    why: str = ""
    expect: str | None = None
    details: Mapping[str, Any] = MappingProxyType({})
    by: Stamp | None = None

    def check(self, name: str, state: ChainState) -> None:
        """``StaleRef`` if another version is current."""
        if self.expect is not None and self.expect != (state.current or NOTHING):
            raise stale_behaviour(name, self.expect, state.current)


class BehaviourLibrary:
    def __init__(self, core: Core, chains: BehaviourChains, flows: Flows) -> None:
        self._core = core
        self._chains = chains
        self._flows = flows

    # Reading

    def all(self) -> list[KnownBehaviour]:
        """Every readable behaviour, sorted by name."""
        behaviours = (self._known(name, state) for name, state in self._chains.states())
        return [behaviour for behaviour in behaviours if behaviour is not None]

    def get(self, name: str) -> KnownBehaviour:
        """A behaviour by its name."""
        return self._core.sought(lambda: self._get(name), NotFound)

    def _get(self, name: str) -> KnownBehaviour:
        tip = self._core.refs.get(names.behaviour(name)) if names.is_name(name) else None
        behaviour = None if tip is None else self._known(name, self._chains.at(tip))
        if behaviour is None:
            known_names = ", ".join(behaviour.name for behaviour in self.all()) or "none"
            raise NotFound(
                f"no behaviour {name!r}",
                code="no-such-behaviour",
                hints=[f"behaviours here: {known_names}", "add one with: clia behaviour add NAME FILE"],
                fields={"behaviour": name},
            )
        return behaviour

    def _known(self, name: str, state: ChainState) -> KnownBehaviour | None:
        history = self._history(state.tip) if state.tip else ()
        versions = self._versions(name, state, history)
        if not versions:
            return None
        events = tuple(BehaviourEvent(*entry[:6], entry.evidence, entry.measure) for entry in history)
        current = next((version.cid for version in versions if version.state == CURRENT), None)
        return KnownBehaviour(name, versions[0].kind, current, versions, events)

    def _history(self, tip: str) -> tuple[ChainEntry, ...]:
        """The events, as far back as this clone has them."""
        events: list[ChainEntry] = []
        with suppress(CliaError):
            for entry in self._chains.history(tip):
                events.append(entry)  # keep what was read before a missing object
        return tuple(events)

    def _versions(self, name: str, state: ChainState, history: Sequence[ChainEntry]) -> tuple[BehaviourVersion, ...]:
        first: dict[str, ChainEntry] = {}
        evidence: dict[str, list[str]] = {}
        before: dict[str, str | None] = {}
        last: dict[str, str] = {}
        for entry in reversed(history):
            if entry.event != PROPOSE:
                last[entry.cid] = entry.event
            if entry.cid not in first:
                first[entry.cid] = entry
                before[entry.cid] = entry.was
            evidence.setdefault(entry.cid, []).extend(entry.evidence)
        ordered = [cid for cid in first if cid in state.versions] + sorted(state.versions - first.keys())
        versions = []
        for cid in ordered:
            behaviour = self._read(cid)
            if behaviour is None:
                continue
            first_entry = first.get(cid)
            parent = behaviour.parent or (first_entry.parent if first_entry else None) or before.get(cid)
            versions.append(
                BehaviourVersion(
                    name,
                    cid,
                    behaviour.kind,
                    version_state(state, cid, on_trial=last.get(cid) == TRIAL_EVENT),
                    behaviour.body,
                    parent if parent != cid else None,
                    behaviour.notes,
                    *((first_entry.by, first_entry.at, first_entry.why) if first_entry else ("", 0, "")),
                    tuple(dict.fromkeys(evidence.get(cid, ()))),
                    first_entry.origin if first_entry else None,
                    document_path(behaviour),
                )
            )
        return tuple(versions)

    def _read(self, cid: str) -> Behaviour | None:
        try:
            return read_behaviour(self._core.objects, cid)
        except NoSuchObject:
            return None

    def version(self, text: str, name: str | None = None) -> BehaviourVersion:
        """A version by its behaviour's name, or by its id or a prefix; with ``name``, only among its versions."""
        return self._core.sought(lambda: self._version(text, name), NotFound)

    def _version(self, text: str, name: str | None) -> BehaviourVersion:
        is_name = name is None and names.is_name(text) and self._core.refs.get(names.behaviour(text)) is not None
        if is_name and not names.is_start_of_id(text):
            return self.current(text)
        behaviours = self.all() if name is None else [self._get(name)]
        matches = {version.cid: version for behaviour in behaviours for version in behaviour.versions if _begins(version.cid, text)}
        if is_name and not names.is_id(text):  # a name that looks like an id, from another clone or plain git
            if matches:
                raise Ambiguous(f"{text!r} is both a behaviour and the start of a version id", fields={"matches": sorted(matches)})
            return self.current(text)
        if len(matches) > 1:
            raise Ambiguous(f"{text!r} is the start of several version ids", fields={"matches": sorted(matches)})
        if matches:
            return next(iter(matches.values()))
        if name is None and names.is_id(text):
            behaviour = read_behaviour(self._core.objects, text)
            if behaviour is None:
                raise NoSuchObject(f"object {text} is not a behaviour", code="not-a-behaviour", fields={"cid": text})
            return _foreign(text, behaviour)
        of = f" of {name!r}" if name else ""
        known_names = ", ".join(behaviour.name for behaviour in behaviours) or "none"
        raise NoSuchObject(
            f"no version {text!r}{of}" if name else f"no behaviour or version {text!r}",
            code="no-such-version",
            hints=[f"clia behaviour show {name}"] if name else [f"behaviours here: {known_names}", "clia behaviour list"],
            fields={"cid": text} | ({"behaviour": name} if name else {}),
        )

    def stray(self, cid: str) -> BehaviourVersion | None:
        """A behaviour that is not on any chain of this space, such as a peer's; None if the id is not a behaviour."""
        behaviour = self._read(cid)
        return None if behaviour is None else _foreign(cid, behaviour)

    def current(self, name: str) -> BehaviourVersion:
        """The current version of a name."""
        return current_of(self.get(name))

    def diff(self, old: BehaviourVersion, new: BehaviourVersion) -> str:
        """The difference between two versions, as a patch."""
        before, after = (_lines(version.body) for version in (old, new))
        lines = difflib.unified_diff(before, after, f"{old.name}@{old.cid[:12]}", f"{new.name}@{new.cid[:12]}")
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)

    # Writing

    def add(self, draft: BehaviourDraft, by: Stamp | None) -> BehaviourVersion:
        """Add a person's own version, which becomes current at once."""
        behaviour = self._checked(draft)
        return self._put(draft.name, behaviour, DEFINE, by or self._core.person_stamp(), draft.why, {})

    def propose(self, draft: BehaviourDraft, details: dict[str, Any], by: Stamp | None) -> BehaviourVersion:
        """Propose a version, which may run once a person adopts it."""
        behaviour = self._checked(draft)
        parent = draft.parent or self._chains.state(draft.name).current
        return self._put(
            draft.name, behaviour._replace(parent=parent), PROPOSE, by or self._core.person_stamp(), draft.why, details
        )

    def _put(self, name: str, behaviour: Behaviour, event: str, by: Stamp, why: str, details: dict[str, Any]) -> BehaviourVersion:
        core = self._core
        text = core.clean.text(why, "why")
        version_ids: list[str] = []

        def decide(state: ChainState) -> ChainChange | None:
            self._check_kind(name, state, behaviour.kind)
            self._check_path(name, state, behaviour)
            existing = self._same(state, behaviour, event)
            cid = existing or core.objects.blob_id(as_bytes(behaviour.to_object()))
            version_ids[:] = [cid]
            is_known = (
                event == PROPOSE and existing is not None and not (details.get("evidence") and self._is_new(state, cid, details))
            )
            if is_known or (event == DEFINE and state.current == cid):
                return None
            all_details = details | ({"parent": behaviour.parent} if behaviour.parent else {})
            return ChainChange(event, cid, by, text, None if existing else as_bytes(behaviour.to_object()), all_details)

        self._chains.change(name, decide)
        return self.version(version_ids[0], name)

    def _same(self, state: ChainState, new: Behaviour, event: str) -> str | None:
        """The existing version with the same body, if its notes can be used: a person's version needs the person's notes."""
        for cid in sorted(state.versions):
            behaviour = self._read(cid)
            if behaviour is None or behaviour.body != new.body:
                continue
            if event == PROPOSE or behaviour.notes == new.notes or (not new.notes and state.may_run(cid)):
                return cid
        return None

    def _is_new(self, state: ChainState, cid: str, details: dict[str, Any]) -> bool:
        """Whether there is new evidence."""
        commits = {commit for event in self._history(state.tip or "") if event.cid == cid for commit in event.evidence}
        return not commits.issuperset(details["evidence"])

    def adopt(
        self, name: str, cid: str, order: AdoptionOrder, *, trial: bool = False, data: bytes | None = None, by_person: bool = True
    ) -> BehaviourVersion:
        """Allow a version to run: as the current one of its name, or with ``trial`` by its id only.

        Only a person (``by_person``) may adopt a version that was never allowed to run, or that is retired.
        """
        text = self._core.clean.text(order.why, "why")
        behaviour = read_behaviour(self._core.objects, cid)

        def decide(state: ChainState) -> ChainChange | None:
            order.check(name, state)
            if behaviour is not None:
                self._check_kind(name, state, behaviour.kind)
            if not by_person and not state.may_run(cid):
                raise not_adopted(name, cid)
            if state.may_run(cid) and (trial or state.current == cid):
                return None
            details = order.details if by_person else {**order.details, AUTOMATIC: True}
            return ChainChange(TRIAL_EVENT if trial else ADOPT, cid, order.by or self._core.person_stamp(), text, data, details)

        self._chains.change(name, decide)
        return self.version(cid, name)

    def check_order(self, name: str, order: AdoptionOrder) -> None:
        """``StaleRef`` if another version is current than the order expects."""
        order.check(name, self._chains.state(name))

    def retire(self, name: str, cid: str, order: AdoptionOrder) -> BehaviourVersion:
        """Retire a version; its running sessions continue."""
        text = self._core.clean.text(order.why, "why")

        def decide(state: ChainState) -> ChainChange | None:
            order.check(name, state)
            if cid in state.retired and state.current != cid:
                return None
            return ChainChange(RETIRE, cid, order.by or self._core.person_stamp(), text, details=order.details)

        self._chains.change(name, decide)
        return self.version(cid, name)

    # Checking

    def document_of(self, draft: BehaviourDraft) -> str | None:
        """The path of the document that a draft is a text of; None if it is of another kind."""
        if draft.document is not None:
            return draft.document
        return self._path_in(self._chains.state(draft.name)) if names.is_name(draft.name) else None

    def _checked(self, draft: BehaviourDraft) -> Behaviour:
        """The validated content of a new version."""
        kind = draft.kind or (IDENTITY_DOCUMENT if draft.document is not None else self._kind(draft.name))
        self.check_body(draft.name, kind, draft.body)
        path = self.document_of(draft) if kind == IDENTITY_DOCUMENT else draft.document
        if (path is None) == (kind == IDENTITY_DOCUMENT):
            message = "a document of an identity needs its path" if path is None else f"a {kind} is not a document of an identity"
            fields = {"field": DOCUMENT, "behaviour": draft.name}
            raise InvalidInput(message, code="invalid-document-path", hints=["--document .clia/agents/SLUG/FILE"], fields=fields)
        if path is not None:
            check_document(path, draft.body)
        notes = self._core.clean.text(draft.notes, "notes")
        if len(notes) > NOTES_MAX:
            raise InvalidInput(f"notes have at most {NOTES_MAX} characters", code="too-long", fields={"field": "notes"})
        return Behaviour(draft.name, kind, draft.body, None if path is None else {DOCUMENT: path}, notes=notes)

    def check_body(self, name: str, kind: str, body: str) -> None:
        """``InvalidInput`` if the body is not valid for the kind, or the name is not valid."""
        check_new_name(name)
        if kind not in BEHAVIOUR_KINDS:
            raise InvalidInput(
                f"the kind of a behaviour is {' or '.join(BEHAVIOUR_KINDS)}, not {kind!r}",
                code="invalid-kind",
                fields={"field": "kind", "kind": str(kind)},
            )
        if kind == SESSION_FLOW:
            self._flows.check_body(name, body)
        else:
            self._check_text(name, kind, body)

    def _check_text(self, name: str, kind: str, body: str) -> None:
        if not check_text(body, "body").strip():
            raise _bad_text(name, kind, "is empty")
        if len(body) > SOURCE_MAX:
            raise _bad_text(name, kind, f"has more than {SOURCE_MAX} characters")
        if self._core.clean.value(body) != body:
            raise _bad_text(name, kind, "seems to contain a secret, which git would keep forever")

    def _kind(self, name: str) -> str:
        """The kind of a behaviour."""
        check_new_name(name)
        kind = self._kind_in(self._chains.state(name))
        if kind is not None:
            return kind
        raise InvalidInput(
            f"behaviour {name!r} does not exist; a new one needs a kind",
            code="kind-needed",
            hints=[" or ".join(f"--kind {kind}" for kind in BEHAVIOUR_KINDS)],
            fields={"field": "kind", "behaviour": name},
        )

    def _kind_in(self, state: ChainState) -> str | None:
        return next((behaviour.kind for cid in sorted(state.versions) if (behaviour := self._read(cid)) is not None), None)

    def _path_in(self, state: ChainState) -> str | None:
        behaviours = (self._read(cid) for cid in sorted(state.versions))
        return next((path for behaviour in behaviours if behaviour is not None and (path := document_path(behaviour))), None)

    def _check_path(self, name: str, state: ChainState, behaviour: Behaviour) -> None:
        path, existing = document_path(behaviour), self._path_in(state)
        if existing not in (None, path):
            raise Conflict(
                f"behaviour {name!r} has versions of {existing}; a text of {path} cannot be a version of it",
                code="wrong-document",
                hints=["use another name"],
                fields={"behaviour": name, "document": existing, "given": path},
            )

    def _check_kind(self, name: str, state: ChainState, kind: str) -> None:
        existing = self._kind_in(state)
        if existing not in (None, kind):
            raise Conflict(
                f"behaviour {name!r} is a {existing}; a {kind} cannot be a version of it",
                code="wrong-kind",
                hints=["use another name"],
                fields={"behaviour": name, "kind": existing, "given": kind},
            )


def _foreign(cid: str, behaviour: Behaviour) -> BehaviourVersion:
    return BehaviourVersion(
        behaviour.name,
        cid,
        behaviour.kind,
        FOREIGN,
        behaviour.body,
        behaviour.parent,
        behaviour.notes,
        document=document_path(behaviour),
    )


def current_of(behaviour: KnownBehaviour) -> BehaviourVersion:
    """The current version of a behaviour; ``NotFound`` if there is none."""
    for version in behaviour.versions:
        if version.cid == behaviour.current:
            return version
    raise NotFound(
        f"behaviour {behaviour.name!r} has no current version: it is retired, or not adopted yet",
        code="nothing-adopted",
        hints=[f"clia behaviour show {behaviour.name}", f"clia behaviour adopt {behaviour.name} CID"],
        fields={"behaviour": behaviour.name},
    )


def version_state(state: ChainState, cid: str, *, on_trial: bool) -> str:
    """The state of a version."""
    if cid == state.current and state.may_run(cid):
        return CURRENT
    if cid in state.retired or cid not in state.adopted:
        return RETIRED if cid in state.retired else PROPOSED
    return TRIAL if on_trial else FORMER


def checked_evidence(evidence: Iterable[str], find: Callable[[str], str]) -> list[str]:
    """The full ids of commits given as evidence."""
    if isinstance(evidence, (str, bytes)) or not isinstance(evidence, Iterable):
        raise InvalidInput("evidence must be a list of commits", code="invalid-evidence", fields={"field": "evidence"})
    commits = list(dict.fromkeys(find(check_text(text, "evidence")) for text in evidence))
    if len(commits) > EVIDENCE_MAX:
        raise InvalidInput(
            f"at most {EVIDENCE_MAX} commits can be given as evidence", code="too-much", fields={"field": "evidence"}
        )
    return commits


def stale_behaviour(name: str, expected: str, actual: str | None) -> StaleRef:
    return StaleRef(
        f"the current version of {name!r} has changed: it is {(actual or 'none')[:12]}, not {expected[:12]}",
        hints=[f"list its versions: clia behaviour show {name}", f"check the evidence: clia behaviour suggest {name}"],
        fields={"behaviour": name, "expected": expected, "actual": actual},
        code="stale-behaviour",
    )


def not_adopted(name: str, cid: str) -> Conflict:
    return Conflict(
        f"version {cid[:12]} of {name!r} is not adopted, or retired: only a person can adopt it",
        code="not-adopted",
        hints=[f"clia behaviour show {name}"],
        fields={"behaviour": name, "cid": cid},
    )


def _lines(text: str) -> list[str]:
    """The lines of a body; as in git, only a newline ends one."""
    lines = text.split("\n")
    return [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _begins(cid: str, text: str) -> bool:
    return names.is_start_of_id(text) and cid.startswith(text)


def _bad_text(name: str, kind: str, problem: str) -> InvalidInput:
    fields = {"behaviour": name, "field": "body"}
    if kind == PROMPT:
        return InvalidInput(f"the prompt {name!r} {problem}", code="invalid-prompt", fields=fields)
    return InvalidInput(f"the document {name!r} {problem}", code="invalid-document", fields=fields)

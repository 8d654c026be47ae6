"""Checks on the objects that a peer sent, before a ref leads to them.

Invariant: a claim passes only if the object is what it claims: a commit, of the agent that the ref names and of the type that the
gate was asked about; if it descends from what is tracked; and if no other space owns the agent. The objects have already
passed git's own checks.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from clia.errors import CliaError, InvalidInput
from clia.federation.statements import RefClaim, refusal
from clia.git.records import EXECUTABLE, FILE
from clia.values import refs as names
from clia.values.typed_objects import Behaviour, Briefing, as_typed, parse
from clia.values.types import SPAWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.git.records import TreeEntry
    from clia.space.core import Core

_HEX = frozenset("0123456789abcdef")
_WORD_MAX = 64
OBJECT_MAX = 4 * 1024 * 1024
"""Maximum size of a record or a behaviour version, in bytes."""


class ClaimChecker(NamedTuple):
    """Checks claims of one peer."""

    here: Core
    there: Core  # the same space, which also sees the fetched objects
    peer: str

    def check(self, claim: RefClaim, tracked: str | None) -> None:
        """Raise ``Denied`` if the object is not what the claim says."""
        if claim.new is None:
            return
        if self.there.objects.kind(claim.new) != "commit":
            raise refusal("not-a-commit", f"{claim.ref}: {claim.new} is not a commit", cid=claim.new)
        try:
            if claim.ref.startswith(names.HEADS):
                self._check_head(claim, claim.new, tracked)
            elif claim.ref.startswith(names.RECORDS):
                self._check_record(claim, claim.new)
            elif claim.ref.startswith(names.NOTES):
                self._check_notes(claim, claim.new)
            else:
                self._check_behaviour(claim, claim.new)
        except InvalidInput as err:
            raise refusal("unreadable-object", f"{claim.ref}: {err.message}", cid=claim.new) from None

    def _check_head(self, claim: RefClaim, new: str, tracked: str | None) -> None:
        name = claim.ref.removeprefix(names.HEADS)
        commit = self.there.read(new)
        if commit.agent is None or commit.kind is None:
            raise refusal("not-an-agent-commit", f"{claim.ref}: {new} is not an agent's commit", cid=new)
        if commit.agent != name:
            raise refusal("wrong-agent", f"{claim.ref}: the commit belongs to agent {commit.agent}", cid=new, agent=commit.agent)
        if commit.kind != claim.type:
            message = f"{claim.ref} was announced as {claim.type} but is {commit.kind}"
            raise refusal("type-mismatch", message, cid=new, kind=commit.kind)
        if tracked is not None:
            if not self.there.graph.descends(new, tracked):
                raise refusal("not-descending", f"{claim.ref}: {new} does not descend from {tracked}", cid=new, tracked=tracked)
            return  # ownership was checked when it was first tracked
        first = deque(self.there.own_commits(name, new), maxlen=1)
        if not first or first[0].kind != SPAWN:
            raise refusal("no-genesis", f"the history of {name} does not start with its spawn", cid=new)
        self._check_owner(name, first[0].cid)

    def _check_owner(self, name: str, genesis: str) -> None:
        """Check that no other space has an agent with this genesis; only agents of the same name can."""
        core = self.here
        owners = [(names.head(name), "this space"), (names.archived(name), "this space")]
        for ref, _ in core.refs.under(names.REMOTES):
            peer, _, place = ref.removeprefix(names.REMOTES).partition("/")
            if place == f"agents/{name}" and peer != self.peer:
                owners.append((ref, peer))
        for ref, owner in owners:
            head = core.refs.get(ref)
            if head is not None and any(commit.cid == genesis for commit in core.own_commits(name, head)):
                raise refusal("claims-anothers-agent", f"agent {name} belongs to {owner}", agent=name, owner=owner)

    def _check_record(self, claim: RefClaim, new: str) -> None:
        tree = self.there.objects.commit(new).tree
        content = self._object(self.there.objects.entry(tree, "briefing.json"))
        if not isinstance(content, Briefing):
            raise refusal("not-a-record", f"{claim.ref}: {new} has no briefing", cid=new)

    def _check_notes(self, claim: RefClaim, new: str) -> None:
        for path, entry in self.there.objects.entries(self.there.objects.commit(new).tree).items():
            name = path.replace("/", "")
            if entry.mode not in (FILE, EXECUTABLE) or len(name) != 40 or not _HEX.issuperset(name):
                raise refusal("not-notes", f"{claim.ref}: {path!r} in {new} is not a note", cid=new)

    def _check_behaviour(self, claim: RefClaim, new: str) -> None:
        objects = self.there.objects
        name = claim.ref.removeprefix(names.BEHAVIOURS)
        entries = objects.entries(objects.commit(new).tree)
        versions = {path: entry for path, entry in entries.items() if path.startswith("versions/")}
        current = entries.get("current")
        chosen = self._word(current) if current else None  # None after retirement
        for path, entry in versions.items():
            content = self._object(entry)
            if path != f"versions/{entry.cid}.json" or not isinstance(content, Behaviour) or content.name != name:
                raise refusal("not-a-behaviour", f"{path!r} in {new} is not a version of {name}", cid=new)
        if not versions or (chosen is not None and f"versions/{chosen}.json" not in versions):
            raise refusal("not-a-behaviour", f"{new} has no valid current version of {name}", cid=new)

    def _word(self, entry: TreeEntry) -> str:
        """The text of a short file; empty for anything else."""
        objects = self.there.objects
        short = entry.mode in (FILE, EXECUTABLE) and objects.size(entry.cid) <= _WORD_MAX
        return objects.blob(entry.cid).decode("ascii", "replace").strip() if short else ""

    def _object(self, entry: TreeEntry | None) -> object:
        if entry is None or entry.mode not in (FILE, EXECUTABLE) or self.there.objects.size(entry.cid) > OBJECT_MAX:
            return None
        try:
            body = parse(self.there.objects.blob(entry.cid))
            return as_typed(body) if body else None
        except CliaError:
            return None

"""Agents: each is a branch, is spawned from a briefing, and can be archived and restored.

Invariant: an agent has both a record and a branch, or neither. A name is never reused, even after archiving. No ref is removed
unless another ref that stays contains its head.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from clia.errors import AlreadyExists, Conflict, InvalidInput, NoSuchAgent, NoSuchObject
from clia.git.records import FILE, TreeEntry
from clia.redaction.secrets import check_public_name
from clia.space.envelope import Intent, RefMove
from clia.space.model import AGENT, BEHAVIOUR, BRIEFING, PARENT, PROFILE, TYPE, Spawned
from clia.values import refs as names
from clia.values.commit_messages import check_count, check_text
from clia.values.typed_objects import Briefing, as_bytes, as_object, invalid
from clia.values.types import SPAWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from clia.sessions.checkpoints import Checkpoints
    from clia.space.core import Core
    from clia.space.envelope import Envelope


class AgentOrigin(NamedTuple):
    """The parts of an agent's record that say where it was spawned and under which identity."""

    place: Mapping[str, Any] | None = None
    profile: Mapping[str, Any] | None = None  # None: no identity and no guardrails

    @property
    def slug(self) -> str | None:
        """The identity; None: the agent has none."""
        slug = (self.profile or {}).get("slug")
        return slug if isinstance(slug, str) else None

    def objects(self) -> dict[str, dict[str, Any]]:
        """The objects by file name."""
        parts = {"place": self.place, "profile": self.profile}
        return {f"{name}.json": {"type": name, **value} for name, value in parts.items() if value is not None}


class Agents:
    def __init__(self, core: Core, envelope: Envelope, checkpoints: Checkpoints) -> None:
        self._core = core
        self._checkpoints = checkpoints
        self._envelope = envelope
        self._last_origin: tuple[str, AgentOrigin] | None = None  # by the commit of the record

    def names(self, *, archived: bool = False, after: str = "", limit: int | None = None) -> list[str]:
        """Sorted names; ``after`` and ``limit`` select a page."""
        prefix = names.ARCHIVE if archived else names.HEADS
        last = prefix + check_text(after, "after") if after else ""
        left = None if limit is None else check_count(limit, "limit")
        page: list[str] = []
        while True:
            refs = self._core.refs.under(prefix, after=last, limit=left)
            page += [name for name in (ref.removeprefix(prefix) for ref, _ in refs) if names.is_name(name)]
            if limit is None or not refs or len(page) >= limit:
                return page
            last, left = refs[-1][0], limit - len(page)  # some refs were not valid agent names

    def spawn(
        self,
        name: str,
        briefing: Briefing,
        *,
        at: str | None = None,
        parent: str | None = None,
        origin: AgentOrigin | None = None,
        trailers: Sequence[tuple[str, str]] = (),
        along: Callable[[str], Intent] | None = None,
    ) -> Spawned:
        """Spawn an agent on a commit's tree, or on the empty tree.

        ``along`` maps the genesis to an intent whose notes and store changes are written together with the agent.
        """
        core = self._core
        check_public_name(name, "the agent name", core.clean.redact_text)
        names.check_name(name)
        briefing_object = self._briefing(briefing)
        if parent is not None:
            core.require_head(parent)
        tree = core.empty_tree() if at is None else core.objects.commit(at).tree
        with self._envelope.at_work(name):
            self.require_free(name)
            record, files = self._write_record(name, briefing_object, origin or AgentOrigin())
            profile_cid = files["profile.json"].cid if "profile.json" in files else None
            identity = [(AGENT, name), (TYPE, SPAWN), (BRIEFING, files["briefing.json"].cid), (PROFILE, profile_cid)]
            all_trailers = [*identity, (BEHAVIOUR, briefing_object.get("behaviour")), (PARENT, parent), *trailers]
            genesis = core.write_commit(name, tree, [at] if at else [], f"spawn: {briefing_object['title']}", all_trailers, "spawn")
            branch = RefMove(names.head(name), None, genesis)
            intent = Intent(name, SPAWN, branch) if along is None else along(genesis)
            self._envelope.carry_out(intent._replace(verb=SPAWN, point=branch, before=(RefMove(names.record(name), None, record),)))
        return Spawned(name, f"agents/{name}", files["briefing.json"].cid, genesis, profile_cid)

    def _briefing(self, briefing: Briefing) -> dict[str, Any]:
        if not isinstance(briefing, Briefing):
            raise invalid("briefing", "spawn takes a clia.Briefing(title=…, text=…)")
        briefing_object: dict[str, Any] = self._core.clean.value(as_object(briefing))
        if "\n" in briefing_object["title"].strip("\n"):
            raise invalid("title", "the title of a briefing must be one line")
        behaviour = briefing_object.get("behaviour")
        if behaviour is not None and self._core.objects.kind(behaviour) != "blob":
            raise NoSuchObject(f"the briefing's behaviour {behaviour} does not exist here", fields={"cid": behaviour})
        return briefing_object

    def require_free(self, name: str) -> None:
        core = self._core
        for ref, state in ((names.head(name), ""), (names.archived(name), " (archived)"), (names.record(name), " (a record)")):
            actual = core.refs.get(ref)
            if actual is not None:
                if ref == names.head(name):
                    core.check_created(name, actual)
                message = f"agent {name!r} already exists{state}"
                hints = ["choose another name; names of agents are never reused"]
                raise AlreadyExists(message, hints=hints, fields={"agent": name, "actual": actual})

    def _write_record(self, name: str, briefing: Mapping[str, Any], origin: AgentOrigin) -> tuple[str, dict[str, TreeEntry]]:
        core = self._core
        files = {"briefing.json": TreeEntry(FILE, core.objects.write_blob(as_bytes(briefing)))}
        for path, value in origin.objects().items():
            files[path] = TreeEntry(FILE, core.objects.write_blob(as_bytes(core.clean.value(value))))
        tree = core.objects.update_tree(None, files)
        return core.write_commit(name, tree, [], f"record of {name}", [(AGENT, name), (TYPE, "record")], "record"), files

    def record(self, name: str) -> dict[str, Any]:
        """The objects of an agent's record by file name: its briefing, its place and, if it has one, its profile."""
        return self._record_at(self._record_tip(name))

    def _record_tip(self, name: str) -> str:
        remote = names.remote_agent(check_text(name, "agent"))
        ref = names.remote(remote[0], f"records/{remote[1]}") if remote else names.record(names.check_name(name))
        tip = self._core.refs.get(ref)
        if tip is None:
            raise NoSuchAgent(f"agent {name!r} has no record here", fields={"agent": name})
        return tip

    def _record_at(self, tip: str) -> dict[str, Any]:
        core = self._core
        files = {path: core.typed(entry.cid) for path, entry in core.objects.entries(core.objects.commit(tip).tree).items()}
        return {path: content for path, content in files.items() if content is not None}

    def origin_of(self, name: str) -> AgentOrigin:
        """The place and the profile in the record of an agent, as far as it has them and the record is here."""
        with suppress(NoSuchAgent, NoSuchObject):
            tip = self._record_tip(name)
            if self._last_origin is None or self._last_origin[0] != tip:  # every commit of an agent asks
                record = self._record_at(tip)
                parts = [record.get(f"{part}.json") for part in AgentOrigin._fields]
                self._last_origin = tip, AgentOrigin(*[_without_type(part) if isinstance(part, dict) else None for part in parts])
            return self._last_origin[1]
        return AgentOrigin()

    def any_head(self, name: str) -> str:
        """The head of an agent, at work or archived."""
        core = self._core
        return core.head(name) or core.refs.get(names.archived(name)) or core.require_head(name)

    def genesis(self, name: str) -> str:
        for commit in self._core.own_commits(name, self.any_head(name)):
            if commit.kind == SPAWN:
                return commit.cid
        raise NoSuchObject(f"the genesis of {name!r} is not in this clone", hints=["git fetch --unshallow"], fields={"agent": name})

    def briefing_of(self, name: str) -> Briefing:
        if names.remote_agent(check_text(name, "agent")) is None:
            return self.briefing_at(name, self.any_head(name))
        return _checked(name, self.record(name).get("briefing.json"))

    def briefing_at(self, name: str, *heads: str) -> Briefing:
        """The briefing of an agent as of the first of some heads that has commits of its own: a person may have moved one."""
        for head in heads[:-1]:
            with suppress(NoSuchObject):
                return self._briefing_at(name, head)
        return self._briefing_at(name, heads[-1])

    def _briefing_at(self, name: str, head: str) -> Briefing:
        cid = self._core.last_own(name, head).briefing
        return _checked(name, self._core.typed(cid) if cid else None, cid=cid)

    def archive(self, name: str) -> None:
        """Move an agent out of the branch list; its head stays under another ref."""
        names.check_name(name)
        self._move(name, names.head(name), names.archived(name), "archive")

    def restore(self, name: str) -> None:
        """Bring back an archived agent, also from another machine."""
        names.check_name(name)
        self._move(name, names.archived(name), names.head(name), "restore")

    def _move(self, name: str, source: str, target: str, verb: str) -> None:
        core = self._core
        with self._envelope.at_work(name):
            if source == names.head(name):
                self.require_idle(name, core.own_head(name))
            head = core.refs.get(source)
            if head is None:  # only when restoring
                at_work = [f"it is active: clia show {name}"] if core.refs.get(target) else []
                raise NoSuchAgent(f"no archived agent {name!r}", hints=at_work, fields={"agent": name})
            if source == names.archived(name) and core.current_name(name) != name:
                core.require_head(name)  # it was renamed
            existing = core.refs.get(target)
            if existing is not None and not core.graph.descends(head, existing) and not core.graph.descends(existing, head):
                raise Conflict(
                    f"{target} holds other work of {name!r}: {existing[:12]}, not {head[:12]}",
                    code="diverged",
                    hints=["spawn an agent at one of the two, so that both are kept"],
                    fields={"agent": name, "ref": target, "actual": existing, "head": head},
                )
            new_head = existing if existing is not None and core.graph.descends(existing, head) else head
            moves = [(target, existing, new_head), (source, head, None)]  # the other ref keeps its head
            if core.refs.move_together([move for move in moves if move[1] != move[2]], f"clia: {verb}"):
                return
            if new_head != existing:
                core.refs.move(*moves[0], f"clia: {verb}")
            core.reached("secondary-refs")
            core.refs.move(*moves[1], f"clia: {verb}")

    def is_at_work(self, name: str) -> bool:
        """Whether the agent has a live session or an open question."""
        return self._checkpoints.busy_with(name) is not None

    def has_had_sessions(self, name: str) -> bool:
        """Whether the agent has, or had, a session."""
        return self._checkpoints.has_had_sessions(name)

    def require_idle(self, name: str, head: str) -> None:
        """Raise an error if the agent is checked out, or has a live session or one that the store lost."""
        place = self._core.refs.followed_by(names.head(name))
        if place is not None:
            message = f"the branch of {name!r} is checked out in {place}"
            hints = ["switch that worktree to another branch first"]
            raise InvalidInput(message, code="branch-checked-out", hints=hints, fields={"agent": name, "worktree": place})
        reason = self._checkpoints.busy_with(name)
        if reason is not None:
            hints = [f"end it first: clia session cancel {name}"]
            raise Conflict(f"the agent {name!r} is at work: {reason}", code="session-live", hints=hints, fields={"agent": name})
        self._checkpoints.agree(name, head)


def _checked(name: str, briefing: object, **fields: str | None) -> Briefing:
    if not isinstance(briefing, Briefing):
        raise NoSuchObject(f"the briefing of {name!r} cannot be read", fields={"agent": name, **fields})
    return briefing


def _without_type(value: Mapping[str, Any]) -> dict[str, Any]:
    return {key: item for key, item in value.items() if key != "type"}

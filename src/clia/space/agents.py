"""Agents: one branch each, spawned from a briefing.

Invariant: an agent has both a record and a branch, or neither. A name is never reused, even after archiving.
"""

from __future__ import annotations

from clia.errors import AlreadyExists, Conflict, InvalidInput, NoSuchAgent, NoSuchObject
from clia.git.records import FILE, TreeEntry
from clia.space.envelope import Intent, RefMove
from clia.space.model import AGENT, BEHAVIOUR, BRIEFING, PARENT, PROFILE, TYPE, Spawned
from clia.values import refs as names
from clia.values.commit_messages import check_count, check_text
from clia.values.typed_objects import Briefing, as_bytes, as_object, as_typed, invalid, parse
from clia.values.types import SPAWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from clia.sessions.checkpoints import Checkpoints
    from clia.space.core import Core
    from clia.space.envelope import Envelope

    Along = Callable[[str], Intent]


class Agents:
    def __init__(self, core: Core, envelope: Envelope, checkpoints: Checkpoints) -> None:
        self._core = core
        self._checkpoints = checkpoints
        self._envelope = envelope

    def names(self, *, archived: bool = False, after: str = "", limit: int | None = None) -> list[str]:
        """Sorted names; ``after`` and ``limit`` select a page."""
        prefix = names.ARCHIVE if archived else names.HEADS
        last = prefix + check_text(after, "after") if after else ""
        left = None if limit is None else check_count(limit, "limit")
        found_names: list[str] = []
        while True:
            refs = self._core.refs.under(prefix, after=last, limit=left)
            found_names += [name for name in (ref.removeprefix(prefix) for ref, _ in refs) if names.is_name(name)]
            if limit is None or not refs or len(found_names) >= limit:
                return found_names
            last, left = refs[-1][0], limit - len(found_names)  # some refs were not valid agent names

    def spawn(
        self,
        name: str,
        briefing: Briefing,
        *,
        at: str | None = None,
        parent: str | None = None,
        profile: Mapping[str, Any] | None = None,
        trailers: Sequence[tuple[str, str]] = (),
        along: Along | None = None,
    ) -> Spawned:
        """Spawn an agent on a commit's tree, or on the empty tree.

        ``along`` maps the genesis to an intent whose notes and store changes are written together with the agent.
        """
        core = self._core
        names.check_name(name)
        briefing_object = self._briefing(briefing)
        if parent is not None:
            core.require_head(parent)
        tree = core.empty_tree() if at is None else core.objects.commit(at).tree
        with self._envelope.at_work(name):
            self._check_free(name)
            record, files = self._write_record(name, briefing_object, profile)
            all_trailers = [(AGENT, name), (TYPE, SPAWN), (BRIEFING, files["briefing.json"].cid)]
            profile_cid = files["profile.json"].cid if "profile.json" in files else None
            all_trailers += [(PROFILE, profile_cid)] if profile_cid else []
            all_trailers += [(BEHAVIOUR, briefing_object["behaviour"])] if "behaviour" in briefing_object else []
            all_trailers += [(PARENT, parent)] if parent else []
            all_trailers += trailers
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
            raise invalid("title", "the title of a briefing is one line")
        behaviour = briefing_object.get("behaviour")
        if behaviour is not None and self._core.objects.kind(behaviour) != "blob":
            raise NoSuchObject(f"the briefing's behaviour {behaviour} does not exist here", fields={"cid": behaviour})
        return briefing_object

    def _check_free(self, name: str) -> None:
        core = self._core
        for ref, state in ((names.head(name), ""), (names.archived(name), " (archived)"), (names.record(name), " (a record)")):
            actual = core.refs.get(ref)
            if actual is not None:
                raise AlreadyExists(
                    f"an agent {name!r} exists already{state}",
                    hints=["choose another name; the name of an agent is never used again"],
                    fields={"agent": name, "actual": actual},
                )

    def _write_record(
        self, name: str, briefing: Mapping[str, Any], profile: Mapping[str, Any] | None
    ) -> tuple[str, dict[str, TreeEntry]]:
        core = self._core
        files = {"briefing.json": TreeEntry(FILE, core.objects.write_blob(as_bytes(briefing)))}
        if profile is not None:
            data = as_bytes(core.clean.value({"type": "profile", **profile}))
            files["profile.json"] = TreeEntry(FILE, core.objects.write_blob(data))
        tree = core.objects.update_tree(None, files)
        said = [(AGENT, name), (TYPE, "record")]
        return core.write_commit(name, tree, [], f"record of {name}", said, "record"), files

    def record(self, name: str) -> dict[str, Any]:
        """The objects of an agent's record by file name: its briefing and, if known, its profile."""
        core = self._core
        named = names.remote_agent(check_text(name, "agent"))
        tip = core.refs.get(names.remote(named[0], f"records/{named[1]}") if named else names.record(names.check_name(name)))
        if tip is None:
            raise NoSuchAgent(f"there is no record of an agent {name!r} here", fields={"agent": name})
        found: dict[str, Any] = {}
        for path, entry in core.objects.entries(core.objects.commit(tip).tree).items():
            made = parse(core.objects.blob(entry.cid))
            if made is not None:
                found[path] = as_typed(made)
        return found

    def any_head(self, name: str) -> str:
        """The head of an agent, at work or archived."""
        core = self._core
        head = core.head(name)
        return head or core.refs.get(names.archived(name)) or core.require_head(name)

    def genesis(self, name: str) -> str:
        for commit in self._core.own_commits(name, self.any_head(name)):
            if commit.kind == SPAWN:
                return commit.cid
        raise NoSuchObject(f"the genesis of {name!r} is not in this clone", hints=["git fetch --unshallow"], fields={"agent": name})

    def briefing_of(self, name: str) -> Briefing:
        core = self._core
        if names.remote_agent(check_text(name, "agent")) is not None:
            tracked = self.record(name).get("briefing.json")
            if isinstance(tracked, Briefing):
                return tracked
            raise NoSuchObject(f"the briefing of {name!r} cannot be read", fields={"agent": name})
        cid = core.last_own(name, self.any_head(name)).briefing
        briefing_object = parse(core.objects.blob(cid)) if cid else None
        parsed = as_typed(briefing_object) if briefing_object else None
        if not isinstance(parsed, Briefing):
            raise NoSuchObject(f"the briefing of {name!r} cannot be read", fields={"agent": name, "cid": cid})
        return parsed

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
                core.own_head(name)
                self._check_not_followed(name)
                self._check_at_rest(name)
            head = core.refs.get(source)
            if head is None:  # only when restoring
                at_work = [f"it is at work: clia show {name}"] if core.refs.get(target) else []
                raise NoSuchAgent(f"there is no archived agent {name!r}", hints=at_work, fields={"agent": name})
            existing = core.refs.get(target)
            if existing is not None and not core.graph.descends(head, existing) and not core.graph.descends(existing, head):
                raise Conflict(
                    f"{target} holds other work of {name!r}: {existing[:12]} beside {head[:12]}",
                    code="diverged",
                    hints=["spawn an agent at one of the two, so that both are kept"],
                    fields={"agent": name, "ref": target, "actual": existing, "head": head},
                )
            kept = existing if existing is not None and core.graph.descends(existing, head) else head
            moves = [(target, existing, kept), (source, head, None)]  # the other ref keeps its head
            if core.refs.move_together([each for each in moves if each[1] != each[2]], f"clia: {verb}"):
                return
            if kept != existing:
                core.refs.move(*moves[0], f"clia: {verb}")
            core.reached("secondary-refs")
            core.refs.move(*moves[1], f"clia: {verb}")

    def is_at_work(self, name: str) -> bool:
        """Whether the agent has a live session or an open question."""
        return self._checkpoints.busy_with(name) is not None

    def _check_at_rest(self, name: str) -> None:
        reason = self._checkpoints.busy_with(name)
        if reason is not None:
            raise Conflict(
                f"the agent {name!r} is at work: {reason}",
                code="session-live",
                hints=[f"end it first: clia session cancel {name}"],
                fields={"agent": name},
            )

    def _check_not_followed(self, name: str) -> None:
        place = self._core.refs.followed_by(names.head(name))
        if place is not None:
            raise InvalidInput(
                f"the branch of {name!r} is checked out in {place}",
                code="branch-checked-out",
                hints=["switch that worktree to another branch first"],
                fields={"agent": name, "worktree": place},
            )

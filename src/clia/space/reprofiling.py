"""Recording another profile of an agent.

Invariant: the profile that the agent's commits name is the one in its record. Both change together: the record is moved first, and
moved back if the branch cannot be moved. The commit changes no file.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import StaleRef
from clia.git.records import FILE, TreeEntry
from clia.space.agents import AgentOrigin
from clia.space.envelope import RefMove
from clia.space.model import AGENT, BRIEFING, DECISION, PROFILE, TYPE
from clia.values import refs as names
from clia.values.typed_objects import as_bytes
from clia.values.types import REPROFILE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from clia.space.agents import Agents
    from clia.space.commits import Commits
    from clia.space.core import Core
    from clia.space.envelope import Envelope


class Reprofiling(NamedTuple):
    core: Core
    envelope: Envelope
    agents: Agents
    commits: Commits

    def record(
        self, name: str, before: Mapping[str, Any] | None, profile: Mapping[str, Any], message: str, decision: str | None
    ) -> tuple[str, str]:
        """Record a profile; return the commit and the id of the profile.

        ``before`` is the profile that the caller has compared; ``StaleRef`` if the record has another one now.
        ``decision``: the commit that approves a loss.
        """
        core = self.core
        with self.envelope.at_work(name):
            head = core.own_head(name)
            record = core.refs.get(names.record(name))
            if record is None or self.agents.origin_of(name).profile != before:
                fields = {"agent": name, "ref": names.record(name), "expected": None, "actual": record}
                raise StaleRef(f"the record of {name!r} has changed", hints=["try again"], fields=fields)
            entry = self._profile(profile)
            tree = core.objects.update_tree(core.objects.commit(record).tree, {"profile.json": entry})
            new_record = core.write_commit(name, tree, [record], f"record of {name}", [(AGENT, name), (TYPE, "record")], "record")
            last = core.last_own(name, head)
            trailers = [(AGENT, name), (TYPE, REPROFILE), (BRIEFING, last.briefing), (PROFILE, entry.cid), (DECISION, decision)]
            text = core.clean.text(message, "message")
            commit = core.write_commit(name, core.objects.commit(head).tree, [head], text, trailers, REPROFILE)
            intent = self.commits.intent(name, REPROFILE, head, commit, None)
            self.envelope.carry_out(intent._replace(before=(RefMove(names.record(name), record, new_record),)))
        return commit, entry.cid

    def _profile(self, profile: Mapping[str, Any]) -> TreeEntry:
        (value,) = AgentOrigin(profile=profile).objects().values()
        return TreeEntry(FILE, self.core.objects.write_blob(as_bytes(self.core.clean.value(value))))

"""The names of ``Space`` for verbs of its services are fixed: they were promised before there were services."""

from __future__ import annotations

from typing import TYPE_CHECKING

import clia
from clia.facade.space import Space
from clia.verbs import alias
from support.space_driver import BRIEFING, settings

if TYPE_CHECKING:
    from pathlib import Path

# Documented in README or docs, or used by the conformance suites, at b4cd6e2. A new verb gets no alias.
PROMISED = """
    add_behaviour add_peer adopt_behaviour agent_tree allowed announce archive ask attach_trace attempts
    behaviour behaviour_diff behaviour_stats behaviour_version brief briefing_of cancel change_peer changed
    check_answer check_flow claim compare_behaviours conflicts decide define elsewhere explain flow flows
    follow_policy fork genesis give_up grant grants hub_status hub_sync is_a journal key landings last_refused
    meet merged_into merged_sessions observation_gaps parent_agent peer pending propose_behaviour read
    record_of refusals register_type relate relink remote_behaviours remotes remove_peer replay_behaviour
    restore resume retire_behaviour reviewers reviewing reviews revoke rotate_key rule session session_log
    session_traces share start sub_agents suggest_behaviour sync trace trace_cid_for trace_for trace_history
    trace_once trace_pending trace_purge trace_search unrelate waiting window write
"""


def test_only_promised_names_are_aliases() -> None:
    aliases = {name for name, member in vars(Space).items() if isinstance(member, alias)}
    assert aliases == set(PROMISED.split())


def test_an_alias_is_the_verb_of_its_service(tmp_path: Path) -> None:
    with clia.init(tmp_path, settings=settings()) as space:
        space.spawn("scout", BRIEFING)
        space.trace("scout", "console", "1")  # a core verb that a service implements
        for name, entries in (("trace_pending", space.traces.pending("scout")), ("session_log", space.history.own("scout"))):
            assert getattr(space, name)("scout") == getattr(Space, name)(space, "scout") == entries
        assert all(callable(getattr(space, name)) for name in PROMISED.split())

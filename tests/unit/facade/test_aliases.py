"""The names of ``Space`` for verbs of its services are fixed: they were promised before there were services."""

from __future__ import annotations

from clia.facade.aliases import alias
from clia.facade.space import Space

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

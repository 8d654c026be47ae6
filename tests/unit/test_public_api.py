"""What users may build on, and what importing it costs."""

from __future__ import annotations

import hashlib
import inspect
import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import clia
from clia.client import RemoteSpace
from clia.values.typed_objects import as_bytes, as_typed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support import Tree


def test_the_exported_names_are_frozen() -> None:
    classes = ["Announced", "Behaviour", "BehaviourStats", "BehaviourVersion", "Briefing", "Comparison", "Conflicts"]
    classes += ["ConsoleTrace", "Decision", "Elsewhere", "File", "Fleet", "Flow", "Fork", "Grant", "HubStatus", "HubSynced", "Key"]
    classes += ["KnownBehaviour", "Landed", "Link", "Merged", "Peer"]
    classes += ["Rate", "Remote", "Replayed", "Request", "Session", "Settings", "Space", "Submodule", "Suggestion", "Synced"]
    classes += ["UpToDate"]
    functions = ["__version__", "agent_cli", "errors", "init", "lineage", "open"]
    assert clia.__all__ == [*classes, *functions]
    assert all(getattr(clia, name) is not None for name in clia.__all__)
    assert dir(clia) == sorted(clia.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        _ = clia.nothing


def test_the_signatures_are_frozen() -> None:
    found = {
        "lineage": str(inspect.signature(clia.lineage)),
        "agent_cli": str(inspect.signature(clia.agent_cli)),
        "init": str(inspect.signature(clia.init)),
        "open": str(inspect.signature(clia.open)),
    }
    path = "'str | os.PathLike[str]'"
    assert found == {
        "lineage": f"(path: {path}, slug: 'str', *, ceiling: 'str | os.PathLike[str] | None' = None, "
        "allow_uncontained: 'bool' = False) -> 'Lineage'",
        "agent_cli": "(slug: 'str') -> 'Callable[[Sequence[str] | None], int]'",
        "init": f"(path: {path} = '.', *, settings: 'Settings | None' = None, adopt: 'bool' = True, "
        "hub: 'str | None' = None) -> 'Space'",
        "open": f"(path: {path} = '.', *, settings: 'Settings | None' = None) -> 'Space'",
    }


def verbs_of(kind: type) -> dict[str, Callable[..., object]]:
    """The public functions of a class; a service that can be called stands for the function that it then is."""
    members = {name: each for name, each in inspect.getmembers(kind) if not name.startswith("_")}
    called = {name: vars(each)["__call__"] for name, each in members.items() if inspect.isclass(each) and "__call__" in vars(each)}
    return {name: each for name, each in members.items() if inspect.isfunction(each)} | called


def test_the_verbs_of_a_space_are_frozen() -> None:
    verbs = {name: list(inspect.signature(each).parameters)[1:] for name, each in verbs_of(clia.Space).items()}
    assert verbs == SPACE | SESSIONS | FEDERATION | BEHAVIOURS | {"alone": []}


def test_the_services_of_a_space_are_frozen() -> None:
    found = {name for name, each in inspect.getmembers(clia.Space, inspect.isclass) if not name.startswith("_")}
    things = {"agents", "behaviours", "captures", "fleet", "history", "hub"}
    assert found == things | {"local", "peers", "relations", "sessions", "traces", "types", "views"}


def test_a_remote_space_has_the_verbs_of_a_space_with_their_parameters_and_words() -> None:
    local, remote = (
        {name: each for name, each in inspect.getmembers(kind) if name[0] != "_"} for kind in (clia.Space, RemoteSpace)
    )
    assert set(remote) - set(local) == {"events"}
    assert set(local) <= set(remote)
    assert str(inspect.signature(RemoteSpace)) == (
        "(url: 'str', token: 'str', *, space: 'str | None' = None, timeout: 'float' = 30) -> 'None'"
    )
    here, there = verbs_of(clia.Space), verbs_of(RemoteSpace)
    assert set(here) == set(there) - {"events"}
    for name, function in here.items():
        assert inspect.signature(there[name]) == inspect.signature(function), name
        assert name == "close" or there[name].__doc__ == function.__doc__
        assert there[name].__module__ == "clia.api.remote_space"
    assert isinstance(remote["id"], property)
    assert remote["id"].__doc__ == local["id"].__doc__


def test_importing_the_client_loads_no_third_party_module() -> None:
    loaded = modules_after("import clia.client")
    assert {each.partition(".")[0] for each in loaded} - {"clia"} <= set(sys.stdlib_module_names)
    assert not any(each.startswith("clia.forge") for each in loaded)
    assert len([each for each in loaded if each.startswith("clia")]) <= 30


def test_a_session_and_a_request_answer_by_their_documented_names() -> None:
    assert clia.Request._fields == ("agent", "id", "kind", "tag", "payload", "since", "line", "session", "flow")
    assert clia.Decision._fields == ("cid", "agent", "request", "value", "by", "session")
    assert clia.Flow._fields == ("name", "cid", "source", "versions", "by", "at", "why")


def test_what_is_told_of_the_fleet_has_its_documented_names() -> None:
    assert clia.Fleet._fields == ("at", "machines", "workers", "forges", "leases", "queue", "questions", "people", "work")


def test_what_is_told_of_the_hub_has_its_documented_names() -> None:
    assert clia.HubStatus._fields == (
        *("remote", "address", "heads", "clone", "shared_store", "away_since", "away_reason"),
        *("refs", "owed", "behind", "forks", "elsewhere"),
    )
    assert clia.HubSynced._fields == ("ref", "what", "cid", "reason")
    assert clia.Fork._fields == ("agent", "base", "ours", "theirs", "ahead", "behind")
    assert clia.Elsewhere._fields == ("agent", "clone", "since")


def test_what_federation_answers_with_has_its_documented_names() -> None:
    assert clia.Key._fields == ("text", "space", "key", "mine", "chain", "fingerprint", "url")
    assert clia.Peer._fields == (
        *("name", "space", "keys", "fingerprint", "url", "trusted", "share"),
        *("seq", "heard", "level", "forked", "waiting", "agents"),
    )
    assert clia.Grant._fields == ("cid", "peer", "space", "type", "trigger", "execute", "expires", "by", "at")
    assert clia.Announced._fields == ("peer", "seq", "statements", "snapshot", "moves", "rung")
    assert clia.Synced._fields == ("peer", "accepted", "seq", "moves", "refused", "keys", "error", "waiting", "silent")
    assert clia.Remote._fields == ("peer", "agent", "head", "kind", "subject", "at", "record", "traces")


def test_what_is_told_of_behaviours_has_its_documented_names() -> None:
    assert clia.Behaviour._fields == ("name", "kind", "body", "meta", "parent", "notes")
    assert clia.BehaviourVersion._fields == (
        *("name", "cid", "kind", "state", "body", "parent", "notes"),
        *("by", "at", "why", "evidence", "origin"),
    )
    assert clia.KnownBehaviour._fields == ("name", "kind", "current", "versions", "history")
    assert clia.Rate._fields == ("measure", "good", "n", "rate", "low", "high")
    assert clia.BehaviourStats._fields == (
        *("cid", "name", "state", "commits", "sessions", "decisions", "merges", "outcomes", "landed", "reverted"),
        *("merge_seconds", "land_seconds", "trace", "tokens", "first", "last", "rates", "series"),
    )
    assert clia.Comparison._fields == ("before", "after", "measures")
    assert clia.Suggestion._fields == (
        *("name", "action", "cid", "measure", "current", "candidates", "why", "evidence", "least", "error", "expect"),
    )
    assert clia.Replayed._fields == (
        *("agent", "session", "flow", "with_", "same", "steps", "departs_at", "recorded", "unasked", "ended"),
        *("result", "failure", "recorded_status", "recorded_result", "recorded_failure", "printed", "in_part"),
    )


@pytest.mark.parametrize(
    ("made", "cid"),
    [
        (clia.Behaviour("greet", "prompt", "Say hello."), "56289cf0177e6cceef78de061a885973241501aa"),
        (clia.Behaviour("greet", "prompt", "Say hello.", {"tone": "kind"}), "4e4a329cfc15ce4b550901d9bd3c2fe0c13a495d"),
        (
            clia.Behaviour("echo", "session-flow", "def main(input):\n    return input\n"),
            "41e56091b46ee038634a7c27f55fc1c379fb90b2",
        ),
    ],
    ids=["prompt", "with meta", "flow"],
)
def test_a_behaviour_keeps_the_id_that_it_had_before_there_were_parents_and_notes(made: clia.Behaviour, cid: str) -> None:
    data = as_bytes(made.to_object())
    assert hashlib.sha1(b"blob %d\0%s" % (len(data), data), usedforsecurity=False).hexdigest() == cid
    assert as_typed(json.loads(data)) == made


BEHAVIOURS = {
    "add_behaviour": ["name", "body", "kind", "why", "notes", "by"],
    "adopt_behaviour": ["name", "version", "trial", "expect", "evidence", "measure", "why", "by"],
    "behaviour": ["name"],
    "behaviour_diff": ["one", "other"],
    "behaviour_stats": ["text", "over", "progress"],
    "behaviour_version": ["text"],
    "behaviours": [],
    "brief": ["prompt", "title", "task", "agent"],
    "compare_behaviours": ["before", "after", "progress"],
    "follow_policy": ["name"],
    "observation_gaps": [],
    "propose_behaviour": ["name", "body", "kind", "parent", "evidence", "why", "notes", "agent"],
    "replay_behaviour": ["agent", "with_", "session_id"],
    "retire_behaviour": ["name", "version", "expect", "why", "by"],
    "suggest_behaviour": ["name", "measure", "progress"],
}


FEDERATION = {
    "add_peer": ["name", "key", "url", "trusted"],
    "allowed": ["peer", "type_", "trigger", "execute"],
    "announce": ["peer", "snapshot", "push"],
    "change_peer": ["name", "url", "trusted"],
    "explain": ["peer", "type_", "trigger", "execute"],
    "grant": ["peer", "type_", "trigger", "execute", "expires"],
    "grants": ["peer"],
    "key": [],
    "peer": ["name"],
    "peers": [],
    "refusals": ["name"],
    "remotes": ["peer"],
    "remote_behaviours": ["peer"],
    "remove_peer": ["name"],
    "revoke": ["peer", "type_", "trigger", "cid"],
    "rotate_key": ["lost"],
    "share": ["name", "agents", "traces", "sessions", "behaviours"],
    "sync": ["peer", "progress"],
    "waiting": ["name"],
}


SESSIONS = {
    "ask": ["agent", "payload"],
    "attempts": [],
    "cancel": ["agent", "reason", "session_id"],
    "check_flow": ["source", "types"],
    "check_answer": ["request", "value"],
    "decide": ["agent", "value", "rationale", "by", "request_id"],
    "define": ["name", "source", "why"],
    "doctor": ["repair"],
    "fleet": [],
    "flow": ["text"],
    "flows": [],
    "fork": ["agent", "as_agent", "at"],
    "give_up": ["agent", "reason", "request_id", "by"],
    "journal": ["agent", "session_id"],
    "pending": ["agent"],
    "resume": ["agent", "value", "request_id", "by"],
    "rule": ["request"],
    "session": ["agent", "session_id"],
    "sessions": ["agent", "live"],
    "start": ["agent", "flow", "input", "timezone"],
}


SPACE = {
    "adopt": ["remote", "fetch"],
    "agent_tree": ["name"],
    "agents": ["archived", "after", "limit"],
    "archive": ["name"],
    "attach_trace": ["commit", "entries", "agent"],
    "blame": ["text", "path"],
    "briefing_of": ["name"],
    "changed": ["text", "other", "paths"],
    "checkout": ["name", "directory"],
    "checkout_at": ["directory"],
    "claim": ["name"],
    "close": [],
    "commit": ["name", "kind", "files", "changes", "message", "meta", "base"],
    "commit_dir": ["name", "kind", "directory", "message", "meta", "base", "with_trace"],
    "commit_with_trace": ["name", "kind", "files", "changes", "message", "meta", "base"],
    "conflicts": ["into", "from_"],
    "diff": ["text", "other", "paths"],
    "elsewhere": ["agents"],
    "files": ["text"],
    "find": ["text"],
    "fork_point": ["one", "other"],
    "genesis": ["name"],
    "head": ["name"],
    "hub_status": [],
    "hub_sync": ["forks", "abandon", "progress"],
    "is_a": ["name", "ancestor"],
    "land": ["name", "onto", "squash", "no_ff", "message"],
    "landings": ["name"],
    "last_refused": ["into", "from_"],
    "log": ["text", "own", "limit"],
    "maintain": ["archive_idle_days", "dry_run"],
    "meet": ["name"],
    "merge": ["into", "from_", "message", "meta"],
    "merged_into": ["name"],
    "merged_sessions": ["name"],
    "parent_agent": ["name"],
    "publish": ["agents", "remote", "traces", "federation"],
    "read": ["cid"],
    "rebuild": ["progress"],
    "record_of": ["name"],
    "register_type": ["name", "parent"],
    "relate": ["src", "kind", "dst"],
    "relations": ["touching"],
    "relink": ["onto"],
    "resolve": ["into", "from_", "files", "ours", "theirs", "changes", "message", "meta"],
    "restore": ["name"],
    "reviewers": ["name"],
    "reviewing": ["name"],
    "reviews": ["reviewer", "reviewee"],
    "session_log": ["name"],
    "session_traces": ["name"],
    "show": ["text"],
    "spawn": ["name", "briefing", "slug"],
    "spawn_at": ["name", "briefing", "commit", "parent", "slug"],
    "spawn_from": ["name", "briefing", "parent", "slug"],
    "states": ["after", "limit"],
    "sub_agents": ["name"],
    "trace": ["name", "kind", "text", "data"],
    "trace_cid_for": ["commit"],
    "trace_for": ["commit"],
    "trace_history": ["commit"],
    "trace_once": ["name", "entries"],
    "trace_pending": ["name"],
    "trace_purge": ["agent", "text"],
    "trace_search": ["text", "agent", "regex"],
    "types": [],
    "unrelate": ["src", "kind", "dst"],
    "verify": ["progress"],
    "window": ["texts", "limit"],
    "write": ["thing"],
}


def test_a_lineage_answers_by_its_documented_names(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", title="here")
    found = clia.lineage(tree.root / "w", "scout")
    for answer in (found.context(), found.profile(), found.plan(), found.agency()):
        assert answer.diagnostics == ()
    assert found.explain("/title").value == "here"
    assert dict(found.profile())["title"] == found.profile().get("title") == "here"
    assert "title" in found.profile()
    assert len(found.profile()) == len(list(found.profile()))


def modules_after(code: str) -> set[str]:
    script = f"import sys; before = set(sys.modules)\n{code}\nimport json; print(json.dumps(sorted(set(sys.modules) - before)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_a_commit_loads_only_what_it_needs(tmp_path: Path) -> None:
    with clia.init(tmp_path / "repo") as space:
        space.spawn("scout", clia.Briefing("Look around"))
    loaded = modules_after(
        f"import clia\nwith clia.open({str(tmp_path / 'repo')!r}) as space: space.commit('scout', 'finding', {{'a': b'1'}})"
    )
    ours = {each for each in loaded if each.startswith("clia")}
    assert len(ours) <= 70
    assert not any(each.startswith(("clia.federation", "clia.behaviours", "clia.hub", "clia.engine")) for each in ours)


def test_importing_clia_loads_no_third_party_module_and_hardly_any_other() -> None:
    loaded = modules_after("import clia")
    assert {each.partition(".")[0] for each in loaded} - {"clia"} <= set(sys.stdlib_module_names)
    assert {each for each in loaded if each.startswith("clia")} == {"clia", "clia.errors"}


def test_every_name_works_whatever_was_imported_before() -> None:
    loaded = modules_after(
        "import clia.identities.lineage, clia.cli.main, clia\nassert callable(clia.lineage) and callable(clia.agent_cli)"
    )
    assert {"clia.identities.lineage", "clia.cli.main"} <= loaded


def test_a_read_loads_no_third_party_module_no_clock_and_no_process(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", title="here", inherits=["none"])
    code = f"import clia; found = clia.lineage({tree.path('w')!r}, 'scout'); found.context(); found.profile()"
    loaded = modules_after(code)
    names = {each.partition(".")[0] for each in loaded}
    assert names - {"clia"} <= set(sys.stdlib_module_names)
    assert not names & {"datetime", "time", "random", "subprocess", "dataclasses", "inspect", "pathlib", "socket"}

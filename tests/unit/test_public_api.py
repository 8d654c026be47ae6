"""The public API, and the modules that importing it loads."""

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
    signatures = {
        "lineage": str(inspect.signature(clia.lineage)),
        "agent_cli": str(inspect.signature(clia.agent_cli)),
        "init": str(inspect.signature(clia.init)),
        "open": str(inspect.signature(clia.open)),
    }
    path = "'str | os.PathLike[str]'"
    assert signatures == {
        "lineage": f"(path: {path}, slug: 'str', *, ceiling: 'str | os.PathLike[str] | None' = None, "
        "allow_uncontained: 'bool' = False, agents_dir: 'str | os.PathLike[str] | None' = None) -> 'Lineage'",
        "agent_cli": "(slug: 'str') -> 'Callable[[Sequence[str] | None], int]'",
        "init": f"(path: {path} = '.', *, settings: 'Settings | None' = None, adopt: 'bool' = True, "
        "hub: 'str | None' = None) -> 'Space'",
        "open": f"(path: {path} = '.', *, settings: 'Settings | None' = None) -> 'Space'",
    }


def verbs_of(kind: type) -> dict[str, Callable[..., object]]:
    """The public functions of a class. A callable service counts as a function."""
    members = {name: member for name, member in inspect.getmembers(kind) if not name.startswith("_")}
    called = {
        name: vars(member)["__call__"] for name, member in members.items() if inspect.isclass(member) and "__call__" in vars(member)
    }
    return {name: member for name, member in members.items() if inspect.isfunction(member)} | called


def test_the_verbs_of_a_space_are_frozen() -> None:
    verbs = {name: list(inspect.signature(function).parameters)[1:] for name, function in verbs_of(clia.Space).items()}
    assert verbs == SPACE | SESSIONS | FEDERATION | BEHAVIOURS | {"alone": [], "budgets": ["name"], "identities": ["all_"]}


def test_the_services_of_a_space_are_frozen() -> None:
    services = {name for name, member in inspect.getmembers(clia.Space, inspect.isclass) if not name.startswith("_")}
    nouns = {"agents", "behaviours", "budgets", "captures", "changes", "fleet", "history", "hub", "identities"}
    assert services == nouns | {
        "local",
        "peers",
        "relations",
        "provenance",
        "sessions",
        "traces",
        "trust",
        "types",
        "undoing",
        "views",
        "witnesses",
    }


def test_a_remote_space_has_the_verbs_of_a_space_with_their_parameters_and_docstrings() -> None:
    local, remote = (
        {name: member for name, member in inspect.getmembers(kind) if name[0] != "_"} for kind in (clia.Space, RemoteSpace)
    )
    assert set(remote) - set(local) == {"events"}
    assert set(local) <= set(remote)
    assert str(inspect.signature(RemoteSpace)) == (
        "(url: 'str', token: 'str', *, space: 'str | None' = None, timeout: 'float' = 30) -> 'None'"
    )
    local_verbs, remote_verbs = verbs_of(clia.Space), verbs_of(RemoteSpace)
    assert set(local_verbs) == set(remote_verbs) - {"events"}
    for name, function in local_verbs.items():
        assert inspect.signature(remote_verbs[name]) == inspect.signature(function), name
        assert name == "close" or remote_verbs[name].__doc__ == function.__doc__
        assert remote_verbs[name].__module__ == "clia.api.remote_space"
    assert isinstance(remote["id"], property)
    assert remote["id"].__doc__ == local["id"].__doc__


def test_importing_the_client_loads_no_third_party_module() -> None:
    loaded = modules_after("import clia.client")
    assert {name.partition(".")[0] for name in loaded} - {"clia"} <= set(sys.stdlib_module_names)
    assert not any(name.startswith("clia.forge") for name in loaded)
    assert len([name for name in loaded if name.startswith("clia")]) <= 30


def test_a_session_and_a_request_have_their_documented_names() -> None:
    assert clia.Request._fields == ("agent", "id", "kind", "tag", "payload", "since", "line", "session", "flow")
    assert clia.Decision._fields == ("cid", "agent", "request", "value", "by", "session", "redacted")
    assert clia.Flow._fields == ("name", "cid", "source", "versions", "by", "at", "why")


def test_the_records_of_the_fleet_have_their_documented_names() -> None:
    assert clia.Fleet._fields == ("at", "machines", "workers", "forges", "leases", "queue", "questions", "people", "work")


def test_the_records_of_the_hub_have_their_documented_names() -> None:
    assert clia.HubStatus._fields == (
        *("remote", "address", "heads", "clone", "shared_store", "away_since", "away_reason"),
        *("refs", "owed", "behind", "forks", "elsewhere"),
    )
    assert clia.HubSynced._fields == ("ref", "what", "cid", "reason")
    assert clia.Fork._fields == ("agent", "base", "ours", "theirs", "ahead", "behind")
    assert clia.Elsewhere._fields == ("agent", "clone", "since")


def test_the_records_of_federation_have_their_documented_names() -> None:
    assert clia.Key._fields == ("text", "space", "key", "mine", "chain", "fingerprint", "url")
    assert clia.Peer._fields == (
        *("name", "space", "keys", "fingerprint", "url", "trusted", "share"),
        *("seq", "heard", "level", "forked", "waiting", "agents"),
    )
    assert clia.Grant._fields == ("cid", "peer", "space", "type", "trigger", "execute", "expires", "by", "at")
    assert clia.Announced._fields == ("peer", "seq", "statements", "snapshot", "moves", "rung")
    assert clia.Synced._fields == ("peer", "accepted", "seq", "moves", "refused", "keys", "error", "waiting", "silent")
    assert clia.Remote._fields == ("peer", "agent", "head", "kind", "subject", "at", "record", "traces")


def test_the_records_of_behaviours_have_their_documented_names() -> None:
    assert clia.Behaviour._fields == ("name", "kind", "body", "meta", "parent", "notes")
    assert clia.BehaviourVersion._fields == (
        *("name", "cid", "kind", "state", "body", "parent", "notes"),
        *("by", "at", "why", "evidence", "origin", "document"),
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
    ("behaviour", "cid"),
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
def test_a_behaviour_keeps_the_id_from_before_parents_and_notes_existed(behaviour: clia.Behaviour, cid: str) -> None:
    data = as_bytes(behaviour.to_object())
    assert hashlib.sha1(b"blob %d\0%s" % (len(data), data), usedforsecurity=False).hexdigest() == cid
    assert as_typed(json.loads(data)) == behaviour


BEHAVIOURS = {
    "add_behaviour": ["name", "body", "kind", "document", "why", "notes", "by"],
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
    "propose_behaviour": ["name", "body", "kind", "parent", "evidence", "why", "notes", "document", "agent"],
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
    "fork": ["agent", "as_agent", "at", "briefing"],
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
    "changes": ["onto"],
    "why": ["path", "line", "commit", "end"],
    "agent_tree": ["name"],
    "agents": ["archived", "after", "limit"],
    "archive": ["name"],
    "attach_trace": ["commit", "entries", "agent"],
    "blame": ["text", "path", "start", "limit"],
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
    "land": ["name", "onto", "squash", "no_ff", "how", "message", "head"],
    "landings": ["name"],
    "last_refused": ["into", "from_"],
    "log": ["text", "own", "limit"],
    "maintain": ["archive_idle_days", "dry_run"],
    "meet": ["name"],
    "merge": ["into", "from_", "message", "meta"],
    "merged_into": ["name"],
    "merged_sessions": ["name"],
    "parent_agent": ["name"],
    "publish": ["agents", "remote", "traces", "federation", "heads"],
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
    "spawn": ["name", "briefing", "slug", "accept_incomplete"],
    "spawn_at": ["name", "briefing", "commit", "parent", "slug", "accept_incomplete"],
    "spawn_from": ["name", "briefing", "parent", "slug", "accept_incomplete"],
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


def test_a_lineage_has_its_documented_names(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", title="here")
    scout = clia.lineage(tree.root / "w", "scout")
    for answer in (scout.context(), scout.profile(), scout.plan(), scout.agency()):
        assert answer.diagnostics == ()
    assert scout.explain("/title").value == "here"
    assert dict(scout.profile())["title"] == scout.profile().get("title") == "here"
    assert "title" in scout.profile()
    assert len(scout.profile()) == len(list(scout.profile()))


def modules_after(code: str) -> set[str]:
    script = f"import sys; before = set(sys.modules)\n{code}\nimport json; print(json.dumps(sorted(set(sys.modules) - before)))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(result.stdout.splitlines()[-1]))


def test_a_commit_loads_only_what_it_needs(tmp_path: Path) -> None:
    with clia.init(tmp_path / "repo") as space:
        space.spawn("scout", clia.Briefing("Look around"))
    loaded = modules_after(
        f"import clia\nwith clia.open({str(tmp_path / 'repo')!r}) as space: space.commit('scout', 'finding', {{'a': b'1'}})"
    )
    clia_modules = {name for name in loaded if name.startswith("clia")}
    assert len(clia_modules) <= 70
    assert not any(name.startswith(("clia.federation", "clia.behaviours", "clia.hub", "clia.engine")) for name in clia_modules)


def test_importing_clia_loads_only_its_errors_and_no_third_party_module() -> None:
    loaded = modules_after("import clia")
    assert {name.partition(".")[0] for name in loaded} - {"clia"} <= set(sys.stdlib_module_names)
    assert {name for name in loaded if name.startswith("clia")} == {"clia", "clia.errors"}


def test_every_exported_name_works_independently_of_earlier_imports() -> None:
    loaded = modules_after(
        "import clia.identities.lineage, clia.cli.main, clia\nassert callable(clia.lineage) and callable(clia.agent_cli)"
    )
    assert {"clia.identities.lineage", "clia.cli.main"} <= loaded


def test_a_read_loads_no_third_party_module_no_clock_and_no_process(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", title="here", inherits=["none"])
    code = f"import clia; found = clia.lineage({tree.path('w')!r}, 'scout'); found.context(); found.profile()"
    loaded = modules_after(code)
    names = {name.partition(".")[0] for name in loaded}
    assert names - {"clia"} <= set(sys.stdlib_module_names)
    assert not names & {"datetime", "time", "random", "subprocess", "dataclasses", "inspect", "pathlib", "socket"}

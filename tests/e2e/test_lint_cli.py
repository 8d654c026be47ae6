"""``clia agents lint|smoke|list|schema`` as installed."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest
import yaml
from jsonschema import Draft202012Validator

from clia.identities.diagnostics import CODES
from support import clia, git

if TYPE_CHECKING:
    from support import Ran, Tree

ODD = "lib, v1: %\n::error::x"
CHECKOUT = Path(__file__).parents[2]


@pytest.fixture
def team(tree: Tree) -> Tree:
    """A repository with an error, a warning, and text that would like to break out."""
    tree.directory("w")
    git("init", "-q", cwd=tree.root / "w")
    tree.agent("w", "root", title="Directives")
    tree.agent("w", "scout", title="Scout\n::error::injected % \x1b[31m", mentors=[{"name": 5}])
    tree.agent(f"w/{ODD}", "clerk", inherits=[".clia/agents/root/root@w.agent.triad.json"], tags=[5])
    return tree


def lint(tree: Tree, *words: str, where: str = "w", **more: Any) -> Ran:
    return clia("agents", "lint", "--path", tree.path(where), "--ceiling", tree.path(), *words, **more)


def test_errors_exit_1_and_are_shown_with_place_and_hint(team: Tree) -> None:
    ran = lint(team)
    assert ran.code == 1
    assert ".clia/agents/scout/scout@w.agent.triad.json" in ran.out
    for part in ("ansi-escape  /title", "schema  /mentors/0/name", "inherits-root-missing  /inherits", CODES["schema"].hint):
        assert part in ran.out
    assert ran.out.endswith("3 checked: 3 errors, 1 warning\n")
    assert "\x1b" not in ran.out
    assert "\n::error" not in ran.out
    assert ran.err == ""


def test_warnings_exit_0_and_with_strict_1(tree: Tree) -> None:
    tree.directory("w")
    git("init", "-q", cwd=tree.root / "w")
    tree.document("w", "scout", "agent", name="scout.agent.json")
    assert lint(tree).code == 0
    assert "legacy-name" in lint(tree).out
    assert lint(tree, "--strict").code == 1


def test_a_tree_in_order_exits_0(tree: Tree) -> None:
    tree.directory("w")
    git("init", "-q", cwd=tree.root / "w")
    tree.agent("w")
    tree.agent("w", "idle", status="paused", tags=5)
    ran = lint(tree, "--strict")
    assert (ran.code, ran.out) == (0, "1 checked, 1 inactive skipped: nothing found\n")


@pytest.mark.parametrize("words", [["--json"], ["--format", "json"]])
def test_json_has_every_finding_and_a_summary(team: Tree, words: list[str]) -> None:
    ran = lint(team, *words)
    found = ran.json()
    assert ran.code == 1
    assert list(found) == ["path", "agents", "findings", "summary"]
    assert [each["slug"] for each in found["agents"]] == ["clerk", "root", "scout"]
    assert set(found["findings"][0]) == {"code", "severity", "path", "pointer", "message", "hint"}
    assert found["summary"] == {"error": 3, "warning": 1, "info": 0}
    assert [each["path"] for each in found["findings"]] == sorted(each["path"] for each in found["findings"])


# The part of SARIF 2.1.0 that GitHub's code scanning reads, with what it requires.
SARIF = {
    "type": "object",
    "required": ["$schema", "version", "runs"],
    "properties": {
        "version": {"const": "2.1.0"},
        "runs": {
            "minItems": 1,
            "items": {
                "required": ["tool", "results"],
                "properties": {
                    "tool": {
                        "required": ["driver"],
                        "properties": {
                            "driver": {
                                "required": ["name", "rules"],
                                "properties": {
                                    "rules": {
                                        "items": {
                                            "required": ["id", "shortDescription", "help", "defaultConfiguration"],
                                            "properties": {
                                                "shortDescription": {"required": ["text"]},
                                                "help": {"required": ["text"]},
                                                "defaultConfiguration": {
                                                    "properties": {"level": {"enum": ["error", "warning", "note", "none"]}}
                                                },
                                            },
                                        }
                                    }
                                },
                            }
                        },
                    },
                    "results": {
                        "items": {
                            "required": ["ruleId", "ruleIndex", "level", "message", "locations"],
                            "properties": {
                                "level": {"enum": ["error", "warning", "note"]},
                                "message": {"required": ["text"]},
                                "locations": {
                                    "minItems": 1,
                                    "items": {
                                        "required": ["physicalLocation"],
                                        "properties": {
                                            "physicalLocation": {
                                                "required": ["artifactLocation", "region"],
                                                "properties": {
                                                    "artifactLocation": {
                                                        "required": ["uri"],
                                                        "properties": {"uri": {"pattern": r"^[A-Za-z0-9%._~/@:-]+$"}},
                                                    },
                                                    "region": {
                                                        "required": ["startLine"],
                                                        "properties": {"startLine": {"type": "integer", "minimum": 1}},
                                                    },
                                                },
                                            }
                                        },
                                    },
                                },
                            },
                        }
                    },
                },
            },
        },
    },
}


def test_sarif_has_rules_for_all_codes_and_results_with_relative_files_and_lines(team: Tree) -> None:
    ran = lint(team, "--format", "sarif")
    assert ran.code == 1
    found = ran.json()
    Draft202012Validator(SARIF).validate(found)
    (run,) = found["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [each["id"] for each in rules] == list(CODES)
    expected = [(each["code"], each["path"], each["pointer"]) for each in lint(team, "--json").json()["findings"]]
    got = []
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        (location,) = result["locations"]
        physical = location["physicalLocation"]
        assert physical["artifactLocation"]["uriBaseId"] == "ROOT"
        path = team.root / "w" / unquote(physical["artifactLocation"]["uri"])
        (logical,) = location["logicalLocations"]
        got.append((result["ruleId"], str(path), logical["fullyQualifiedName"]))
        if result["ruleId"] == "schema":
            line = path.read_text().splitlines()[physical["region"]["startLine"] - 1]
            assert line.strip().endswith("5"), line
    assert got == expected
    assert run["originalUriBaseIds"]["ROOT"]["uri"] == f"file://{team.path('w')}/"


def test_sarif_names_a_file_outside_the_path_whole(tree: Tree) -> None:
    tree.repository("w")
    document = tree.agent("w", tags=[5])
    tree.directory("w/s")
    results = lint(tree, "--format", "sarif", where="w/s").json()["runs"][0]["results"]
    uris = {each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for each in results if each["ruleId"] == "schema"}
    assert uris == {f"file://{document}"}


COMMAND = re.compile(r"::(error|warning|notice) ((?:[a-z]+=[^:,\n]*)(?:,[a-z]+=[^:,\n]*)*)::(.*)")


def test_github_commands_are_whole_lines_that_read_back(team: Tree) -> None:
    ran = lint(team, "--format", "github")
    assert ran.code == 1
    parsed = [COMMAND.fullmatch(line) for line in ran.out.splitlines()]
    assert all(parsed), ran.out
    assert len(parsed) == 4
    properties = [dict(pair.split("=", 1) for pair in each.group(2).split(",")) for each in parsed if each]
    files = [each["file"].replace("%3A", ":").replace("%2C", ",").replace("%0A", "\n").replace("%25", "%") for each in properties]
    assert all((team.root / "w" / each).is_file() for each in files)
    assert f"{ODD}/.clia/agents/clerk/clerk@{ODD}.agent.triad.json" in files
    assert all(int(each["line"]) >= 1 for each in properties)
    assert "\x1b" not in ran.out


def test_github_files_are_relative_to_the_checkout(team: Tree) -> None:
    where = f"w/{ODD}"
    ran = lint(team, "--format", "github", where=where, env={"GITHUB_WORKSPACE": team.path("w")})
    assert "file=lib%2C v1%3A %25%0A%3A%3Aerror%3A%3Ax/.clia/agents/clerk/" in ran.out
    elsewhere = lint(team, "--format", "github", where=where, env={"GITHUB_WORKSPACE": "/nowhere"})
    assert "file=.clia/agents/clerk/" in elsewhere.out


def test_a_document_cannot_start_a_command_of_its_own(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", guardrails=["One must rest."])
    tree.agent("w/s", guardrails=["One should rest.\r\n::error::injected\r\n%0A"])
    tree.agent("w/s/t", guardrails=["One may rest.\n::error::injected %0a"])
    for line in lint(tree, "--format", "github").out.splitlines():
        assert COMMAND.fullmatch(line), line
        assert not line.startswith("::error::")


def test_bad_input_exits_2(team: Tree) -> None:
    for ran in (
        lint(team, where="nowhere"),
        lint(team, "--slug", "../x"),
        lint(team, "--slug", "nobody"),
        lint(team, "--format", "xml"),
        clia("agents", "lint", "--path", team.path("w"), "--ceiling", team.path(f"w/{ODD}")),
    ):
        assert ran.code == 2
        assert ran.out == ""
        assert ran.err
        assert "Traceback" not in ran.err
    assert json.loads(lint(team, "--json", where="nowhere").err)["error"]["code"] == "no-such-path"


def test_one_agent_can_be_asked_for(team: Tree) -> None:
    found = lint(team, "--slug", "clerk", "--json").json()
    assert [each["slug"] for each in found["agents"]] == ["clerk"]
    assert {each["code"] for each in found["findings"]} == {"schema"}


def test_every_format_is_the_same_under_any_hash_seed(team: Tree) -> None:
    for form in ("text", "json", "sarif", "github"):
        outputs = {lint(team, "--format", form, env={"PYTHONHASHSEED": seed}).out for seed in ("0", "1", "2")}
        assert len(outputs) == 1


def test_lint_works_without_git_and_says_so(team: Tree, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    found = lint(team, "--json", env={"PATH": str(bare)}).json()
    assert "history-unavailable" in [each["code"] for each in found["findings"]]


def test_smoke_tells_one_line_an_agent_and_exits_1_on_errors(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", "a", title="x")
    tree.agent("w/s", "a")
    tree.agent("w", "b", status="paused")
    ran = clia("agents", "smoke", "--path", tree.path("w"), "--ceiling", tree.path())
    assert ran.code == 0
    assert ran.out.splitlines()[:3] == [
        f"ok    a  {tree.path('w')}  1 context",
        "ok    a  s  2 contexts",
        f"ok    b  {tree.path('w')}  1 context",
    ]
    tree.write("w/.clia/agents/c/c.agency.triad.json", "{")
    ran = clia("agents", "smoke", "--path", tree.path("w"), "--json")
    assert ran.code == 1
    assert [(each["slug"], each["ok"]) for each in ran.json()["agents"] if each["slug"] == "c"] == [("c", False)]


def test_smoke_holds_the_lossless_merge_policy(tree: Tree) -> None:
    document = tree.agent("w")
    git("init", "-q", cwd=tree.root / "w")
    git("add", "-A", cwd=tree.root / "w")
    git("commit", "-q", "-m", "x", cwd=tree.root / "w")
    assert clia("agents", "smoke", "--path", tree.path("w")).code == 0
    document.unlink()
    ran = clia("agents", "smoke", "--path", tree.path("w"))
    assert ran.code == 1
    assert "removed-without-archive" in ran.out


def test_list_shows_people_a_table_and_programs_json(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", title="Scout", role="finder", extensions={"x-badge": "[S]", "x-emoji": "🧭"})
    tree.agent("w", "Not One")
    ran = clia("agents", "list", "--path", tree.path("w"), "--ceiling", tree.path(), env={"COLUMNS": "300"})
    assert ran.code == 0
    assert re.search(r"🧭 \[S\]\s+scout\s+Scout\s+finder", ran.out)
    assert "invalid-slug" in ran.err
    found = clia("agents", "list", "--path", tree.path("w"), "--ceiling", tree.path(), "--json").json()
    assert list(found) == ["path", "agents", "diagnostics"]
    tree.write("w/.clia/agents/bad/bad.agent.triad.json", "{")
    assert clia("agents", "list", "--path", tree.path("w")).code == 2
    empty = clia("agents", "list", "--path", str(tree.directory("empty")), "--ceiling", tree.path("empty"))
    assert (empty.code, empty.out.startswith("no identities")) == (0, True)


def test_the_schemas_are_printed_one_or_all(tree: Tree) -> None:
    every = clia("agents", "schema").json()
    assert list(every) == ["agent", "agenda", "agency"]
    for kind, schema in every.items():
        Draft202012Validator.check_schema(schema)
        assert clia("agents", "schema", kind, "--json").json() == schema
    assert clia("agents", "schema", "persona").code == 2
    Draft202012Validator(every["agent"]).validate({"slug": "a"})


def test_the_pre_commit_hook_runs_a_command_that_exists(tree: Tree) -> None:
    (hook,) = yaml.safe_load((CHECKOUT / ".pre-commit-hooks.yaml").read_text())
    assert (hook["id"], hook["language"], hook["pass_filenames"]) == ("clia-agents-lint", "python", False)
    tree.repository("w")
    tree.agent("w", tags=[5])
    program, *words = hook["entry"].split()
    ran = clia(*words, cwd=tree.root / "w")
    assert (program, ran.code) == ("clia", 1)


def test_reading_changes_nothing_in_a_real_repository(team: Tree) -> None:
    git("add", "-A", cwd=team.root / "w")
    git("commit", "-q", "-m", "x", cwd=team.root / "w")
    os.utime(team.root / "w/.clia/agents/scout/scout@w.agent.triad.json", (1, 1))  # the index would like to be refreshed
    before = team.snapshot()
    for command in ("lint", "smoke", "doctor", "list"):
        clia("agents", command, "--path", team.path("w"))
    assert team.snapshot() == before

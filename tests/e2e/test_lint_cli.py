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
    """A repository with an error, a warning, and text that tries to break the output formats."""
    tree.directory("w")
    git("init", "-q", cwd=tree.root / "w")
    tree.agent("w", "root", title="Directives")
    tree.agent("w", "scout", title="Scout\n::error::injected % \x1b[31m", mentors=[{"name": 5}])
    tree.agent(f"w/{ODD}", "clerk", inherits=[".clia/agents/root/root@w.agent.triad.json"], tags=[5])
    return tree


def lint(tree: Tree, *words: str, directory: str = "w", **more: Any) -> Ran:
    return clia("agents", "lint", "--path", tree.path(directory), "--ceiling", tree.path(), *words, **more)


def test_errors_exit_1_and_are_shown_with_location_and_hint(team: Tree) -> None:
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


def test_a_tree_without_findings_exits_0(tree: Tree) -> None:
    tree.directory("w")
    git("init", "-q", cwd=tree.root / "w")
    tree.agent("w")
    tree.agent("w", "idle", status="paused", tags=5)
    ran = lint(tree, "--strict")
    assert (ran.code, ran.out) == (0, "1 checked, 1 inactive skipped: nothing found\n")


@pytest.mark.parametrize("words", [["--json"], ["--format", "json"]])
def test_json_has_every_finding_and_a_summary(team: Tree, words: list[str]) -> None:
    ran = lint(team, *words)
    report = ran.json()
    assert ran.code == 1
    assert list(report) == ["path", "agents", "findings", "summary"]
    assert [agent["slug"] for agent in report["agents"]] == ["clerk", "root", "scout"]
    assert set(report["findings"][0]) == {"code", "severity", "path", "pointer", "message", "hint"}
    assert report["summary"] == {"error": 3, "warning": 1, "info": 0}
    assert [finding["path"] for finding in report["findings"]] == sorted(finding["path"] for finding in report["findings"])


# The part of SARIF 2.1.0 that GitHub's code scanning reads, with its required fields.
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
    report = ran.json()
    Draft202012Validator(SARIF).validate(report)
    (run,) = report["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == list(CODES)
    expected = [(finding["code"], finding["path"], finding["pointer"]) for finding in lint(team, "--json").json()["findings"]]
    results_found = []
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        (location,) = result["locations"]
        physical = location["physicalLocation"]
        assert physical["artifactLocation"]["uriBaseId"] == "ROOT"
        path = team.root / "w" / unquote(physical["artifactLocation"]["uri"])
        (logical,) = location["logicalLocations"]
        results_found.append((result["ruleId"], str(path), logical["fullyQualifiedName"]))
        if result["ruleId"] == "schema":
            line = path.read_text().splitlines()[physical["region"]["startLine"] - 1]
            assert line.strip().endswith("5"), line
    assert results_found == expected
    assert run["originalUriBaseIds"]["ROOT"]["uri"] == f"file://{team.path('w')}/"


def test_sarif_has_the_full_path_of_a_file_outside_of_the_path(tree: Tree) -> None:
    tree.repository("w")
    document = tree.agent("w", tags=[5])
    tree.directory("w/s")
    results = lint(tree, "--format", "sarif", directory="w/s").json()["runs"][0]["results"]
    uris = {
        result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for result in results if result["ruleId"] == "schema"
    }
    assert uris == {f"file://{document}"}


COMMAND = re.compile(r"::(error|warning|notice) ((?:[a-z]+=[^:,\n]*)(?:,[a-z]+=[^:,\n]*)*)::(.*)")


def test_github_commands_are_complete_lines_that_can_be_parsed(team: Tree) -> None:
    ran = lint(team, "--format", "github")
    assert ran.code == 1
    parsed = [COMMAND.fullmatch(line) for line in ran.out.splitlines()]
    assert all(parsed), ran.out
    assert len(parsed) == 4
    properties = [dict(pair.split("=", 1) for pair in match.group(2).split(",")) for match in parsed if match]
    files = [
        annotation["file"].replace("%3A", ":").replace("%2C", ",").replace("%0A", "\n").replace("%25", "%")
        for annotation in properties
    ]
    assert all((team.root / "w" / name).is_file() for name in files)
    assert f"{ODD}/.clia/agents/clerk/clerk@{ODD}.agent.triad.json" in files
    assert all(int(annotation["line"]) >= 1 for annotation in properties)
    assert "\x1b" not in ran.out


def test_github_files_are_relative_to_the_checkout(team: Tree) -> None:
    directory = f"w/{ODD}"
    ran = lint(team, "--format", "github", directory=directory, env={"GITHUB_WORKSPACE": team.path("w")})
    assert "file=lib%2C v1%3A %25%0A%3A%3Aerror%3A%3Ax/.clia/agents/clerk/" in ran.out
    elsewhere = lint(team, "--format", "github", directory=directory, env={"GITHUB_WORKSPACE": "/nowhere"})
    assert "file=.clia/agents/clerk/" in elsewhere.out


def test_a_document_cannot_inject_a_github_command(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", guardrails=["One must rest."])
    tree.agent("w/s", guardrails=["One should rest.\r\n::error::injected\r\n%0A"])
    tree.agent("w/s/t", guardrails=["One may rest.\n::error::injected %0a"])
    for line in lint(tree, "--format", "github").out.splitlines():
        assert COMMAND.fullmatch(line), line
        assert not line.startswith("::error::")


def test_bad_input_exits_2(team: Tree) -> None:
    for ran in (
        lint(team, directory="nowhere"),
        lint(team, "--slug", "../x"),
        lint(team, "--slug", "nobody"),
        lint(team, "--format", "xml"),
        clia("agents", "lint", "--path", team.path("w"), "--ceiling", team.path(f"w/{ODD}")),
    ):
        assert ran.code == 2
        assert ran.out == ""
        assert ran.err
        assert "Traceback" not in ran.err
    assert json.loads(lint(team, "--json", directory="nowhere").err)["error"]["code"] == "no-such-path"


def test_slug_limits_lint_to_one_agent(team: Tree) -> None:
    report = lint(team, "--slug", "clerk", "--json").json()
    assert [agent["slug"] for agent in report["agents"]] == ["clerk"]
    assert {finding["code"] for finding in report["findings"]} == {"schema"}


def test_every_format_is_the_same_under_any_hash_seed(team: Tree) -> None:
    for form in ("text", "json", "sarif", "github"):
        outputs = {lint(team, "--format", form, env={"PYTHONHASHSEED": seed}).out for seed in ("0", "1", "2")}
        assert len(outputs) == 1


def test_lint_works_without_git_and_reports_it(team: Tree, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    report = lint(team, "--json", env={"PATH": str(bare)}).json()
    assert "history-unavailable" in [finding["code"] for finding in report["findings"]]


def test_smoke_prints_one_line_per_agent_and_exits_1_on_errors(tree: Tree) -> None:
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
    assert [(agent["slug"], agent["ok"]) for agent in ran.json()["agents"] if agent["slug"] == "c"] == [("c", False)]


def test_smoke_checks_the_lossless_merge_policy(tree: Tree) -> None:
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
    report = clia("agents", "list", "--path", tree.path("w"), "--ceiling", tree.path(), "--json").json()
    assert list(report) == ["path", "agents", "diagnostics"]
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
    os.utime(team.root / "w/.clia/agents/scout/scout@w.agent.triad.json", (1, 1))  # git would refresh the index
    before = team.snapshot()
    for command in ("lint", "smoke", "doctor", "list"):
        clia("agents", command, "--path", team.path("w"))
    assert team.snapshot() == before

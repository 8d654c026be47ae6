"""``clia agents export`` as people and CI run it."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from support import clia, git, program

if TYPE_CHECKING:
    from support import Ran, Tree

URL = ("--url", "https://agents.example.org/scout")


@pytest.fixture
def repository(tree: Tree) -> Tree:
    """A real repository with one agent."""
    git("init", "--quiet", cwd=tree.root)
    tree.agent("", title="Scout", purpose="Finds things.", guardrails=["Never force-push."], focusDomains=["search"])
    return tree


def export(tree: Tree, *words: str, slug: str = "scout") -> Ran:
    return clia("agents", "export", "--slug", slug, "--path", tree.path(), *words)


def test_all_eight_formats_are_written_and_visible_to_git(repository: Tree) -> None:
    ran = export(repository, "--to", "all", *URL)
    assert (ran.code, ran.err) == (0, "")
    assert "AGENTS.md" in ran.out
    git("add", "--all", cwd=repository.root)
    assert [line for line in git("ls-files", cwd=repository.root).splitlines() if ".clia/agents" not in line] == [
        ".claude/agents/scout.md",
        ".claude/skills/scout/SKILL.md",
        ".clia/exports/manifest.json",
        ".clia/exports/scout.agent-card.json",
        ".codex/agents/scout.toml",
        ".cursor/rules/scout.mdc",
        "AGENTS.md",
        "CLAUDE.md",
        "GEMINI.md",
    ]
    assert export(repository, "--to", "all", *URL).code == 0
    assert git("diff", "--name-only", cwd=repository.root) == ""


def test_check_exits_1_and_names_each_copy_that_is_stale_or_missing(repository: Tree) -> None:
    formats = ("--to", "agents-md", "--to", "cursor")
    missing = export(repository, *formats, "--check")
    assert missing.code == 1
    assert "AGENTS.md" in missing.out
    assert ".cursor/rules/scout.mdc" in missing.out
    assert export(repository, *formats).code == 0
    assert export(repository, *formats, "--check").code == 0
    repository.agent("", title="Ranger")
    stale = export(repository, *formats, "--check", "--json")
    assert stale.code == 1
    assert {file["path"]: file["state"] for file in stale.json()["files"]} == {
        "AGENTS.md": "stale",
        ".cursor/rules/scout.mdc": "stale",
    }


@pytest.mark.parametrize("flag", ["--check", "--dry-run"])
def test_check_and_dry_run_write_nothing(repository: Tree, flag: str) -> None:
    before = repository.snapshot()
    ran = export(repository, "--to", "all", *URL, flag, "--json")
    assert repository.snapshot() == before
    assert ran.json()["written"] is False
    assert ran.code == (1 if flag == "--check" else 0)


def test_dry_run_exits_1_if_writing_would_be_refused(repository: Tree) -> None:
    repository.write(".claude/agents/scout.md", "mine\n")
    ran = export(repository, "--to", "claude-agent", "--dry-run", "--json")
    assert ran.code == 1
    assert ran.json()["files"][0]["state"] == "refused"
    assert "not listed in the manifest" in ran.json()["files"][0]["reason"]


def test_a_refusal_exits_1_with_an_error_that_programs_can_read(repository: Tree) -> None:
    repository.write(".claude/agents/scout.md", "mine\n")
    before = repository.snapshot()
    ran = export(repository, "--to", "all", *URL, "--json")
    assert (ran.code, ran.out) == (1, "")
    error = json.loads(ran.err)["error"]
    assert error["code"] == "not-allowed"
    assert [file["path"] for file in error["fields"]["files"]] == [".claude/agents/scout.md"]
    assert repository.snapshot() == before


def test_force_overwrites_edited_files(repository: Tree) -> None:
    export(repository, "--to", "codex-agent")
    repository.write(".codex/agents/scout.toml", "edited\n")
    ran = export(repository, "--to", "codex-agent")
    assert ran.code == 1
    assert "--force" in ran.err
    assert export(repository, "--to", "codex-agent", "--force").code == 0
    assert export(repository, "--to", "codex-agent", "--check").code == 0


def test_tools_and_model_come_from_the_command_line(repository: Tree) -> None:
    ran = export(repository, "--to", "claude-agent", "--tools", "Read, Grep", "--model", "haiku")
    assert ran.code == 0
    lines = (repository.root / ".claude/agents/scout.md").read_text().splitlines()
    assert lines[:6] == ["---", 'name: "scout"', 'description: "Finds things."', 'tools: "Read, Grep"', 'model: "haiku"', "---"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--to", "a2a-card"], "url-needed"),
        (["--to", "agents-md", "--tools", "Read"], "unused-option"),
        (["--to", "nonsense"], "invalid choice"),
        ([], "--to"),
        (["--to", "all", "--check", "--dry-run"], "not allowed with"),
    ],
)
def test_bad_input_exits_2_and_changes_nothing(repository: Tree, words: list[str], message: str) -> None:
    before = repository.snapshot()
    ran = export(repository, *words)
    assert ran.code == 2
    assert message in ran.err
    assert "Traceback" not in ran.err
    assert repository.snapshot() == before


def test_outside_a_repository_an_output_root_is_required(tree: Tree) -> None:
    tree.agent("", title="Scout")
    ran = export(tree, "--to", "agents-md")
    assert ran.code == 2
    assert "no-repository" in ran.err
    assert "--output-root" in ran.err
    tree.directory("out")
    assert export(tree, "--to", "agents-md", "--output-root", tree.path("out")).code == 0
    assert (tree.root / "out/AGENTS.md").is_file()


def test_a_long_file_causes_a_warning_on_standard_error(repository: Tree) -> None:
    repository.write("AGENTS.md", "x" * 33_000)
    ran = export(repository, "--to", "agents-md")
    assert ran.code == 0
    assert "warning: export-too-long:" in ran.err
    diagnostics = export(repository, "--to", "agents-md", "--json").json()["diagnostics"]
    assert [diagnostic["code"] for diagnostic in diagnostics] == ["export-too-long"]


def test_concurrent_exports_of_several_agents_all_succeed(repository: Tree) -> None:
    slugs = [f"agent-{number}" for number in range(8)]
    for slug in slugs:
        repository.agent("", slug=slug, title=slug)
    words = ["agents", "export", "--path", repository.path(), "--to", "agents-md", "--to", "cursor", "--json"]
    running = [subprocess.Popen([program(), *words, "--slug", slug], stdout=subprocess.DEVNULL) for slug in slugs]
    assert [process.wait() for process in running] == [0] * len(slugs)
    text = (repository.root / "AGENTS.md").read_text()
    assert sorted(slug for slug in slugs if f"clia:begin {slug}:" in text) == slugs
    assert len(json.loads((repository.root / ".clia/exports/manifest.json").read_text())["files"]) == len(slugs)
    for slug in slugs:
        assert export(repository, "--to", "agents-md", "--to", "cursor", "--check", slug=slug).code == 0

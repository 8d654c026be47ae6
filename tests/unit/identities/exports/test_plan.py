"""What an export may write and what it refuses. A refusal leaves the tree unchanged."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from typing import TYPE_CHECKING

import pytest

import clia
from clia.errors import CliaError, FileError, NotAllowed, NotFound
from clia.files import LocalFiles, WritableLocalFiles
from clia.identities.exports import plan as planning
from clia.identities.exports.formats import FORMATS, ExportOptions, ExportSource, shown_from
from clia.identities.exports.plan import export

if TYPE_CHECKING:
    from clia.identities.exports.plan import ExportPlan
    from support import Tree

ALL = ExportOptions(("all",), "https://agents.example.org/scout")
MANIFEST = ".clia/exports/manifest.json"
WHOLE = [export_format.path.format(slug="scout") for export_format in FORMATS.values() if export_format.whole]
MANAGED = [export_format.path for export_format in FORMATS.values() if not export_format.whole]


def agent(tree: Tree, title: str = "Scout") -> None:
    tree.repository()
    tree.agent("", title=title, guardrails=["Never force-push."])


def run(tree: Tree, options: ExportOptions = ALL, *, slug: str = "scout", write: bool = True, force: bool = False) -> ExportPlan:
    return export(clia.lineage(tree.path(), slug), options, write=write, force=force)


def states(plan: ExportPlan) -> dict[str, str]:
    return {outcome.path: outcome.state for outcome in plan.outcomes}


def refused(tree: Tree, options: ExportOptions = ALL, *, force: bool = False) -> NotAllowed:
    """Return the refusal, after checking that it changed nothing."""
    before = tree.snapshot()
    with pytest.raises(NotAllowed) as caught:
        run(tree, options, force=force)
    assert tree.snapshot() == before
    return caught.value


def test_the_first_run_writes_and_the_second_changes_no_byte(tree: Tree) -> None:
    agent(tree)
    assert set(states(run(tree)).values()) == {"missing"}
    before = tree.snapshot()
    assert set(states(run(tree)).values()) == {"fresh"}
    assert tree.snapshot() == before


def test_the_manifest_lists_the_generated_files_in_order_with_their_hashes(tree: Tree) -> None:
    agent(tree)
    run(tree)
    manifest = json.loads((tree.root / MANIFEST).read_text())
    assert list(manifest["files"]) == sorted(WHOLE)
    for path, entry in manifest["files"].items():
        assert entry["sha256"] == hashlib.sha256((tree.root / path).read_bytes()).hexdigest()
        assert entry["slug"] == "scout"
        assert FORMATS[entry["format"]].path.format(slug="scout") == path


def test_managed_blocks_alone_need_no_manifest(tree: Tree) -> None:
    agent(tree)
    run(tree, ExportOptions(("agents-md", "gemini")))
    assert not (tree.root / ".clia/exports").exists()


def test_the_manifest_keeps_the_entries_of_other_agents(tree: Tree) -> None:
    agent(tree)
    tree.agent("", slug="cook", title="Cook")
    run(tree)
    run(tree, ExportOptions(("cursor",)), slug="cook")
    assert set(json.loads((tree.root / MANIFEST).read_text())["files"]) == {*WHOLE, ".cursor/rules/cook.mdc"}


@pytest.mark.parametrize("path", WHOLE)
def test_an_unlisted_file_is_not_overwritten_even_by_force(tree: Tree, path: str) -> None:
    agent(tree)
    tree.write(path, "mine\n")
    for force in (False, True):
        error = refused(tree, force=force)
        assert error.message.startswith(f"{path} exists and is not listed")


def test_a_listed_file_edited_by_hand_is_refused_with_a_hint_and_rewritten_by_force(tree: Tree) -> None:
    agent(tree)
    run(tree)
    content = (tree.root / WHOLE[0]).read_bytes()
    tree.write(WHOLE[0], content + b"my own line\n")
    error = refused(tree)
    assert error.message == f"{WHOLE[0]} was edited by hand"
    assert any("--force" in hint for hint in error.hints)
    run(tree, force=True)
    assert (tree.root / WHOLE[0]).read_bytes() == content
    assert run(tree, write=False).is_fresh()


def test_a_listed_file_that_is_stale_is_rewritten(tree: Tree) -> None:
    agent(tree)
    run(tree)
    agent(tree, title="Ranger")
    assert states(run(tree))[WHOLE[0]] == "stale"
    assert b"# Ranger" in (tree.root / WHOLE[0]).read_bytes()


def test_a_file_written_before_a_crash_that_lost_the_manifest_is_adopted(tree: Tree) -> None:
    agent(tree)
    run(tree)
    complete = (tree.root / MANIFEST).read_bytes()
    (tree.root / MANIFEST).unlink()
    assert set(states(run(tree)).values()) == {"fresh"}
    assert (tree.root / MANIFEST).read_bytes() == complete


@pytest.mark.parametrize("failing", range(1, 10))
def test_a_full_disk_is_reported_and_the_next_run_completes(tree: Tree, failing: int) -> None:
    agent(tree)
    writes = iter(range(1, 100))

    def reached(step: str) -> None:
        if step == "temporary-written" and next(writes) == failing:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    source = ExportSource(clia.lineage(tree.path(), "scout").profile(), shown_from(tree.path(), [tree.path()]), ALL)
    plan = planning.plan_export(LocalFiles(), tree.path(), source)
    with pytest.raises(FileError, match="No space left on device"):
        planning.apply_export(WritableLocalFiles(reached), plan, force=False)
    assert not [name for name in tree.snapshot() if "writing" in name]
    run(tree)
    assert run(tree, write=False).is_fresh()


def test_one_refused_target_stops_the_export_and_all_refused_files_are_named(tree: Tree) -> None:
    agent(tree)
    tree.write(".codex/agents/scout.toml", "mine")
    tree.write("GEMINI.md", "<!-- clia:begin scout -->\n")
    error = refused(tree)
    assert {file["path"] for file in error.fields["files"]} == {".codex/agents/scout.toml", "GEMINI.md"}
    assert not (tree.root / "AGENTS.md").exists()


def test_text_around_a_managed_block_is_kept_byte_for_byte(tree: Tree) -> None:
    agent(tree)
    tree.write("AGENTS.md", b"# House rules\r\n\r\nBe kind.\r\n")
    run(tree, ExportOptions(("agents-md",)))
    first = (tree.root / "AGENTS.md").read_bytes()
    assert first.startswith(b"# House rules\r\n\r\nBe kind.\r\n\r\n<!-- clia:begin scout")
    assert first.count(b"\n") == first.count(b"\r\n")
    tree.write("AGENTS.md", first + b"After.\r\n")
    agent(tree, title="Ranger")
    run(tree, ExportOptions(("agents-md",)))
    second = (tree.root / "AGENTS.md").read_bytes()
    assert second == first.replace(b"Scout\r\n", b"Ranger\r\n") + b"After.\r\n"


def test_two_agents_share_one_file(tree: Tree) -> None:
    agent(tree)
    tree.agent("", slug="cook", title="Cook")
    run(tree, ExportOptions(("agents-md",)))
    run(tree, ExportOptions(("agents-md",)), slug="cook")
    assert run(tree, ExportOptions(("agents-md",)), write=False).is_fresh()
    assert run(tree, ExportOptions(("agents-md",)), slug="cook", write=False).is_fresh()


@pytest.mark.parametrize("name", MANAGED)
def test_damaged_markers_are_refused(tree: Tree, name: str) -> None:
    agent(tree)
    tree.write(name, "text\n<!-- clia:begin scout -->\nlost its end\n")
    error = refused(tree)
    assert error.message.startswith(f"{name} has damaged markers: the block of scout that begins on line 2 does not end")


def test_a_file_that_is_not_utf8_is_refused(tree: Tree) -> None:
    agent(tree)
    tree.write("AGENTS.md", "Grüße".encode("latin-1"))
    assert refused(tree).message == "AGENTS.md is not UTF-8 text"


@pytest.mark.parametrize("path", ["AGENTS.md", ".claude/agents/scout.md", MANIFEST])
def test_a_directory_in_place_of_a_target_is_refused(tree: Tree, path: str) -> None:
    agent(tree)
    tree.directory(path)
    assert refused(tree).message == f"{path} is not a file"


def test_a_file_in_place_of_a_parent_directory_is_refused_before_the_first_write(tree: Tree) -> None:
    agent(tree)
    tree.write(".cursor", "a file")
    assert refused(tree).message == ".cursor/rules/scout.mdc cannot be created: .cursor is not a directory"


def test_a_file_too_large_to_edit_is_refused(tree: Tree) -> None:
    agent(tree)
    tree.write("AGENTS.md", b"x" * (16 * 1024 * 1024 + 1))
    assert refused(tree).message == "AGENTS.md is larger than 16777216 bytes"


@pytest.mark.parametrize("path", ["AGENTS.md", ".claude/agents/scout.md", ".claude", MANIFEST])
def test_a_link_that_leaves_the_root_is_refused(tree: Tree, path: str) -> None:
    repository = tree.repository("r")
    tree.agent("r", title="Scout")
    tree.directory("elsewhere")
    link = repository / path
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(tree.root / "elsewhere" / ("made" if "." in path[1:] else ""))
    before = tree.snapshot()
    with pytest.raises(NotAllowed, match="is a link that leaves the root"):
        export(clia.lineage(tree.path("r"), "scout"), ALL)
    assert tree.snapshot() == before


@pytest.mark.parametrize("leads_to", [".git/config", ".clia/agents/scout/scout.agent.triad.json", "README.md"])
def test_a_link_to_a_file_of_another_kind_is_refused(tree: Tree, leads_to: str) -> None:
    agent(tree)
    tree.write(leads_to, '{"slug": "scout"}')
    for path in (".claude/agents/scout.md", *(["AGENTS.md"] if leads_to != "README.md" else [])):
        link = tree.root / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(tree.root / leads_to)
        assert path in refused(tree, force=True).message
        link.unlink()


def test_a_listed_file_replaced_by_a_link_is_refused_even_by_force(tree: Tree) -> None:
    agent(tree)
    run(tree)
    tree.write("README.md", "mine")
    (tree.root / WHOLE[0]).unlink()
    (tree.root / WHOLE[0]).symlink_to(tree.root / "README.md")
    assert "is a link" in refused(tree, force=True).message


@pytest.mark.parametrize("path", [".claude/agents/scout.md", MANIFEST])
def test_markdown_that_is_a_link_to_a_generated_file_is_refused(tree: Tree, path: str) -> None:
    agent(tree)
    run(tree, ALL._replace(formats=("claude-agent", "a2a-card")))
    (tree.root / "AGENTS.md").symlink_to(path)
    assert "is the same file as" in refused(tree).message


def test_a_target_that_cannot_be_read_is_refused_with_the_reason(tree: Tree) -> None:
    class Unreadable(LocalFiles):
        def read(self, path: str, limit: int) -> bytes | None:
            if path.endswith("GEMINI.md"):
                raise FileError(f"{path}: Permission denied", fields={"path": path, "reason": "Permission denied"})
            return super().read(path, limit)

    agent(tree)
    source = ExportSource(clia.lineage(tree.path(), "scout").profile(), shown_from(tree.path(), [tree.path()]), ALL)
    plan = planning.plan_export(Unreadable(), tree.path(), source)
    blocked = [(outcome.path, outcome.reason) for outcome in plan.blocked(force=True)]
    assert blocked == [("GEMINI.md", "cannot be read: Permission denied")]


@pytest.mark.parametrize(("link", "file"), [("CLAUDE.md", "AGENTS.md"), ("AGENTS.md", "CLAUDE.md"), ("GEMINI.md", "AGENTS.md")])
def test_markdown_files_that_are_one_file_by_a_link_get_one_block(tree: Tree, link: str, file: str) -> None:
    agent(tree)
    tree.write(file, "# House rules\n")
    (tree.root / link).symlink_to(file)
    run(tree)
    assert os.readlink(tree.root / link) == file
    text = (tree.root / file).read_text()
    assert text.count("clia:begin") == 1
    assert "### Guardrails" in text
    assert run(tree, write=False).is_fresh()


def test_a_directory_linked_inside_the_root_is_written_through(tree: Tree) -> None:
    agent(tree)
    tree.directory("dotfiles/claude")
    (tree.root / ".claude").symlink_to("dotfiles/claude")
    run(tree)
    assert (tree.root / "dotfiles/claude/agents/scout.md").is_file()


@pytest.mark.parametrize(
    ("content", "code", "pointer"),
    [
        ("{", "invalid-json", None),
        ("[]", "invalid-json", None),
        ('{"version": 2, "files": {}}', "unsupported-format", "/version"),
        ('{"files": {}}', "unsupported-format", "/version"),
        ('{"version": 1, "files": []}', "invalid-document", "/files"),
        ('{"version": 1, "files": {"a/b": 1}}', "invalid-document", "/files/a~1b"),
        ('{"version": 1, "files": {"a": {"format": "cursor", "slug": "a", "sha256": 1}}}', "invalid-document", "/files/a/sha256"),
    ],
)
def test_an_invalid_manifest_is_refused(tree: Tree, content: str, code: str, pointer: str | None) -> None:
    agent(tree)
    tree.write(MANIFEST, content)
    before = tree.snapshot()
    with pytest.raises(CliaError) as caught:
        run(tree)
    assert caught.value.code == code
    assert caught.value.fields["path"] == tree.path(MANIFEST)
    assert caught.value.fields.get("pointer") == pointer
    assert tree.snapshot() == before


def test_a_dry_run_writes_nothing_and_gives_the_state_of_each_file(tree: Tree) -> None:
    agent(tree)
    run(tree, ExportOptions(("agents-md", "gemini", "claude-agent", "codex-agent", "cursor")))
    tree.write("GEMINI.md", (tree.root / "GEMINI.md").read_text().replace("Scout", "Other"))
    tree.write(".codex/agents/scout.toml", "edited")
    tree.write(".clia/exports/scout.agent-card.json", "{}")
    before = tree.snapshot()
    plan = run(tree, write=False)
    assert tree.snapshot() == before
    assert states(plan) == {
        "AGENTS.md": "fresh",
        "CLAUDE.md": "missing",
        "GEMINI.md": "stale",
        ".claude/agents/scout.md": "fresh",
        ".claude/skills/scout/SKILL.md": "missing",
        ".codex/agents/scout.toml": "edited",
        ".cursor/rules/scout.mdc": "fresh",
        ".clia/exports/scout.agent-card.json": "refused",
    }


def test_a_profile_that_changed_makes_every_copy_stale_except_the_import(tree: Tree) -> None:
    agent(tree)
    run(tree)
    agent(tree, title="Ranger")
    state_of = states(run(tree, write=False))
    assert {path for path, state in state_of.items() if state == "stale"} == set(state_of) - {"CLAUDE.md"}


def test_a_file_longer_than_a_tool_reads_is_warned_about(tree: Tree) -> None:
    agent(tree)
    tree.write("AGENTS.md", "x" * (32 * 1024 - 10) + "\n")
    diagnostics = run(tree).diagnostics
    assert [(diagnostic.code, diagnostic.severity, diagnostic.path) for diagnostic in diagnostics] == [
        ("export-too-long", "warning", tree.path("AGENTS.md"))
    ]


def test_without_a_repository_the_output_root_must_be_named(tree: Tree) -> None:
    tree.agent("", title="Scout")
    before = tree.snapshot()
    with pytest.raises(NotFound, match="is not inside a repository") as caught:
        run(tree)
    assert any("--output-root" in hint for hint in caught.value.hints)
    with pytest.raises(NotFound, match="is not a directory"):
        export(clia.lineage(tree.path(), "scout"), ALL, output_root=tree.path("nowhere"))
    assert tree.snapshot() == before
    tree.directory("out")
    export(clia.lineage(tree.path(), "scout"), ALL, output_root=tree.path("out"))
    assert (tree.root / "out/AGENTS.md").is_file()
    assert not (tree.root / "AGENTS.md").exists()


def test_the_nearest_repository_root_is_the_target(tree: Tree) -> None:
    tree.repository("outer")
    tree.repository("outer/inner", as_file=True)
    tree.agent("outer", title="Scout")
    tree.directory("outer/inner/src/deep")
    export(clia.lineage(tree.path("outer/inner/src/deep"), "scout"), ExportOptions(("agents-md",)))
    assert (tree.root / "outer/inner/AGENTS.md").is_file()
    assert not (tree.root / "outer/AGENTS.md").exists()


def test_exports_are_not_an_input_to_lineage(tree: Tree) -> None:
    agent(tree)
    before = clia.lineage(tree.path(), "scout").context().to_json(), clia.lineage(tree.path(), "scout").profile().document
    run(tree)
    after = clia.lineage(tree.path(), "scout").context().to_json(), clia.lineage(tree.path(), "scout").profile().document
    assert after == before

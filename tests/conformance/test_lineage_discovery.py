"""Conformance cases 1 to 12 and 36 to 40 of the lineage design: discovery and refusals."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import Any

import pytest

import clia as library
from clia.errors import AgentNotFound, InvalidInput
from clia.files import LocalFiles
from clia.identities.lineage import Lineage
from clia.identities.working_path import submodule_paths, survey
from support import Tree, clia, git


def directories(tree: Tree, contexts: Any) -> list[str]:
    return [os.path.relpath(context.directory, tree.root) for context in contexts]


def codes(identity: Any) -> list[str]:
    return [diagnostic.code for diagnostic in identity.diagnostics]


def test_case_01_contexts_run_outer_to_inner_and_the_innermost_title_wins(tree: Tree) -> None:
    tree.repository("w/r")
    tree.repository("w/r/s")
    for directory in ("w", "w/r", "w/r/s"):
        tree.agent(directory, title=f"title of {directory}")
    tree.directory("w/r/s/src")
    identity = library.lineage(tree.path("w/r/s/src"), "scout")
    assert directories(tree, identity.context().chain) == ["w", "w/r", "w/r/s"]
    assert identity.profile()["title"] == "title of w/r/s"


def test_case_02_a_sibling_submodule_is_left_out_and_named(tree: Tree) -> None:
    tree.repository("w")
    tree.write("w/.gitmodules", '[submodule "s1"]\n\tpath = s1\n[submodule "s2"]\n\tpath = s2\n')
    for directory in ("w", "w/s1", "w/s2"):
        tree.agent(directory, guardrails=[directory])
    report = library.lineage(tree.path("w/s1"), "scout").context()
    assert directories(tree, report.chain) == ["w", "w/s1"]
    assert [exclusion._asdict() for exclusion in report.excluded] == [{"path": tree.path("w/s2"), "reason": "not-containing"}]
    result = clia("agents", "context", "--slug", "scout", "--path", tree.path("w/s1"), "--explain")
    assert "excluded: not-containing" in result.out


def test_case_03_the_submodule_root_itself_is_one_context(tree: Tree) -> None:
    tree.repository("w")
    tree.write("w/.gitmodules", '[submodule "sub"]\n\tpath = sub\n')
    tree.agent("w/sub", title="sub")
    tree.agent("w/sub-b", title="not below sub")
    report = library.lineage(tree.path("w/sub"), "scout").context()
    assert [layer.reasons for layer in report.chain] == [("ancestor", "submodule-root")]
    beside = library.lineage(tree.path("w/sub-b"), "scout").context()
    assert [layer.reasons for layer in beside.chain] == [("ancestor",)]
    assert [exclusion.reason for exclusion in beside.excluded] == ["not-containing"]


GITMODULES = (
    "; a comment\r\n"
    '[submodule "quoted name"]\r\n'
    '\tpath = "libs/with space" ; and a comment\r\n'
    '[SubModule "second"]\r\n'
    "\tPath = libs/two # comment\r\n"
    "\tpathology = libs/never\r\n"
    '[submodule "third"]\r\n'
    "\tpath = libs/\\\r\n"
    "three\r\n"
    "[core]\r\n"
    "\tpath = not/a/submodule\r\n"
)


def test_case_04_gitmodules_is_read_as_git_reads_it(tree: Tree) -> None:
    path = tree.write(".gitmodules", GITMODULES)
    paths, refused = submodule_paths(path.read_bytes().decode(), str(path))
    assert paths == ["libs/three", "libs/two", "libs/with space"]
    assert refused == []
    listed = git("config", "--file", str(path), "--get-regexp", r"^submodule\..*\.path$", cwd=tree.root)
    assert sorted(line.partition(".path ")[2] for line in listed.splitlines()) == paths


@pytest.mark.parametrize("bad", ["../x", "/abs", "-x", "a/../../b", ""])
def test_case_05_an_unsafe_submodule_path_is_ignored_and_named(tree: Tree, bad: str) -> None:
    tree.repository("w")
    tree.write("w/.gitmodules", f'[submodule "s"]\n\tpath = "{bad}"\n')
    tree.agent("w", title="here")
    report = library.lineage(tree.path("w"), "scout").context()
    assert "unsafe-submodule-path" in codes(report)
    assert report.excluded == ()


def test_case_05_a_symlinked_gitmodules_is_ignored_and_named(tree: Tree) -> None:
    tree.repository("w")
    tree.write("elsewhere", '[submodule "s"]\n\tpath = s\n')
    (tree.root / "w/.gitmodules").symlink_to(tree.root / "elsewhere")
    tree.agent("w", title="here")
    tree.agent("w/s", title="there")
    report = library.lineage(tree.path("w/s"), "scout").context()
    assert "unsafe-submodule-path" in codes(report)
    assert [layer.reasons for layer in report.chain] == [("ancestor",), ("ancestor",)]


def test_case_06_of_two_candidates_the_first_by_name_is_read_in_any_order(tree: Tree) -> None:
    names = ["b@w.agent.triad.json", "a@w.agent.triad.json", "Z@w.agent.triad.json"]
    for number, order in enumerate(itertools.permutations(names)):
        directory = f"w{number}"
        tree.repository(directory)
        for name in order:
            tree.document(directory, "scout", "agent", {"slug": "scout", "title": name}, name=name)
        identity = library.lineage(tree.path(directory), "scout")
        chosen = identity.context().chain[0].documents["agent"]
        assert chosen is not None
        assert Path(chosen).name == identity.profile()["title"] == "Z@w.agent.triad.json"
        assert "ambiguous-triad" in codes(identity.profile())


def test_case_07_a_backup_file_is_ignored(tree: Tree) -> None:
    tree.repository("w")
    tree.agency("w", entries=[{"summary": "real"}])
    tree.document("w", "scout", "agency", {"entries": [{"summary": "backup"}]}, name="x.agency.triad.json.bak")
    merged = library.lineage(tree.path("w"), "scout").agency()
    assert merged["entries"] == [{"summary": "real"}]
    assert merged.diagnostics == ()


def test_case_08_a_context_with_only_an_agency_takes_part(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", title="outer")
    tree.agency("w", entries=[{"summary": "outer"}])
    tree.agency("w/in", entries=[{"summary": "inner"}])
    identity = library.lineage(tree.path("w/in"), "scout")
    assert directories(tree, identity.context().chain) == ["w", "w/in"]
    assert identity.agency()["entries"] == [{"summary": "outer"}, {"summary": "inner"}]
    assert identity.profile()["title"] == "outer"


def test_case_09_an_agent_directory_linked_inside_the_repository_is_one_context(tree: Tree) -> None:
    tree.repository("w")
    tree.write("w/shared/scout.agent.triad.json", '{"slug": "scout", "title": "linked"}')
    tree.directory("w/.clia/agents")
    (tree.root / "w/.clia/agents/scout").symlink_to("../../shared")
    identity = library.lineage(tree.path("w"), "scout")
    (context,) = identity.context().chain
    assert identity.profile()["title"] == "linked"
    document = context.to_json()
    assert (document["link"], document["realPath"]) == (tree.path("w/.clia/agents/scout"), tree.path("w/shared"))


def test_case_09_two_names_of_one_agent_directory_are_one_context_at_its_inner_place(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w/in", title="inner", guardrails=["once"])
    tree.directory("w/.clia/agents")
    (tree.root / "w/.clia/agents/scout").symlink_to("../../in/.clia/agents/scout")
    identity = library.lineage(tree.path("w/in"), "scout")
    assert directories(tree, identity.context().chain) == ["w/in"]
    assert identity.profile()["guardrails"] == ["once"]


@pytest.mark.parametrize("link", [".clia", ".clia/agents", ".clia/agents/scout", ".clia/agents/scout/scout.agent.triad.json"])
def test_case_09_a_link_that_leads_out_of_the_repository_is_refused(tree: Tree, link: str) -> None:
    tree.repository("w")
    tree.agent("w/in", title="inner")
    tree.agent("outside", title="outside")
    outside = tree.document("outside", "scout", "agent", {"title": "outside"}, name="scout.agent.triad.json")
    target = (
        outside.parents[[".clia/agents/scout", ".clia/agents", ".clia"].index(link)]
        if link != f".clia/agents/scout/{outside.name}"
        else outside
    )
    name = tree.root / "w" / link
    name.parent.mkdir(parents=True, exist_ok=True)
    name.symlink_to(target)
    identity = library.lineage(tree.path("w/in"), "scout")
    assert directories(tree, identity.context().chain) == ["w/in"]
    assert "symlink-escape" in codes(identity.context())
    assert "symlink-outside" in [exclusion.reason for exclusion in identity.context().excluded]
    assert "outside" not in json.dumps(identity.profile().document)


def test_case_10_every_spelling_of_the_path_gives_the_same_bytes(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", title="here", guardrails=["a"])
    tree.directory("w/a/b")
    (tree.root / "link").symlink_to(tree.root / "w")
    real = clia("agents", "context", "--slug", "scout", "--json", "--path", tree.path("w"))
    assert real.code == 0
    spellings = {
        ".": tree.root / "w",
        "a/..": tree.root / "w",
        tree.path("link"): tree.root,
        tree.path("link/a/../"): tree.root,
    }
    for spelling, cwd in spellings.items():
        assert clia("agents", "context", "--slug", "scout", "--json", "--path", spelling, cwd=cwd) == real
    assert clia("agents", "profile", "--slug", "scout", "--json", "--root-chain", cwd=tree.root / "link") == clia(
        "agents", "profile", "--slug", "scout", "--json", "--root-chain", cwd=tree.root / "w"
    )


def test_case_11_nothing_found_lists_the_directories_that_were_searched(tree: Tree) -> None:
    tree.directory("w/in")
    with pytest.raises(AgentNotFound) as caught:
        library.lineage(tree.path("w/in"), "scout")
    assert caught.value.code == "agent-not-found"
    assert tree.path("w/in/.clia/agents/scout") in caught.value.fields["searched"]
    assert tree.path("w/.clia/agents/scout") in caught.value.fields["searched"]
    ran = clia("agents", "profile", "--slug", "scout", "--path", tree.path("w/in"))
    assert ran.code == 2
    assert ran.out == ""
    assert "agent-not-found" in ran.err
    assert tree.path("w/.clia/agents/scout") in ran.err


def test_case_12_a_malformed_middle_layer_is_named_and_the_others_still_merge(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", guardrails=["outer"])
    broken = tree.write("w/r/.clia/agents/scout/scout.agent.triad.json", '{\n  "title": "x",\n  "guardrails": [}\n}')
    tree.agent("w/r/s", guardrails=["inner"])
    ran = clia("agents", "profile", "--slug", "scout", "--json", "--path", tree.path("w/r/s"))
    assert ran.code == 2
    assert ran.json()["guardrails"] == ["outer", "inner"]
    diagnostic = json.loads(ran.err)
    assert diagnostic["path"] == str(broken)
    assert diagnostic["code"] == "invalid-json"
    assert "line 3, column 18" in diagnostic["message"]


@pytest.mark.parametrize("words", [("context",), ("profile",), ("explain", "/guardrails")])
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_case_12_the_exit_code_of_every_read_reports_a_missing_layer(
    tree: Tree, words: tuple[str, ...], form: tuple[str, ...]
) -> None:
    tree.repository("w")
    tree.agent("w", guardrails=["outer"])
    tree.write("w/in/.clia/agents/scout/scout.agent.triad.json", "{")
    ran = clia("agents", *words, "--slug", "scout", "--path", tree.path("w/in"), *form)
    assert ran.code == 2
    assert "invalid-json" in ran.out + ran.err
    assert clia("agents", *words, "--slug", "scout", "--path", tree.path("w"), *form).code == 0


def test_case_36_a_git_file_marks_a_submodule_root_as_the_write_target(tree: Tree) -> None:
    tree.repository("w")
    tree.repository("w/sub", as_file=True)
    tree.directory("w/sub/src")
    ran = clia("agents", "journal", "--slug", "scout", "--note", "hello", "--json", "--path", tree.path("w/sub/src"))
    assert ran.code == 0
    assert ran.json()["path"] == tree.path("w/sub/.clia/agents/scout/scout@sub.agency.triad.json")
    assert ran.json()["entry"]["source"] == "sub"


def test_case_37_two_journals_in_one_day_are_both_kept(tree: Tree) -> None:
    tree.repository("w")
    for note in ("first", "second"):
        assert clia("agents", "journal", "--slug", "scout", "--note", note, "--path", tree.path("w")).code == 0
    assert [entry["summary"] for entry in library.lineage(tree.path("w"), "scout").agency()["entries"]] == ["first", "second"]


def test_case_38_reads_dry_runs_and_doctors_create_nothing(tree: Tree) -> None:
    tree.repository("w")
    tree.repository("w/s")
    tree.agent("w", title="outer")
    tree.agency("w/s", entries=[{"summary": "one", "timestamp": "2026-01-01T00:00:00Z"}])
    tree.agent("w", "helper", title="helper")
    path = tree.path("w/s")
    before = tree.snapshot()
    slug = ("--slug", "scout", "--path", path)
    for words in (
        ("agents", "context", *slug, "--explain"),
        ("agents", "profile", *slug),
        ("agents", "plan", *slug, "--json"),
        ("agents", "agency", *slug, "--show-origin"),
        ("agents", "explain", "/title", *slug),
        ("agents", "list", "--path", path),
        ("agents", "lint", "--path", path),
        ("agents", "smoke", "--path", path),
        ("agents", "doctor", "--path", path),
        ("doctor", "--path", path),
        ("agents", "schema"),
        ("agents", "transfer", "--slug", "scout", "--path", path, "--to", tree.path("w")),
        ("agents", "consolidate", "helper", "--into", "scout", "--path", tree.path("w")),
        ("agents", "mirrors", "--path", path, "--check"),
        ("agents", "export", *slug, "--to", "agents-md", "--check"),
        ("agents", "export", *slug, "--to", "agents-md", "--dry-run"),
    ):
        ran = clia(*words, env={"PYTHONDONTWRITEBYTECODE": "1"})
        assert "bug" not in ran.err, (words, ran)
        assert ran.code in (0, 1), (words, ran)
    assert tree.snapshot() == before


@pytest.mark.parametrize("slug", ["../../x", "a/b", ".", "..", "a.b", "A", "", "-a", "a--b", "a\n", "é", "a" * 65])
def test_case_39_a_slug_of_the_wrong_form_is_refused_before_any_path_is_built(tree: Tree, slug: str) -> None:
    class Untouchable(LocalFiles):
        def entries(self, directory: str) -> Any:
            raise AssertionError(f"looked into {directory}")

        def kind(self, path: str) -> str:
            raise AssertionError(f"looked at {path}")

    place = survey(LocalFiles(), tree.path())
    with pytest.raises(InvalidInput) as caught:
        Lineage(Untouchable(), place, slug)
    assert caught.value.code == "invalid-slug"
    before = tree.snapshot()
    for words in (("profile", f"--slug={slug}"), ("journal", f"--slug={slug}", "--note", "x"), ("init", "--", slug)):
        assert clia("agents", *words, cwd=tree.root).code == 2
    assert tree.snapshot() == before


def test_case_39_a_slug_inside_a_document_never_becomes_a_path(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", "scout", title="here")
    tree.document("w", "scout", "agency", {"slug": "../../x", "entries": []})
    assert clia("agents", "journal", "--slug", "scout", "--note", "n", cwd=tree.root / "w").code == 0
    assert library.lineage(tree.path("w"), "scout").agency()["slug"] == "scout"
    assert not (tree.root / "x").exists()
    ran = clia("agents", "lint", "--path", tree.path("w"), "--format", "json")
    assert "slug-mismatch" in ran.out


def test_case_40_lint_is_sorted_and_skips_inactive_agents(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", "root", title="Directives")
    for slug in ("b", "a", "paused", "_draft", "templates", "c"):
        status = "paused" if slug == "paused" else "active"
        tree.document("w", slug, "agent", {"slug": slug, "title": slug, "status": status, "role": slug})
    ran = clia("agents", "lint", "--path", tree.path("w"), "--format", "json")
    findings = ran.json()["findings"]
    paths = [finding["path"] for finding in findings if finding["code"] == "inherits-root-missing"]
    assert [Path(path).parent.name for path in paths] == ["a", "b", "c"]
    assert [finding["path"] or "" for finding in findings] == sorted(finding["path"] or "" for finding in findings)

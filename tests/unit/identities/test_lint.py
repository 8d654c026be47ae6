"""What lint checks, what it skips, and the order of its findings; ``test_lint_codes`` has each code."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from clia.errors import AgentNotFound, FileError, InvalidInput, NotFound
from clia.files import LocalFiles
from clia.identities import checks, contexts
from clia.identities import lint as linting
from clia.identities.checks import smoke_tree
from clia.identities.git_history import GitHistory
from clia.identities.lineage import MergedDocument
from clia.identities.roster import tree_of
from clia.identities.working_path import survey
from clia.values.canonical import digest, text_digest
from support import git
from support.waivers import about

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clia.files import DirectoryEntry
    from clia.identities.diagnostics import Diagnostic
    from clia.identities.lint import FindingsReport
    from clia.identities.roster import IdentityTree
    from clia.identities.working_path import WorkingPath
    from support import Tree


def identity_tree(tree: Tree, files: LocalFiles) -> IdentityTree:
    def survey_at(directory: str) -> WorkingPath:
        return survey(files, directory, ceiling=tree.path())

    return tree_of(files, survey_at(tree.path("w")), survey_at)


def lint(tree: Tree, where: str = "w", **options: object) -> FindingsReport[linting.CheckedIdentity]:
    return checks.lint(tree.path(where), environment=os.environ, ceiling=tree.path(), **options)  # type: ignore[arg-type]


def codes(tree: Tree, where: str = "w", **options: object) -> list[str]:
    ignored = "history-unavailable"
    return [finding.code for finding in lint(tree, where, **options).findings if finding.code != ignored]


def agents(tree: Tree, where: str = "w") -> list[tuple[str, str, bool]]:
    return [
        (identity.slug, os.path.relpath(identity.directory, tree.root), identity.active) for identity in lint(tree, where).agents
    ]


def test_agents_above_and_below_are_checked_from_their_own_directories(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", "outer")
    tree.agent("w/a/b", "inner")
    tree.agent("w/a/b", "outer")
    tree.directory("w/a")
    assert agents(tree, "w/a") == [("inner", "w/a/b", True), ("outer", "w", True), ("outer", "w/a/b", True)]


def test_hidden_directories_packages_and_links_are_not_walked(tree: Tree) -> None:
    tree.repository("w")
    for where in ("w/node_modules/p", "w/.venv/p", "w/.git/p", "w/.cache/p", "other/p"):
        tree.agent(where, "stray")
    (tree.root / "w/link").symlink_to(tree.root / "other")
    tree.agent("w/fine", "scout")
    assert agents(tree) == [("scout", "w/fine", True)]


def test_reserved_names_and_inactive_agents_are_skipped(tree: Tree) -> None:
    tree.repository("w")
    for slug in ("_drafts", "templates"):
        tree.document("w", slug, "agent", {"slug": "x", "guardrails": 5})
    for slug, status in (("paused", "paused"), ("old", "Deprecated"), ("draft", " draft ")):
        tree.agent("w", slug, status=status, guardrails=5, title="a\u200bb")
    assert codes(tree) == []
    assert agents(tree) == [("draft", "w", False), ("old", "w", False), ("paused", "w", False)]


@pytest.mark.parametrize("status", [None, "", "active", " Active "])
def test_an_agent_that_is_active_or_has_no_status_is_checked(tree: Tree, status: str | None) -> None:
    tree.repository("w")
    tree.agent("w", status=status, guardrails=[5])
    assert codes(tree) == ["schema"]


def test_root_directives_are_checked_as_documents_and_not_as_an_agent(tree: Tree) -> None:
    tree.repository("w")
    tree.document("w", "root", "agent", {"slug": "agent-profile", "title": "a\u202eb", "mentors": [5]})
    assert codes(tree) == ["schema", "hidden-text"]


def test_inherited_documents_are_checked_too(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", inherits=["policy.json", "x.agent.triad.json"])
    tree.write("w/policy.json", json.dumps({"guardrails": ["a\u200bb"], "mentors": [5]}))
    tree.write("w/x.agent.triad.json", json.dumps({"mentors": [5]}))
    findings = {(finding.code, os.path.basename(finding.path or ""), finding.pointer) for finding in lint(tree).findings}
    # Only documents have a schema, fragments do not.
    assert {("hidden-text", "policy.json", "/guardrails/0"), ("schema", "x.agent.triad.json", "")} <= findings
    assert ("schema", "x.agent.triad.json", "/mentors/0") in findings
    assert not any(code == "schema" for code, name, _ in findings if name == "policy.json")


def test_text_that_is_a_finding_in_a_profile_is_allowed_in_a_journal(tree: Tree) -> None:
    tree.repository("w")
    tree.agency("w", entries=[{"summary": "found \u200b and <!-- x --> and \x1b[0m"}])
    assert codes(tree) == []


def test_a_schema_error_is_reported_once(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", guardrails=5, checklists="one", mentors=[5])
    assert codes(tree) == ["scalar-for-list", "wrong-type", "schema"]


def test_an_agent_with_a_broken_root_chain_is_still_checked(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", rootChain={"mode": "sideways"}, title="a\u200bb")
    tree.agent("w", "paused", rootChain={"mode": "sideways"}, status="paused")
    assert codes(tree) == ["invalid-root-chain", "hidden-text"]


def test_an_unreadable_document_does_not_end_the_run(tree: Tree) -> None:
    tree.repository("w")
    tree.directory("w/.clia/agents/scout")
    (tree.root / "w/.clia/agents/scout/scout.agent.triad.json").symlink_to("x" * 300)
    tree.agent("w", "worker", mentors=[5])
    assert codes(tree) == ["unreadable", "schema"]


def test_a_link_next_to_the_documents_must_not_leave_the_repository(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w")
    tree.write("secret.md", "x")
    (tree.root / "w/.clia/agents/scout/persona.md").symlink_to(tree.root / "secret.md")
    (tree.root / "w/.clia/agents/scout/inside.md").symlink_to(tree.root / "w")
    findings = [finding for finding in lint(tree).findings if finding.code == "symlink-escape"]
    assert [os.path.basename(finding.path or "") for finding in findings] == ["persona.md"]


def test_an_agent_inherits_the_directives_through_another_document_or_an_outer_layer(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", "root")
    tree.write("w/base.agent.triad.json", json.dumps({"slug": "b", "inherits": [".clia/agents/root/root@w.agent.triad.json"]}))
    tree.agent("w", "scout", inherits=["base.agent.triad.json"])
    tree.agent("w/s", "scout", title="inner")
    assert codes(tree) == []


def test_the_directives_of_the_outermost_repository_count(tree: Tree) -> None:
    tree.repository("w")
    tree.repository("w/s")
    tree.agent("w", "root")
    tree.agent("w/s", "root")
    tree.agent("w/s", "scout", inherits=[".clia/agents/root/root@s.agent.triad.json"])
    assert codes(tree) == ["inherits-root-missing"]


def test_an_agent_from_above_the_repository_need_not_inherit_its_directives(tree: Tree) -> None:
    tree.agent("", "helper")
    tree.repository("w")
    tree.agent("w", "root")
    assert codes(tree) == []


def test_a_link_to_an_agent_directory_is_not_a_slug_mismatch(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", "scout")
    (tree.root / "w/.clia/agents/alias").symlink_to("scout")
    assert codes(tree) == []


def test_an_approved_waiver_allows_less_force(tree: Tree) -> None:
    tree.repository("w")
    rule = "Agents must write tests."
    entry = {"summary": "fine", "contributions": [{"by": "boss"}], "extensions": about(tree.root / "w", rule)}
    tree.agent("w", guardrails=[rule])
    tree.agent("w", "boss", profileType="operator")
    tree.agency("w", entries=[entry])
    softer: dict[str, Any] = {"guardrails": ["Agents may write tests."]}
    tree.agent("w/s", **softer)
    assert codes(tree) == ["guardrail-weakened"]
    tree.agent("w/s", **softer, waivers=[{"guardrail": text_digest(rule), "approval": digest(entry)}])
    assert codes(tree) == []


def test_findings_do_not_depend_on_the_order_of_directory_listings(tree: Tree) -> None:
    tree.repository("w")
    for slug in ("c", "a", "b"):
        tree.agent("w", slug, guardrails=5, title="a\u200bb", mentors=[5])
        tree.agent(f"w/{slug}/x", slug, mentors=[5])
    tree.document("w", "a", "agent", name="second.agent.triad.json")
    tree.agent("w", "No Slug")

    class Shuffled(LocalFiles):
        def __init__(self, turn: int) -> None:
            self.turn = turn

        def entries(self, directory: str) -> list[DirectoryEntry] | None:
            entries = super().entries(directory)
            return entries and sorted(entries, key=lambda entry: digest([self.turn, entry.name]))

    def run(files: LocalFiles) -> FindingsReport[linting.CheckedIdentity]:
        calls.clear()
        return linting.lint_tree(files, GitHistory(os.environ), identity_tree(tree, files), watch=lambda *call: calls.append(call))

    calls: list[tuple[int, int, str]] = []
    expected, order = run(LocalFiles()), list(calls)
    paths = [finding.path or "" for finding in expected.findings]
    assert paths == sorted(paths)
    assert len(paths) > 12
    for turn in range(5):
        assert run(Shuffled(turn)) == expected
        assert calls == order


def test_only_the_requested_agents_are_checked(tree: Tree) -> None:
    tree.repository("w")
    for slug in ("a", "b", "c"):
        tree.agent("w", slug, mentors=[5])
    report = lint(tree, slugs=["c", "a"])
    assert [identity.slug for identity in report.agents] == ["a", "c"]
    assert {finding.path and finding.path.split("/")[-2] for finding in report.findings if finding.code == "schema"} == {"a", "c"}


def test_bad_input_is_refused(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w")
    with pytest.raises(InvalidInput):
        lint(tree, slugs=["../x"])
    with pytest.raises(AgentNotFound):
        lint(tree, slugs=["scout", "gone"])
    with pytest.raises(NotFound):
        lint(tree, "nowhere")


def test_progress_is_reported_once_per_agent(tree: Tree) -> None:
    tree.repository("w")
    for slug in ("b", "a"):
        tree.agent("w", slug)
    calls: list[tuple[int, int, str]] = []
    lint(tree, watch=lambda *call: calls.append(call))
    assert calls == [(0, 2, "a"), (1, 2, "b")]


# History


def lossless(tree: Tree, where: str = "w", **options: object) -> list[Diagnostic]:
    return [finding for finding in lint(tree, where, **options).findings if finding.code == "removed-without-archive"]


def committed(tree: Tree, root: str = "w") -> None:
    git("init", "-q", cwd=tree.directory(root))
    git("add", "-A", cwd=tree.root / root)
    git("commit", "-q", "--allow-empty", "-m", "x", cwd=tree.root / root)


def test_an_uncommitted_removal_is_found(tree: Tree) -> None:
    document = tree.agent("w")
    committed(tree)
    document.unlink()
    assert [finding.path for finding in lossless(tree)] == [str(document)]


def test_a_document_renamed_in_its_directory_is_not_removed(tree: Tree) -> None:
    document = tree.agent("w", title="x")
    committed(tree)
    document.rename(document.with_name("new.agent.triad.json"))
    committed(tree)
    assert lossless(tree) == []


def test_an_archive_counts_only_with_the_same_content(tree: Tree) -> None:
    document = tree.agent("w", title="last")
    tree.agent("w", "keeper")
    committed(tree)
    archive = tree.write("w/deep/.clia/agents/keeper/legacy-imports/a/b/c.json", document.read_bytes())
    document.unlink()
    committed(tree)
    assert lossless(tree) == []
    archive.write_bytes(archive.read_bytes().replace(b"\n", b"\r\n"))  # as in a checkout with converted line endings
    assert lossless(tree) == []
    archive.write_bytes(archive.read_bytes() + b" ")
    assert len(lossless(tree)) == 1


def test_an_archive_elsewhere_in_the_repository_counts_from_a_directory_in_it(tree: Tree) -> None:
    document = tree.agent("w/s")
    tree.agent("w/s", "other")
    committed(tree)
    tree.write("w/t/.clia/agents/keeper/legacy-imports/x.json", document.read_bytes())
    document.unlink()
    assert lossless(tree, "w/s") == []


def test_only_removals_of_the_requested_agents_near_the_path_are_reported(tree: Tree) -> None:
    documents = [tree.agent("w", "a"), tree.agent("w/s", "b"), tree.agent("w/t", "c"), tree.agent("w", "_drafts")]
    tree.agent("w/s/u", "d")
    committed(tree)
    for document in documents:
        document.unlink()
    assert [finding.path for finding in lossless(tree, "w/s")] == [str(documents[0]), str(documents[1])]
    assert [finding.path for finding in lossless(tree)] == [str(document) for document in documents[:3]]
    assert [finding.path for finding in lossless(tree, slugs=["d"])] == []


def test_the_history_of_nested_repositories_is_read(tree: Tree) -> None:
    document = tree.agent("w/sub")
    committed(tree, "w/sub")
    tree.agent("w", "keeper")
    committed(tree)
    document.unlink()
    assert [finding.path for finding in lossless(tree)] == [str(document)]
    last_content = git("show", "HEAD:.clia/agents/scout/scout@sub.agent.triad.json", cwd=tree.root / "w/sub")
    tree.write("w/.clia/agents/keeper/legacy-imports/x.json", last_content)
    assert lossless(tree) == []


def test_an_unreadable_directory_is_neither_removed_nor_an_archive(tree: Tree) -> None:
    document = tree.agent("w")
    lost = tree.agent("w", "lost")
    tree.agent("w", "keeper")
    committed(tree)
    content = lost.read_bytes()
    for path in (document, lost):
        path.unlink()
    document.parent.rmdir()
    document.parent.symlink_to("scout")
    (tree.root / "w/.clia/agents/keeper/legacy-imports").symlink_to("legacy-imports")
    assert [finding.path for finding in lossless(tree)] == [str(lost)]
    tree.write("w/s/.clia/agents/keeper/legacy-imports/x.json", content)
    (tree.root / "w/s/.clia/agents/keeper/legacy-imports/loop").symlink_to("loop")
    assert lossless(tree) == []


def test_a_directory_that_cannot_be_walked_is_a_finding(tree: Tree) -> None:
    class Locked(LocalFiles):
        def entries(self, directory: str) -> list[DirectoryEntry] | None:
            if directory.endswith("/locked"):
                raise FileError("no entry", fields={"path": directory})
            return super().entries(directory)

    tree.repository("w")
    tree.agent("w/locked")
    tree.agent("w/open")
    walked = identity_tree(tree, Locked())
    assert [(diagnostic.code, diagnostic.path) for diagnostic in walked.diagnostics] == [("unreadable", tree.path("w/locked"))]
    assert [target.place.path for target in walked.targets] == [tree.path("w/open")]


# Smoke


def run_smoke(tree: Tree, files: LocalFiles | None = None) -> list[str]:
    files = files or LocalFiles()
    return [
        finding.code
        for finding in smoke_tree(files, GitHistory(os.environ), identity_tree(tree, files)).findings
        if finding.code != "history-unavailable"
    ]


def test_smoke_finds_a_merge_that_is_not_deterministic(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", title="x")

    class Changing(LocalFiles):
        reads = 0

        def read(self, path: str, limit: int) -> bytes | None:
            data = super().read(path, limit)
            if data is None or not path.endswith(".agent.triad.json"):
                return data
            self.reads += 1
            return data.replace(b'"x"', b'"%d"' % self.reads)

    assert run_smoke(tree) == []
    assert run_smoke(tree, Changing()) == ["merge-unstable"]


def test_smoke_finds_a_result_that_depends_on_directory_order(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.repository("w")
    for name in ("a", "b"):
        tree.document("w", "scout", "agent", {"slug": "scout", "title": name}, name=f"{name}.agent.triad.json")

    def as_listed(entries: Sequence[DirectoryEntry], kind: str) -> tuple[list[DirectoryEntry], bool]:
        return [entry for entry in entries if entry.name.endswith(f".{kind}.triad.json")], False

    assert run_smoke(tree) == ["ambiguous-triad"]
    monkeypatch.setattr(contexts, "candidates", as_listed)
    assert "merge-unstable" in run_smoke(tree)


def test_smoke_finds_a_value_without_an_origin(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.repository("w")
    tree.agent("w", title="x")
    origins = MergedDocument.origins
    monkeypatch.setattr(
        MergedDocument, "origins", lambda self: {at: origin for at, origin in origins(self).items() if at != "/title"}
    )
    findings = checks.smoke(tree.path("w"), environment=os.environ).findings
    assert [finding.pointer for finding in findings if finding.code == "origin-missing"] == ["/title"] * 3


def test_smoke_continues_after_an_agent_that_does_not_resolve(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", "a", rootChain={"mode": "sideways"})
    tree.agent("w", "b", status="paused")
    tree.directory("w/.clia/agents/empty")
    tree.agent("w", "root")
    report = checks.smoke(tree.path("w"), environment=os.environ)
    assert [(identity.slug, identity.ok) for identity in report.agents] == [("a", False), ("b", True)]
    assert "invalid-root-chain" in [finding.code for finding in report.findings]


# Doctor


def test_doctor_shows_chain_inheritance_and_findings_of_each_agent(tree: Tree) -> None:
    tree.repository("w")
    root = tree.agent("w", "root", title="a\u200bb")
    outer = tree.agent("w", inherits=[".clia/agents/root/root@w.agent.triad.json"])
    tree.agent("w/s", mentors=[5])
    tree.agent("w/s", "idle", status="paused", title="Idle", mentors=[5])
    tree.agent("w/s/below", "unseen")
    report = checks.doctor(tree.path("w/s"), environment=os.environ, ceiling=tree.path()).to_json()
    idle, scout = report["agents"]
    assert [context["path"] for context in scout["chain"]] == [tree.path("w"), tree.path("w/s")]
    assert scout["inherits"] == [{"document": "agent", "path": str(root), "inheritedBy": str(outer)}]
    assert [finding["code"] for finding in scout["findings"]] == ["hidden-text", "schema"]
    assert (idle["title"], idle["active"], [finding["code"] for finding in idle["findings"]]) == ("Idle", False, ["schema"])
    assert [finding["code"] for finding in report["findings"]] == ["history-unavailable", "hidden-text"]
    assert report["summary"] == {"error": 3, "warning": 0, "info": 1}
    assert report["repository"] == tree.path("w")


def test_doctor_shows_the_default_chain_if_the_root_chain_is_invalid(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", rootChain=5)
    (examined,) = checks.doctor(tree.path("w"), environment=os.environ).agents
    assert examined.mode is None
    assert [context.directory for context in examined.chain] == [tree.path("w")]


def test_a_check_that_cannot_read_does_not_stop_the_others(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(subject: object) -> list[Diagnostic]:
        raise FileError("gone", fields={"path": "/"})  # sorts before all other paths

    monkeypatch.setattr(linting, "CHECKS", (linting.LintCheck((), broken), *linting.CHECKS))
    tree.repository("w")
    tree.agent("w", guardrails=5)
    assert codes(tree) == ["unreadable", "wrong-type"]

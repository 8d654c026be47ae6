"""How lint behaves beyond its single codes: what it looks at, what it leaves alone, in which order."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from clia.errors import AgentNotFound, FileError, InvalidInput, NotFound
from clia.identities import checks, contexts
from clia.identities import lint as linting
from clia.identities.checks import smoke_tree
from clia.identities.files import LocalFiles
from clia.identities.git_history import GitHistory
from clia.identities.lineage import MergedDocument
from clia.identities.roster import tree_of
from clia.identities.working_path import survey
from clia.values.canonical import digest, text_digest
from support import git

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clia.identities.diagnostics import Diagnostic
    from clia.identities.files import DirectoryEntry
    from clia.identities.lint import FindingsReport
    from clia.identities.roster import IdentityTree
    from clia.identities.working_path import WorkingPath
    from support import Tree


def seen_in(tree: Tree, files: LocalFiles) -> IdentityTree:
    def survey_at(directory: str) -> WorkingPath:
        return survey(files, directory, ceiling=tree.path())

    return tree_of(files, survey_at(tree.path("w")), survey_at)


def lint(tree: Tree, where: str = "w", **options: object) -> FindingsReport[linting.CheckedIdentity]:
    return checks.lint(tree.path(where), environment=os.environ, ceiling=tree.path(), **options)  # type: ignore[arg-type]


def codes(tree: Tree, where: str = "w", **options: object) -> list[str]:
    ignored = "history-unavailable"
    return [each.code for each in lint(tree, where, **options).findings if each.code != ignored]


def agents(tree: Tree, where: str = "w") -> list[tuple[str, str, bool]]:
    return [(each.slug, os.path.relpath(each.directory, tree.root), each.active) for each in lint(tree, where).agents]


def test_agents_above_and_below_are_checked_each_from_its_own_place(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", "outer")
    tree.agent("w/a/b", "inner")
    tree.agent("w/a/b", "outer")
    tree.directory("w/a")
    assert agents(tree, "w/a") == [("inner", "w/a/b", True), ("outer", "w", True), ("outer", "w/a/b", True)]


def test_the_walk_leaves_out_hidden_directories_packages_and_links(tree: Tree) -> None:
    tree.repository("w")
    for where in ("w/node_modules/p", "w/.venv/p", "w/.git/p", "w/.cache/p", "other/p"):
        tree.agent(where, "stray")
    (tree.root / "w/link").symlink_to(tree.root / "other")
    tree.agent("w/fine", "scout")
    assert agents(tree) == [("scout", "w/fine", True)]


def test_reserved_names_and_inactive_agents_are_left_alone(tree: Tree) -> None:
    tree.repository("w")
    for slug in ("_drafts", "templates"):
        tree.document("w", slug, "agent", {"slug": "x", "guardrails": 5})
    for slug, status in (("paused", "paused"), ("old", "Deprecated"), ("draft", " draft ")):
        tree.agent("w", slug, status=status, guardrails=5, title="a\u200bb")
    assert codes(tree) == []
    assert agents(tree) == [("draft", "w", False), ("old", "w", False), ("paused", "w", False)]


@pytest.mark.parametrize("status", [None, "", "active", " Active "])
def test_an_agent_that_is_active_or_says_nothing_is_checked(tree: Tree, status: str | None) -> None:
    tree.repository("w")
    tree.agent("w", status=status, guardrails=[5])
    assert codes(tree) == ["schema"]


def test_root_directives_are_checked_as_documents_and_not_as_an_agent(tree: Tree) -> None:
    tree.repository("w")
    tree.document("w", "root", "agent", {"slug": "agent-profile", "title": "a\u202eb", "mentors": [5]})
    assert codes(tree) == ["schema", "hidden-text"]


def test_what_an_agent_inherits_is_checked_too(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", inherits=["policy.json", "x.agent.triad.json"])
    tree.write("w/policy.json", json.dumps({"guardrails": ["a\u200bb"], "mentors": [5]}))
    tree.write("w/x.agent.triad.json", json.dumps({"mentors": [5]}))
    found = {(each.code, os.path.basename(each.path or ""), each.pointer) for each in lint(tree).findings}
    # A fragment has no schema; a document has.
    assert {("hidden-text", "policy.json", "/guardrails/0"), ("schema", "x.agent.triad.json", "")} <= found
    assert ("schema", "x.agent.triad.json", "/mentors/0") in found
    assert not any(code == "schema" for code, name, _ in found if name == "policy.json")


def test_a_journal_may_quote_what_a_profile_may_not_say(tree: Tree) -> None:
    tree.repository("w")
    tree.agency("w", entries=[{"summary": "found \u200b and <!-- x --> and \x1b[0m"}])
    assert codes(tree) == []


def test_a_schema_error_is_not_said_twice(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", guardrails=5, checklists="one", mentors=[5])
    assert codes(tree) == ["scalar-for-list", "wrong-type", "schema"]


def test_an_agent_with_a_broken_root_chain_is_still_checked(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", rootChain={"mode": "sideways"}, title="a\u200bb")
    tree.agent("w", "paused", rootChain={"mode": "sideways"}, status="paused")
    assert codes(tree) == ["invalid-root-chain", "hidden-text"]


def test_a_document_that_no_one_can_look_at_does_not_end_the_run(tree: Tree) -> None:
    tree.repository("w")
    tree.directory("w/.clia/agents/scout")
    (tree.root / "w/.clia/agents/scout/scout.agent.triad.json").symlink_to("x" * 300)
    tree.agent("w", "worker", mentors=[5])
    assert codes(tree) == ["unreadable", "schema"]


def test_a_link_beside_the_documents_may_not_leave_the_repository(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w")
    tree.write("secret.md", "x")
    (tree.root / "w/.clia/agents/scout/persona.md").symlink_to(tree.root / "secret.md")
    (tree.root / "w/.clia/agents/scout/inside.md").symlink_to(tree.root / "w")
    found = [each for each in lint(tree).findings if each.code == "symlink-escape"]
    assert [os.path.basename(each.path or "") for each in found] == ["persona.md"]


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


def test_an_agent_whose_directory_is_linked_answers_to_both_names(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", "scout")
    (tree.root / "w/.clia/agents/alias").symlink_to("scout")
    assert codes(tree) == []


def test_an_approved_waiver_allows_less_force(tree: Tree) -> None:
    tree.repository("w")
    rule, entry = "Agents must write tests.", {"summary": "fine", "contributions": [{"by": "boss"}]}
    tree.agent("w", guardrails=[rule])
    tree.agent("w", "boss", profileType="operator")
    tree.agency("w", entries=[entry])
    softer: dict[str, Any] = {"guardrails": ["Agents may write tests."]}
    tree.agent("w/s", **softer)
    assert codes(tree) == ["guardrail-weakened"]
    tree.agent("w/s", **softer, waivers=[{"guardrail": text_digest(rule), "approval": digest(entry)}])
    assert codes(tree) == []


def test_findings_come_in_one_order_whatever_the_listings_say(tree: Tree) -> None:
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
            found = super().entries(directory)
            return found and sorted(found, key=lambda each: digest([self.turn, each.name]))

    def run(files: LocalFiles) -> FindingsReport[linting.CheckedIdentity]:
        told.clear()
        return linting.lint_tree(files, GitHistory(os.environ), seen_in(tree, files), watch=lambda *heard: told.append(heard))

    told: list[tuple[int, int, str]] = []
    expected, order = run(LocalFiles()), list(told)
    paths = [each.path or "" for each in expected.findings]
    assert paths == sorted(paths)
    assert len(paths) > 12
    for turn in range(5):
        assert run(Shuffled(turn)) == expected
        assert told == order


def test_only_the_agents_asked_for_are_checked(tree: Tree) -> None:
    tree.repository("w")
    for slug in ("a", "b", "c"):
        tree.agent("w", slug, mentors=[5])
    found = lint(tree, slugs=["c", "a"])
    assert [each.slug for each in found.agents] == ["a", "c"]
    assert {each.path and each.path.split("/")[-2] for each in found.findings if each.code == "schema"} == {"a", "c"}


def test_bad_input_is_refused(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w")
    with pytest.raises(InvalidInput):
        lint(tree, slugs=["../x"])
    with pytest.raises(AgentNotFound):
        lint(tree, slugs=["scout", "gone"])
    with pytest.raises(NotFound):
        lint(tree, "nowhere")


def test_a_watcher_hears_of_each_agent_once(tree: Tree) -> None:
    tree.repository("w")
    for slug in ("b", "a"):
        tree.agent("w", slug)
    heard: list[tuple[int, int, str]] = []
    lint(tree, watch=lambda *told: heard.append(told))
    assert heard == [(0, 2, "a"), (1, 2, "b")]


# The past


def lossless(tree: Tree, where: str = "w", **options: object) -> list[Diagnostic]:
    return [each for each in lint(tree, where, **options).findings if each.code == "removed-without-archive"]


def committed(tree: Tree, root: str = "w") -> None:
    git("init", "-q", cwd=tree.directory(root))
    git("add", "-A", cwd=tree.root / root)
    git("commit", "-q", "--allow-empty", "-m", "x", cwd=tree.root / root)


def test_a_removal_is_found_before_it_is_committed(tree: Tree) -> None:
    document = tree.agent("w")
    committed(tree)
    document.unlink()
    assert [each.path for each in lossless(tree)] == [str(document)]


def test_a_document_renamed_in_its_directory_is_not_removed(tree: Tree) -> None:
    document = tree.agent("w", title="x")
    committed(tree)
    document.rename(document.with_name("new.agent.triad.json"))
    committed(tree)
    assert lossless(tree) == []


def test_an_archive_counts_only_with_the_very_same_content(tree: Tree) -> None:
    document = tree.agent("w", title="last")
    tree.agent("w", "keeper")
    committed(tree)
    archive = tree.write("w/deep/.clia/agents/keeper/legacy-imports/a/b/c.json", document.read_bytes())
    document.unlink()
    committed(tree)
    assert lossless(tree) == []
    archive.write_bytes(archive.read_bytes().replace(b"\n", b"\r\n"))  # as a checkout with converted line endings has it
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


def test_only_removals_in_reach_of_the_path_and_of_the_agents_asked_for_are_told(tree: Tree) -> None:
    gone = [tree.agent("w", "a"), tree.agent("w/s", "b"), tree.agent("w/t", "c"), tree.agent("w", "_drafts")]
    tree.agent("w/s/u", "d")
    committed(tree)
    for each in gone:
        each.unlink()
    assert [each.path for each in lossless(tree, "w/s")] == [str(gone[0]), str(gone[1])]
    assert [each.path for each in lossless(tree)] == [str(each) for each in gone[:3]]
    assert [each.path for each in lossless(tree, slugs=["d"])] == []


def test_the_past_of_nested_repositories_is_read(tree: Tree) -> None:
    document = tree.agent("w/sub")
    committed(tree, "w/sub")
    tree.agent("w", "keeper")
    committed(tree)
    document.unlink()
    assert [each.path for each in lossless(tree)] == [str(document)]
    last = git("show", "HEAD:.clia/agents/scout/scout@sub.agent.triad.json", cwd=tree.root / "w/sub")
    tree.write("w/.clia/agents/keeper/legacy-imports/x.json", last)
    assert lossless(tree) == []


def test_what_cannot_be_listed_is_neither_gone_nor_an_archive(tree: Tree) -> None:
    document = tree.agent("w")
    lost = tree.agent("w", "lost")
    tree.agent("w", "keeper")
    committed(tree)
    content = lost.read_bytes()
    for each in (document, lost):
        each.unlink()
    document.parent.rmdir()
    document.parent.symlink_to("scout")
    (tree.root / "w/.clia/agents/keeper/legacy-imports").symlink_to("legacy-imports")
    assert [each.path for each in lossless(tree)] == [str(lost)]
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
    seen = seen_in(tree, Locked())
    assert [(each.code, each.path) for each in seen.diagnostics] == [("unreadable", tree.path("w/locked"))]
    assert [each.place.path for each in seen.targets] == [tree.path("w/open")]


# Smoke


def run_smoke(tree: Tree, files: LocalFiles | None = None) -> list[str]:
    files = files or LocalFiles()
    return [
        each.code
        for each in smoke_tree(files, GitHistory(os.environ), seen_in(tree, files)).findings
        if each.code != "history-unavailable"
    ]


def test_smoke_finds_a_merge_that_differs_from_run_to_run(tree: Tree) -> None:
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


def test_smoke_finds_an_order_of_names_that_leaks_into_the_answer(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.repository("w")
    for name in ("a", "b"):
        tree.document("w", "scout", "agent", {"slug": "scout", "title": name}, name=f"{name}.agent.triad.json")

    def as_listed(entries: Sequence[DirectoryEntry], kind: str) -> tuple[list[DirectoryEntry], bool]:
        return [each for each in entries if each.name.endswith(f".{kind}.triad.json")], False

    assert run_smoke(tree) == ["ambiguous-triad"]
    monkeypatch.setattr(contexts, "candidates", as_listed)
    assert "merge-unstable" in run_smoke(tree)


def test_smoke_finds_a_value_without_an_origin(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.repository("w")
    tree.agent("w", title="x")
    whole = MergedDocument.origins
    monkeypatch.setattr(MergedDocument, "origins", lambda self: {at: each for at, each in whole(self).items() if at != "/title"})
    found = checks.smoke(tree.path("w"), environment=os.environ).findings
    assert [each.pointer for each in found if each.code == "origin-missing"] == ["/title"] * 3


def test_smoke_goes_on_after_an_agent_that_does_not_resolve(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", "a", rootChain={"mode": "sideways"})
    tree.agent("w", "b", status="paused")
    tree.directory("w/.clia/agents/empty")
    tree.agent("w", "root")
    report = checks.smoke(tree.path("w"), environment=os.environ)
    assert [(each.slug, each.ok) for each in report.agents] == [("a", False), ("b", True)]
    assert "invalid-root-chain" in [each.code for each in report.findings]


# Doctor


def test_doctor_tells_chain_inheritance_and_findings_of_each_agent(tree: Tree) -> None:
    tree.repository("w")
    root = tree.agent("w", "root", title="a\u200bb")
    outer = tree.agent("w", inherits=[".clia/agents/root/root@w.agent.triad.json"])
    tree.agent("w/s", mentors=[5])
    tree.agent("w/s", "idle", status="paused", title="Idle", mentors=[5])
    tree.agent("w/s/below", "unseen")
    report = checks.doctor(tree.path("w/s"), environment=os.environ, ceiling=tree.path()).to_json()
    idle, scout = report["agents"]
    assert [each["path"] for each in scout["chain"]] == [tree.path("w"), tree.path("w/s")]
    assert scout["inherits"] == [{"document": "agent", "path": str(root), "inheritedBy": str(outer)}]
    assert [each["code"] for each in scout["findings"]] == ["hidden-text", "schema"]
    assert (idle["title"], idle["active"], [each["code"] for each in idle["findings"]]) == ("Idle", False, ["schema"])
    assert [each["code"] for each in report["findings"]] == ["history-unavailable", "hidden-text"]
    assert report["summary"] == {"error": 3, "warning": 0, "info": 1}
    assert report["repository"] == tree.path("w")


def test_doctor_shows_the_default_chain_where_the_root_chain_cannot_be_used(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", rootChain=5)
    (examined,) = checks.doctor(tree.path("w"), environment=os.environ).agents
    assert examined.mode is None
    assert [each.directory for each in examined.chain] == [tree.path("w")]


def test_one_check_that_cannot_read_does_not_stop_the_others(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(subject: object) -> list[Diagnostic]:
        raise FileError("gone", fields={"path": "/"})  # before every other path: findings are in their order

    monkeypatch.setattr(linting, "CHECKS", (linting.LintCheck((), broken), *linting.CHECKS))
    tree.repository("w")
    tree.agent("w", guardrails=5)
    assert codes(tree) == ["unreadable", "wrong-type"]

"""Every code of lint: a tree that triggers it, and a similar one that does not."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from clia.files import LocalFiles
from clia.identities import lint as linting
from clia.identities.diagnostics import CODES
from clia.identities.git_history import GitHistory
from clia.identities.roster import seen_from, tree_of
from clia.identities.working_path import survey
from clia.values.canonical import digest, text_digest
from support import git
from support.waivers import about

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from clia.identities.diagnostics import Diagnostic
    from support import Tree

    Build = Callable[[Tree], object]

STRANGERS = frozenset([os.getuid() + 1])
ROOT_DOCUMENT = ".clia/agents/root/root@w.agent.triad.json"
RULE = "Agents must write tests."

# Codes of other commands, which lint never reports.
ELSEWHERE = {
    "export-too-long": "export measures the files it writes",
    "agents-dir-unused": "writing commands take --agents-dir",
    "merge-unstable": "smoke merges twice and compares",
    **dict.fromkeys(("root-missing", "root-weakened"), "spawn and run compare with the last commit"),
    **dict.fromkeys(linting.AGENT_CODES, "test_agent_places.py has agents"),
    "origin-missing": "smoke asks for the origin of every value",
}


class Case(NamedTuple):
    fires: Build
    quiet: Build
    pointer: str | None = None
    trusted: frozenset[int] | None = None


def findings(tree: Tree, where: str = "w", trusted: frozenset[int] | None = None) -> tuple[Diagnostic, ...]:
    files = LocalFiles()
    top = survey(files, tree.path(where), ceiling=tree.path(), trusted=trusted)
    identity_tree = tree_of(files, top, lambda directory: survey(files, directory, ceiling=tree.path(), trusted=trusted))
    return linting.lint_tree(files, GitHistory(os.environ), identity_tree).findings


def repo(tree: Tree) -> Path:
    return tree.repository("w")


def agent(**content: Any) -> Build:
    """A repository with one agent of this content."""

    def build(tree: Tree) -> None:
        repo(tree)
        tree.agent("w", **content)

    return build


def two_layers(outer: dict[str, Any], inner: dict[str, Any]) -> Build:
    def build(tree: Tree) -> None:
        repo(tree)
        tree.agent("w", **outer)
        tree.agent("w/s", **inner)

    return build


def raw(text: str | bytes) -> Build:
    def build(tree: Tree) -> None:
        repo(tree)
        tree.write("w/.clia/agents/scout/scout@w.agent.triad.json", text)

    return build


def documents_named(*names: str) -> Build:
    """The same agent document under several names."""

    def build(tree: Tree) -> None:
        repo(tree)
        for name in names:
            tree.document("w", "scout", "agent", name=name)

    return build


def linked(target: str, *, document: bool = False) -> Build:
    """The agent's directory, or its document, is a link."""

    def build(tree: Tree) -> None:
        repo(tree)
        tree.agent("w/elsewhere", "scout")
        tree.agent("outside", "scout")
        home = tree.directory("w/.clia/agents")
        if document:
            tree.directory("w/.clia/agents/scout")
            (home / "scout" / "scout.agent.triad.json").symlink_to(tree.root / target)
        else:
            (home / "scout").symlink_to(tree.root / target)

    return build


def linked_root(target: str | None) -> Build:
    """Root directives in a directory, or in one that is linked in its place."""

    def build(tree: Tree) -> None:
        repo(tree)
        tree.agent("w", inherits=[".clia/agents/root/root.agent.triad.json"])
        path = tree.write(f"{target or 'w/.clia/agents/root'}/root.agent.triad.json", '{"slug": "root", "guardrails": ["Ask."]}')
        if target is not None:
            (tree.root / "w/.clia/agents/root").symlink_to(path.parent)

    return build


def gitmodules(text: str) -> Build:
    def build(tree: Tree) -> None:
        repo(tree)
        tree.agent("w")
        tree.write("w/.gitmodules", text)

    return build


def inheriting(*targets: str, kind: str = "agent", files: tuple[str, ...] = (), **more: Any) -> Build:
    """A document that inherits, and files to inherit from."""

    def build(tree: Tree) -> None:
        repo(tree)
        tree.document("w", "scout", kind, {"slug": "scout", "inherits": list(targets), **more})
        for name in files:
            tree.write(name, json.dumps({"slug": "base"}))

    return build


def inherits_circle(tree: Tree) -> None:
    repo(tree)
    tree.agent("w", inherits=["a.agent.triad.json"])
    tree.write("w/a.agent.triad.json", '{"slug": "a", "inherits": ["b.agent.triad.json"]}')
    tree.write("w/b.agent.triad.json", '{"slug": "b", "inherits": ["a.agent.triad.json"]}')


def inherits_diamond(tree: Tree) -> None:
    repo(tree)
    tree.agent("w", inherits=["a.agent.triad.json", "b.agent.triad.json"])
    tree.write("w/a.agent.triad.json", '{"slug": "a", "inherits": ["c.agent.triad.json"]}')
    tree.write("w/b.agent.triad.json", '{"slug": "b", "inherits": ["c.agent.triad.json"]}')
    tree.write("w/c.agent.triad.json", '{"slug": "c"}')


def root_directives(**content: Any) -> Build:
    """A repository with root directives, and an agent seen from below it."""

    def build(tree: Tree) -> None:
        repo(tree)
        tree.agent("w", "root", title="Directives")
        tree.agent("w", "scout", **content)
        tree.agent("w/s", "scout", title="more local")

    return build


def chain(mode: str, *roots: str, guardrails: list[str] | None = None) -> Build:
    """Contexts at w, w/r and w/r/s; the innermost asks for a root chain."""

    def build(tree: Tree) -> None:
        repo(tree)
        tree.directory("w/bare")
        tree.directory("w/r/bare")
        tree.agent("w", guardrails=guardrails or [])
        tree.agent("w/r", title="middle")
        tree.agent("w/r/s", rootChain={"mode": mode, "roots": [{"kind": "path", "path": root} for root in roots]})

    return build


def waiver(*, by: str, approved: bool = True, guardrail: str = RULE) -> Build:
    """A waiver in w/s of a guardrail of w; an entry in w's agency approves it."""

    def build(tree: Tree) -> None:
        repo(tree)
        entry: dict[str, Any] = {"kind": "decision", "summary": "waived", "contributions": [{"by": by}]}
        entry["extensions"] = about(tree.root / "w", RULE)
        tree.agent("w", guardrails=[RULE])
        tree.agent("w", "boss", profileType="operator")
        if approved:
            tree.agency("w", entries=[entry])
        tree.agent("w/s", waivers=[{"guardrail": text_digest(guardrail), "approval": digest(entry)}])

    return build


def history(*steps: Callable[[Tree], object], shallow: bool = False) -> Build:
    """A real repository with one agent, one commit after each step but the last."""

    def build(tree: Tree) -> None:
        root = tree.directory("origin" if shallow else "w")
        git("init", "-q", "-b", "main", cwd=root)
        tree.agent(root.name, "scout", title="first")
        tree.agent(root.name, "keeper")
        for step in (lambda _: None, *steps):
            step(tree)
            git("add", "-A", cwd=root)
            git("commit", "-q", "--allow-empty", "-m", "step", cwd=root)
        if shallow:
            git("clone", "-q", "--depth", "1", f"file://{root}", tree.path("w"), cwd=tree.root)

    return build


def remove(tree: Tree) -> None:
    (tree.root / "w/.clia/agents/scout/scout@w.agent.triad.json").unlink()


def archive(tree: Tree) -> None:
    old = tree.root / "w/.clia/agents/scout/scout@w.agent.triad.json"
    tree.write(f"w/.clia/agents/keeper/legacy-imports/scout/{old.name}", old.read_bytes())


def nested(levels: int) -> str:
    return '{"slug": "scout", "x": ' + "[" * levels + "]" * levels + "}"


CASES: dict[str, Case] = {
    "invalid-json": Case(raw('{"slug": "scout",}'), raw('\ufeff{"slug":\r\n"scout"}')),
    "document-too-large": Case(
        raw(b'{"slug": "scout"}'.ljust(16 * 1024 * 1024 + 1)), raw(b'{"slug": "scout"}'.ljust(16 * 1024 * 1024))
    ),
    "document-too-deep": Case(raw(nested(500)), raw(nested(50))),
    "wrong-type": Case(agent(guardrails=5), agent(guardrails=["five"]), "/guardrails"),
    "scalar-for-list": Case(agent(guardrails="one"), agent(guardrails=["one"]), "/guardrails"),
    "unreadable": Case(linked("w/.clia/agents/scout"), linked("w/elsewhere/.clia/agents/scout")),
    "not-a-file": Case(lambda tree: (repo(tree), tree.directory("w/.clia/agents/scout/a.agent.triad.json")), agent()),
    "not-a-directory": Case(
        lambda tree: (repo(tree), tree.write("w/.clia/agents/scout", "")),
        lambda tree: (repo(tree), tree.write("w/.clia/agents/README.md", "")),
    ),
    "symlink-escape": Case(linked("outside/.clia/agents/scout"), linked("w/elsewhere/.clia/agents/scout")),
    "untrusted-owner": Case(lambda tree: tree.agent("w"), agent(), trusted=STRANGERS),
    "unsafe-submodule-path": Case(gitmodules('[submodule "x"]\n\tpath = ../x\n'), gitmodules('[submodule "x"]\n\tpath = lib/x\n')),
    "invalid-gitmodules": Case(gitmodules('[submodule "x"\n'), gitmodules('[submodule "x"]\n\tpath = x ; fine\n')),
    "ambiguous-triad": Case(
        documents_named("a.agent.triad.json", "b.agent.triad.json"), documents_named("a.agent.triad.json", "b.agent.triad.json.bak")
    ),
    "legacy-name": Case(documents_named("scout.agent.json"), documents_named("scout.agent.json", "scout.agent.triad.json")),
    "inherits-missing": Case(
        inheriting("gone.agent.triad.json"),
        inheriting("here.agent.triad.json", files=("w/here.agent.triad.json",)),
        "/inherits/0",
    ),
    "inherits-remote": Case(
        inheriting("https://example.org/x.agent.triad.json"),
        inheriting("https.agent.triad.json", files=("w/https.agent.triad.json",)),
        "/inherits/0",
    ),
    "inherits-outside": Case(
        inheriting("../x.agent.triad.json", files=("x.agent.triad.json",)),
        inheriting("s/../x.agent.triad.json", files=("w/s/y", "w/x.agent.triad.json")),
        "/inherits/0",
    ),
    "inherits-cycle": Case(inherits_circle, inherits_diamond, "/inherits"),
    "inherits-kind-mismatch": Case(
        inheriting("x.agent.triad.json", kind="agenda", files=("w/x.agent.triad.json",)),
        inheriting("x.agenda.triad.json", kind="agenda", files=("w/x.agenda.triad.json",)),
        "/inherits/0",
    ),
    "inherits-legacy-place": Case(
        inheriting(files=("w/x.agent.triad.json",), extensions={"inherits": ["x.agent.triad.json"]}),
        inheriting("x.agent.triad.json", files=("w/x.agent.triad.json",), extensions={"x-badge": "[S]"}),
        "/extensions/inherits/0",
    ),
    "inherits-legacy-name": Case(
        inheriting("x.agent.json", files=("w/x.agent.json",)),
        inheriting("x.agent.triad.json", files=("w/x.agent.triad.json",)),
        "/inherits/0",
    ),
    "root-symlink": Case(linked_root("w/elsewhere"), linked_root(None), None),
    "inherits-root-missing": Case(root_directives(), root_directives(inherits=[ROOT_DOCUMENT]), "/inherits"),
    "invalid-root-chain": Case(chain("explicit", "bare"), chain("explicit", "r"), "/rootChain/roots/0/path"),
    "root-without-agent": Case(
        lambda tree: (repo(tree), tree.agent("w/r/s", rootChain={"mode": "hybrid", "roots": [{"path": "r"}]})),
        chain("hybrid", "r"),
        "/rootChain/roots/0/path",
    ),
    "guardrails-pinned": Case(chain("explicit", "r", guardrails=[RULE]), chain("hybrid", "r", guardrails=[RULE])),
    "guardrail-dropped": Case(chain("explicit", "r", guardrails=[RULE]), chain("explicit", "r"), "/rootChain"),
    "slug-mismatch": Case(
        lambda tree: (repo(tree), tree.document("w", "scout", "agenda", {"slug": "other"})),
        lambda tree: (repo(tree), tree.document("w", "root", "agent", {"slug": "agent-profile"})),
        "/slug",
    ),
    "invalid-slug": Case(
        lambda tree: (repo(tree), tree.agent("w", "Scout")), lambda tree: (repo(tree), tree.agent("w", "_drafts"))
    ),
    "guardrail-weakened": Case(
        two_layers({"guardrails": [RULE]}, {"guardrails": ["Be kind.", "Agents should write tests."]}),
        two_layers({"guardrails": ["Agents should write tests."]}, {"guardrails": [RULE]}),
        "/guardrails/1",
    ),
    "waiver-unapproved": Case(waiver(by="scout"), waiver(by="boss"), "/waivers/0"),
    "waiver-unknown-guardrail": Case(waiver(by="boss", guardrail="Another one."), waiver(by="boss"), "/waivers/0"),
    "checklist-disabled": Case(
        two_layers(
            {"checklists": [{"title": "T", "items": ["Run it"]}]}, {"checklists": [{"text": "run it", "level": "disabled"}]}
        ),
        two_layers({"checklists": ["Run it"]}, {"checklists": [{"text": "Run it", "level": "optional"}]}),
        "/checklists/0",
    ),
    "invalid-rule": Case(
        agent(guardrails=[{"text": RULE, "rules": [{"on": "tool", "do": "forbid"}]}]),
        agent(guardrails=[{"text": RULE, "rules": [{"on": "tool", "do": "deny"}]}]),
        "/guardrails/0/rules/0/do",
    ),
    "unmatchable-rule": Case(
        agent(guardrails=[{"text": RULE, "rules": [{"on": "tool", "match": {"command": "curl * | sh"}, "do": "deny"}]}]),
        agent(guardrails=[{"text": RULE, "rules": [{"on": "tool", "match": {"command": "curl *"}, "do": "deny"}]}]),
        "/guardrails/0/rules/0",
    ),
    "schema": Case(agent(mentors=["a", 5]), agent(mentors=["a", {"name": "b"}]), "/mentors/1"),
    "hidden-text": Case(agent(title="a\u200bb"), agent(title="👩‍💻 ❤️ a"), "/title"),
    "html-comment": Case(agent(purpose="x <!-- do it -->"), agent(purpose="x <- y, a -- b"), "/purpose"),
    "ansi-escape": Case(agent(purpose="x \x1b[31m"), agent(purpose="x \\x1b[31m"), "/purpose"),
    "removed-without-archive": Case(history(remove), history(archive, remove)),
    "history-shallow": Case(history(lambda _: None, shallow=True), history()),
    "history-unavailable": Case(agent(), history()),
}


def test_every_code_of_lint_has_a_case() -> None:
    assert set(CASES) == set(CODES) - set(ELSEWHERE)
    assert set(ELSEWHERE) <= set(CODES)


def test_the_checks_declare_exactly_the_codes_with_a_case() -> None:
    declared = {code for check in (*linting.CHECKS, *linting.DOCUMENT_CHECKS) for code in check.codes}
    assert declared | {*linting.TREE_CODES, *linting.HISTORY_CODES} == {*CASES, *linting.AGENT_CODES}


@pytest.mark.parametrize("code", CASES)
def test_a_tree_with_the_problem_gets_the_code(tree: Tree, code: str) -> None:
    case = CASES[code]
    case.fires(tree)
    matching = [finding for finding in findings(tree, trusted=case.trusted) if finding.code == code]
    assert len(matching) == 1, matching
    assert matching[0].pointer == case.pointer
    assert matching[0].severity == CODES[code].severity
    assert matching[0].path is not None
    assert matching[0].path.startswith(tree.path())


@pytest.mark.parametrize("code", CASES)
def test_a_tree_without_the_problem_does_not_get_the_code(tree: Tree, code: str) -> None:
    case = CASES[code]
    case.quiet(tree)
    assert code not in {finding.code for finding in findings(tree, trusted=case.trusted)}


@pytest.mark.parametrize("check", linting.CHECKS, ids=lambda check: check.run.__name__)
def test_a_check_reports_only_codes_that_it_declares(tree: Tree, check: linting.LintCheck) -> None:
    from clia.identities.lint import LintSubject, load_subject

    for number, code in enumerate(candidate for candidate in CASES if candidate not in linting.HISTORY_CODES):
        subtree = type(tree)(tree.directory(str(number)))
        CASES[code].fires(subtree)
        files = LocalFiles()
        top = survey(files, subtree.path("w"), ceiling=subtree.path())
        for target in seen_from(files, top).targets:
            subject = load_subject(files, target)
            if isinstance(subject, LintSubject):
                assert {finding.code for finding in check.run(subject)} <= set(check.codes)

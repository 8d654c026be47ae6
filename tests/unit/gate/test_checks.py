"""Pushes with a plain git client to a bare repository with the gate: bad ones are refused with their reason, good ones accepted."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from clia.space.model import Link, Submodule
from clia.trust.machine_log import LogEntry, LoggedMove
from clia.values.canonical import text_digest
from support.gate_pushes import (
    ADA,
    BASE,
    BOB,
    GATE,
    LOCAL,
    POLICY,
    ROOT,
    ROOT_RULE,
    RULE,
    RULES,
    SCOUT,
    SUB,
    GateDesk,
    identity,
)
from support.machine_logs import LOGS, chained, log_data


class Push(NamedTuple):
    """What a case pushes: a commit to its branch, further refs, and where the branch is before."""

    head: str
    also: tuple[str, ...] = ()
    start: str | None = None
    ref: str | None = None  # another ref than the branch of the case
    force: bool = False


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> GateDesk:
    return GateDesk(tmp_path_factory.mktemp("gate").resolve())


def lost(changes: dict[str, Any]) -> Any:
    return lambda desk: desk.work_of(desk.base, changes)


def on_top(desk: GateDesk, *changes: dict[str, Any]) -> str:
    """Several commits of an agent."""
    head = desk.base
    for each in changes:
        head = desk.work_of(head, each)
    return head


ONE, TWO = {"src/app.py": "1\n"}, {"src/app.py": "2\n"}
AGENTS_ADDRESS = "Ada <scout@agents.clia.invalid>"
JOURNAL = ".clia/agents/scout/scout.agency.triad.json"
WITHOUT_RULE = {SCOUT: identity("scout", inherits=[ROOT])}
INFRA, LIB, CORE = {"infra/main.tf": "two\n"}, {"lib/a.py": "a = 2\n"}, {"core/a.py": "a = 2\n"}


def approved_then(desk: GateDesk, *changes: dict[str, Any]) -> str:
    """An approved loss, then further work."""
    head = desk.approval(on_top(desk, WITHOUT_RULE))
    for each in changes:
        head = desk.work_of(head, each)
    return head


def decided_then(desk: GateDesk, changes: dict[str, Any]) -> str:
    return desk.work_of(desk.decision(on_top(desk, INFRA)), changes)


def merged(desk: GateDesk, side: str, tree_of: str | None = None) -> str:
    """A person's merge of a side branch into other work on the branch."""
    own = desk.commit({}, desk.base, changes={"src/app.py": "print(2)\n"})
    tree = desk.objects.commit(tree_of or side).tree
    return desk.commit({}, own, side, tree=tree)


def squashed(desk: GateDesk, head: str, *, publish: bool = True, **more: Any) -> Push:
    landing = desk.squash(head, desk.base, **more)
    return Push(landing, (f"{head}:refs/heads/agents/scout",) if publish else (), force=True)


def squashed_then(desk: GateDesk, changes: dict[str, Any]) -> Push:
    """An approved landing, and further work that landed after it, in one push."""
    first = squashed(desk, approved_then(desk))
    head = desk.work_of(approved_then(desk), changes)
    second = desk.squash(head, first.head, base=approved_then(desk))
    return Push(second, (f"{head}:refs/heads/agents/scout",), force=True)


def squash_of_a_published_head(desk: GateDesk) -> Push:
    head = on_top(desk, ONE)
    return Push(desk.squash(head, desk.base), (f"{head}:refs/clia/agents-published/scout",), force=True)


def undecided_merge(desk: GateDesk) -> str:
    """An approved side branch, merged with another edit of the same file."""
    side = desk.decision(on_top(desk, INFRA))
    merge = merged(desk, side)
    return desk.commit({}, merge, changes={"infra/main.tf": "three\n"})


def reverted(desk: GateDesk) -> Push:
    added = desk.work_of(desk.base, {SCOUT: identity("scout", RULE, "Be careful.", inherits=[ROOT])})
    return Push(desk.work_of(added, {SCOUT: BASE[SCOUT]}), start=added)


def traced(desk: GateDesk, *, fan: int = 1, agent: str = "scout", of: str = "") -> Push:
    head = on_top(desk, CORE)
    notes = desk.trace(of or head, agent=agent, fan=fan)
    return Push(head, (f"{notes}:refs/notes/clia/trace/{agent}",), force=True)


def log(desk: GateDesk, machine: str, length: int, why: str = "test") -> str:
    """The log of a machine with this number of entries."""
    moves = (LoggedMove("refs/heads/agents/scout", None, desk.base, f"{why} {number}") for number in range(length))
    lines = chained(machine, [LogEntry(None, 1, (move,)) for move in moves])
    return desk.objects.write_raw_commit(log_data(desk.objects.update_tree(None, {}), machine, lines))


BAD: dict[str, tuple[Any, str, str]] = {
    # Guardrails
    "removed": (lost(WITHOUT_RULE), "guardrail-loss", RULE),
    "root-removed": (lost({ROOT: identity("root")}), "guardrail-loss", ROOT_RULE),
    "root-as-a-link-to-a-moved-copy": (
        lost({ROOT: None, ROOT.replace("/root/", "/copy/"): BASE[ROOT], ".clia/agents/root": Link("copy")}),
        "guardrail-loss", "is a symlink",
    ),
    "root-rule-removed": (lost({ROOT: identity("root", {"text": ROOT_RULE, "rules": RULES[1:]})}), "guardrail-loss", "weakened"),
    "deleted": (lost({SCOUT: None}), "guardrail-loss", "removed"),
    "weakened": (lost({SCOUT: identity("scout", "Avoid deploying without approval.")}), "guardrail-loss", "weakened"),
    "reworded": (lost({SCOUT: identity("scout", "Never deploy without asking.")}), "guardrail-loss", "reworded"),
    "look-alike": (lost({SCOUT: identity("scout", RULE.replace("e", "\u0435", 1))}), "guardrail-loss", "reworded"),
    "waived": (lost({SCOUT: identity("scout", RULE, waivers=[{"guardrail": text_digest(RULE)}])}), "guardrail-loss", "waived"),
    "renamed": (lost({SCOUT: None, SCOUT.replace("scout", "scout2"): BASE[SCOUT]}), "guardrail-loss", RULE),
    "capitals": (lost({SCOUT: None, SCOUT.replace("agents/scout", "agents/Scout"): BASE[SCOUT]}), "guardrail-loss", RULE),
    "folder-capitals": (lost({SCOUT: None, SCOUT.replace(".clia", ".Clia"): BASE[SCOUT]}), "guardrail-loss", RULE),
    "symlink": (lost({SCOUT: Link("../root/root.agent.triad.json")}), "guardrail-loss", RULE),
    "symlink-outside": (lost({SCOUT: Link("/etc/passwd")}), "guardrail-loss", "unreadable"),
    "folder-symlink": (
        lost({SUB: None, "services/code.py": None, "services": Link("src")}), "guardrail-loss", LOCAL
    ),
    "unreadable": (lost({SCOUT: "{"}), "guardrail-loss", "unreadable"),
    "cyclic-chain": (lost({SCOUT: identity("scout", rootChain={"mode": "x"})}), "guardrail-loss", "unreadable"),
    "moved-away": (lost({SUB: None, "other/" + SUB.partition("/")[2]: BASE[SUB]}), "guardrail-loss", LOCAL),
    "submodule": (lost({"dep": Submodule("a" * 40)}), "guardrail-loss", "submodule dep"),
    "submodule-removed": (lost({"dep": None}), "guardrail-loss", "submodule dep"),
    "gitmodules-and-submodule": (
        lost({".gitmodules": '[submodule "dep"]\n\tpath = dep\n\turl = x\n', "dep": Submodule("b" * 40)}),
        "guardrail-loss", "submodule dep",
    ),
    "by-a-person": (lambda desk: desk.commit({}, desk.base, changes=WITHOUT_RULE), "guardrail-loss", RULE),
    "by-merge": (lambda desk: merged(desk, on_top(desk, WITHOUT_RULE)), "guardrail-loss", RULE),
    "by-revert": (reverted, "guardrail-loss", "Be careful."),
    "by-squash": (lambda desk: squashed(desk, on_top(desk, WITHOUT_RULE)), "guardrail-loss", RULE),
    "in-the-middle": (lambda desk: on_top(desk, ONE, WITHOUT_RULE, TWO), "guardrail-loss", RULE),
    # Approvals of guardrails
    "approval-of-less": (lambda desk: approved_then(desk, {ROOT: identity("root")}), "guardrail-loss", "other changes"),
    "approval-by-the-agent": (
        lambda desk: desk.approval(on_top(desk, WITHOUT_RULE), by="scout"), "guardrail-loss", "own approval"
    ),
    "approval-by-the-agents-address": (
        lambda desk: desk.approval(on_top(desk, WITHOUT_RULE), by=AGENTS_ADDRESS), "guardrail-loss", "own approval",
    ),
    "approval-committed-by-the-agent": (
        lambda desk: desk.approval(on_top(desk, WITHOUT_RULE), committer=ADA._replace(email="scout@agents.clia.invalid")),
        "guardrail-loss", "own approval",
    ),
    "approval-by-a-stranger": (
        lambda desk: desk.approval(on_top(desk, WITHOUT_RULE), by="Eve <eve@example.org>"), "guardrail-loss", "may not approve"
    ),
    "approval-by-nobody": (lambda desk: desk.approval(on_top(desk, WITHOUT_RULE), by=""), "guardrail-loss", "who decided"),
    "approval-of-nothing-asked": (
        lambda desk: desk.approval(on_top(desk, WITHOUT_RULE), request=""), "guardrail-loss", "what was asked"
    ),
    "approval-before-the-last-edit": (
        lambda desk: approved_then(desk, {"src/app.py": "1\n"}), "guardrail-loss", "before the last edit"
    ),
    "approval-before-the-last-edit-of-a-squash": (
        lambda desk: squashed(desk, approved_then(desk, {"src/app.py": "1\n"})), "guardrail-loss", "before the last edit"
    ),
    "approval-before-the-last-edit-of-a-merge": (
        lambda desk: landed(desk, approved_then(desk, {"src/new.py": "1\n"})), "guardrail-loss", "before the last edit"
    ),
    "approval-then-a-rejection": (
        lambda desk: desk.approval(approved_then(desk), value="reject", before=desk.base), "guardrail-loss", "rejects"
    ),
    "rejected": (lambda desk: desk.approval(on_top(desk, WITHOUT_RULE), value="reject"), "guardrail-loss", "rejects"),
    "approval-of-another-change": (
        lambda desk: desk.approval(on_top(desk, WITHOUT_RULE), asked={"change": "0" * 64}), "guardrail-loss", "other changes"
    ),
    "approval-of-another-tree": (
        lambda desk: desk.approval(on_top(desk, WITHOUT_RULE), asked={"tree": "0" * 40}), "guardrail-loss", "no decision on a"
    ),
    "approval-before-the-loss": (
        lambda desk: desk.work_of(desk.approval(desk.base), WITHOUT_RULE), "guardrail-loss", "other changes"
    ),
    "approval-that-changes-files": (
        lambda desk: desk.approval(desk.base, changes=WITHOUT_RULE), "guardrail-loss", RULE
    ),
    "an-ordinary-decision": (lambda desk: desk.decision(on_top(desk, WITHOUT_RULE)), "guardrail-loss", "no decision on a"),
    # Decisions on paths
    "undecided": (lost(INFRA), "no-decision", "no decision is among"),
    "undecided-new-file": (lost({"infra/new.tf": "x"}), "no-decision", "infra/new.tf"),
    "undecided-removal": (lost({"infra/main.tf": None}), "no-decision", "infra/main.tf"),
    "undecided-rename": (lost({"infra/main.tf": None, "src/main.tf": "one\n"}), "no-decision", "infra/main.tf"),
    "undecided-in-capitals": (lost({"INFRA/main.tf": "x"}), "no-decision", "INFRA/main.tf"),
    "undecided-in-a-named-folder": (lost({"legal/terms/today": "x"}), "no-decision", "legal/terms/today"),
    "decided-by-another-agent": (
        lambda desk: Push(desk.decision(on_top(desk, INFRA), by="Painter"), (f"{desk.base}:refs/heads/agents/painter",)),
        "no-decision", "which is an agent",
    ),
    "decided-by-a-published-agent": (
        lambda desk: Push(desk.decision(on_top(desk, INFRA), by="smith"), (f"{desk.base}:refs/clia/agents-published/smith",)),
        "no-decision", "which is an agent",
    ),
    "decided-before-the-last-edit": (lambda desk: decided_then(desk, {"infra/main.tf": "three\n"}), "no-decision", "last edit"),
    "decided-on-another-tree": (lambda desk: desk.work_of(desk.decision(desk.base), INFRA), "no-decision", "last edit"),
    "decided-on-a-side": (undecided_merge, "no-decision", "infra/main.tf"),
    "decided-by-the-agent": (lambda desk: desk.decision(on_top(desk, INFRA), by="Scout"), "no-decision", "own approval"),
    "decided-by-a-stranger": (lambda desk: desk.decision(on_top(desk, INFRA), by="Eve"), "no-decision", "may not approve"),
    "decided-no": (lambda desk: desk.decision(on_top(desk, INFRA), value="no"), "no-decision", "no decision is among"),
    "decided-blue": (lambda desk: desk.decision(on_top(desk, INFRA), value="blue"), "no-decision", "no decision is among"),
    "decided-with-files": (lambda desk: desk.decision(desk.base, changes=INFRA), "no-decision", "changes files"),
    "policy-changed": (lost({GATE: 'branches = ["p/*"]\n'}), "no-decision", GATE),
    "policy-deleted": (lost({GATE: None}), "no-decision", GATE),
    "policy-loosened-with-the-work": (lost({GATE: 'branches = ["p/*"]\n', **INFRA}), "no-decision", "infra/main.tf"),
    "policy-unreadable": (lost({GATE: "require = 1\n"}), "policy", "require must be tables"),
    "policy-unknown-key": (lost({GATE: POLICY.replace("people", "poeple")}), "policy", "poeple is unknown"),
    "rule-needs-a-decision": (lost({"deploy/run": "x\n"}), "no-decision", ROOT_RULE),
    "rule-asks": (lost({"asked/first": "x\n"}), "no-decision", ROOT_RULE),
    "rule-denies": (lost({"frozen/law": "x\n"}), "forbidden", ROOT_RULE),
    # Tests and traces
    "untested": (lost(LIB), "no-tests", "lib/a.py"),
    "tested-before-the-last-edit": (
        lambda desk: desk.work_of(desk.work_of(on_top(desk, LIB), {}, "test"), {"lib/a.py": "a = 3\n"}), "no-tests", "last edit"
    ),
    "rule-needs-tests": (lambda desk: desk.decision(on_top(desk, {"deploy/run": "x\n"})), "no-tests", ROOT_RULE),
    "untraced": (lost(CORE), "no-trace", "work of scout"),
    "untraced-by-a-person": (lambda desk: desk.commit({}, desk.base, changes=CORE), "no-trace", "work of people"),
    "trace-of-another-commit": (lambda desk: traced(desk, of="f" * 40), "no-trace", "work of scout"),
    "trace-of-another-agent": (lambda desk: traced(desk, agent="painter"), "no-trace", "work of scout"),
    # Refs
    "deletion": (lambda desk: Push(""), "deletion", "must not be deleted"),
    "rewind": (lambda desk: Push(desk.base, start=on_top(desk, ONE), force=True), "non-fast-forward", "moves forward"),
    "rewrite": (
        lambda desk: Push(on_top(desk, TWO), start=on_top(desk, ONE), force=True),
        "non-fast-forward", "moves forward",
    ),
    "unrelated": (lambda desk: Push(desk.commit({}, changes={"a": "1"}), force=True), "non-fast-forward", "moves forward"),
    "agent-rewound": (
        lambda desk: Push(desk.base, start=on_top(desk, ONE), ref="refs/heads/agents/rewound", force=True),
        "non-fast-forward", "record of agents",
    ),
    "log-shortened": (
        lambda desk: Push(log(desk, "m-1", 2), start=log(desk, "m-1", 3), ref=f"{LOGS}m-1", force=True),
        "non-fast-forward", "record of agents",
    ),
    "log-forked": (
        lambda desk: Push(log(desk, "m-2", 3, "other"), start=log(desk, "m-2", 2), ref=f"{LOGS}m-2", force=True),
        "non-fast-forward", "record of agents",
    ),
    "log-replaced-by-a-commit": (
        lambda desk: Push(on_top(desk, ONE), start=log(desk, "m-3", 2), ref=f"{LOGS}m-3", force=True), "non-fast-forward", "record"
    ),
    "agent-deleted": (lambda desk: Push("", ref="refs/heads/agents/deleted"), "deletion", "record of agents"),
    "events-deleted": (lambda desk: Push("", ref="refs/clia/events/scout"), "deletion", "record of agents"),
    "traces-deleted": (lambda desk: Push("", ref="refs/notes/clia/trace/gone"), "deletion", "record of agents"),
    "new-branch": (lambda desk: Push(on_top(desk, WITHOUT_RULE), start=""), "guardrail-loss", RULE),
    "tree-with-a-name-twice": (
        lambda desk: desk.broken_tree(desk.base, ("40000", "infra", desk.objects.commit(desk.base).tree)),
        "unreadable", "a name twice",
    ),
    "tree-with-a-path-as-a-name": (
        lambda desk: desk.broken_tree(desk.base, ("100644", "zzz/x", desk.objects.write_blob(b"x"))), "unreadable", "'zzz/x'",
    ),
    # Squashes
    "squash-hides-commits": (lambda desk: squashed(desk, on_top(desk, ONE), publish=False), "hidden-commits", "hides"),
    "squash-without-range": (
        lambda desk: squashed(desk, on_top(desk, ONE), trailers={"Clia-Range": ""}), "hidden-commits", "does not name"
    ),
    "squash-with-more": (
        lambda desk: squashed(desk, on_top(desk, ONE), changes={"src/more.py": "x"}), "hidden-commits", "src/more.py"
    ),
    "squash-of-an-undecided-change": (lambda desk: squashed(desk, on_top(desk, INFRA)), "no-decision", "infra/main.tf"),
    "squash-of-an-older-decision": (
        lambda desk: squashed(desk, decided_then(desk, {"infra/main.tf": "three\n"})), "no-decision", "last edit"
    ),
}  # fmt: skip


def push(desk: GateDesk, name: str, case: Any) -> tuple[Any, str, str | None]:
    for left in ("refs/heads/agents/scout", "refs/clia/agents-published/scout", "refs/notes/clia/trace/scout"):  # by another case
        desk.forget(left)
    made = case(desk)
    step = made if isinstance(made, Push) else Push(made)
    ref = step.ref or f"refs/heads/p/{name}"
    if step.start != "":
        desk.start(name, step.start)
        if step.ref:
            desk.plant(step.ref, step.start or desk.base)
    before = desk.tip(ref)
    return desk.push(f"{step.head}:{ref}", *step.also, force=step.force), ref, before


@pytest.mark.parametrize("name", BAD)
def test_a_bad_push_is_refused_with_its_reason(desk: GateDesk, name: str) -> None:
    case, rule, text = BAD[name]
    result, ref, before = push(desk, name, case)
    assert result.code != 0, result.text
    assert f"clia gate: {ref}: {rule}: " in result.text.replace("remote: ", ""), result.text
    assert text in result.text
    assert "to fix it: " in result.text
    assert desk.tip(ref) == before


def test_a_push_to_another_name_of_a_protected_branch_is_checked(desk: GateDesk) -> None:
    ref = desk.start("aliased")
    desk.alias("refs/heads/old-name", ref)
    desk.alias("refs/heads/older-name", "refs/heads/old-name")
    for name in ("old-name", "older-name"):
        result = desk.push(f"{on_top(desk, INFRA)}:refs/heads/{name}")
        assert result.code != 0
        assert f"clia gate: {ref}: no-decision: " in result.text
        assert desk.push(f":refs/heads/{name}").code != 0
    assert desk.tip(ref) == desk.base
    assert desk.push(f"{on_top(desk, ONE)}:refs/heads/old-name").code == 0


def approved(desk: GateDesk, changes: dict[str, Any], **more: Any) -> str:
    return desk.approval(on_top(desk, changes), **more)


def decided(desk: GateDesk, changes: dict[str, Any], **more: Any) -> str:
    return desk.decision(on_top(desk, changes), **more)


def with_tests(desk: GateDesk, changes: dict[str, Any]) -> str:
    return desk.work_of(on_top(desk, changes), {"tests/log": "ok\n"}, "test")


def two_landings(desk: GateDesk) -> str:
    """Two approved losses, one after the other."""
    first = approved(desk, WITHOUT_RULE)
    return desk.approval(desk.work_of(first, {SUB: identity("scout")}), before=first)


def landed(desk: GateDesk, head: str) -> str:
    """A merge of an agent's work into a branch that has moved."""
    own = desk.commit({}, desk.base, changes={"src/app.py": "print(2)\n"})
    trailers = {"Clia-Agent": "scout", "Clia-Landed": "scout", "Clia-Range": f"{desk.base}..{head}"}
    merge_tree = desk.objects.update_tree(
        desk.objects.commit(head).tree, {"src/app.py": desk.objects.entry(desk.objects.commit(own).tree, "src/app.py")}
    )
    return desk.commit(trailers, own, head, tree=merge_tree)


GOOD: dict[str, Any] = {
    "log-continued": lambda desk: Push(log(desk, "m", 3), start=log(desk, "m", 2), ref=f"{LOGS}m", force=True),
    "nothing": lambda desk: desk.base,
    "a-person": lambda desk: desk.commit({}, desk.base, changes={"src/app.py": "1\n"}),
    "another-person": lambda desk: desk.commit({}, desk.base, changes={"src/app.py": "1\n"}, by=BOB),
    "an-agent": lost({"src/app.py": "1\n"}),
    "many-commits": lambda desk: on_top(desk, *({"src/app.py": f"{number}\n"} for number in range(10))),
    "a-new-file": lost({"src/new.py": "x"}),
    "a-removed-file": lost({"src/app.py": None}),
    "a-new-folder": lost({"new/folder/file": "x"}),
    "a-link": lost({"src/link": Link("app.py")}),
    "a-merge": lambda desk: landed(desk, on_top(desk, {"src/new.py": "x"})),
    "an-empty-commit": lambda desk: desk.commit({}, desk.base),
    "a-decision-without-a-change": lambda desk: desk.decision(desk.base),
    # Guardrails
    "added-guardrail": lost({SCOUT: identity("scout", RULE, "Be careful.", inherits=[ROOT])}),
    "reordered": lost({SCOUT: identity("scout", "Be careful.", RULE, inherits=[ROOT])}),
    "object-guardrail": lost({SCOUT: identity("scout", {"text": RULE}, inherits=[ROOT])}),
    "new-identity": lost({".clia/agents/new/new.agent.triad.json": identity("new", "Be kind.")}),
    "new-place": lost({"src/.clia/agents/scout/scout.agent.triad.json": identity("scout", "Be kind.")}),
    "an-agenda": lost({".clia/agents/scout/scout.agenda.triad.json": '{"slug": "scout"}'}),
    "a-journal": lost({".clia/agents/scout/scout.agency.triad.json": '{"slug": "scout", "entries": []}'}),
    "another-file-name": lost({SCOUT: None, ".clia/agents/scout/x.agent.triad.json": BASE[SCOUT]}),
    "inherits-dropped": lost({SCOUT: identity("scout", RULE)}),
    "rules-added": lost({ROOT: identity("root", {"text": ROOT_RULE, "rules": [*RULES, {"on": "tool", "do": "ask"}]})}),
    "submodule-ignored": lost({"vendor/dep": Submodule("a" * 40)}),
    "submodule-added": lost({"other": Submodule("a" * 40)}),
    "submodule-same": lost({".gitmodules": '[submodule "dep"]\n\tpath = dep\n\turl = x\n'}),
    # Approvals
    "approved": lambda desk: approved(desk, WITHOUT_RULE),
    "approved-deletion": lambda desk: approved(desk, {SCOUT: None}),
    "approved-root": lambda desk: approved(desk, {ROOT: identity("root")}),
    "approved-weaker": lambda desk: approved(desk, {SCOUT: identity("scout", "Avoid deploying without approval.")}),
    "approved-waiver": lambda desk: approved(desk, {SCOUT: identity("scout", RULE, waivers=[{"guardrail": text_digest(RULE)}])}),
    "approved-link": lambda desk: approved(desk, {SCOUT: Link("../root/root.agent.triad.json")}),
    "approved-unreadable": lambda desk: approved(desk, {SCOUT: "{"}),
    "approved-by-name": lambda desk: approved(desk, WITHOUT_RULE, by="bob"),
    "approved-by-address": lambda desk: approved(desk, WITHOUT_RULE, by="A. L. <ADA@example.org>"),
    "approved-submodule": lambda desk: approved(desk, {"dep": Submodule("a" * 40)}),
    "decided-submodule": lambda desk: decided(desk, {"dep": Submodule("c" * 40)}),
    "approved-then-a-journal": lambda desk: approved_then(desk, {JOURNAL: '{"slug": "scout", "entries": []}'}),
    "approved-then-a-person": lambda desk: desk.commit({}, approved(desk, WITHOUT_RULE), changes={"src/app.py": "1\n"}),
    "approved-squash-then-other-work": lambda desk: squashed_then(desk, {"src/app.py": "1\n"}),
    "approved-twice": lambda desk: desk.approval(approved(desk, WITHOUT_RULE)),
    "approved-after-rejection": lambda desk: desk.approval(desk.approval(on_top(desk, WITHOUT_RULE), value="reject")),
    "approved-after-a-stranger": lambda desk: desk.approval(desk.approval(on_top(desk, WITHOUT_RULE), by="Eve")),
    "approved-in-two-landings": two_landings,
    "approved-squash": lambda desk: squashed(desk, approved(desk, WITHOUT_RULE)),
    "approved-merge": lambda desk: landed(desk, approved(desk, WITHOUT_RULE)),
    # Decisions on paths
    "decided": lambda desk: decided(desk, INFRA),
    "decided-true": lambda desk: decided(desk, INFRA, value=True),
    "decided-yes": lambda desk: decided(desk, INFRA, value="Yes"),
    "decided-in-an-object": lambda desk: decided(desk, INFRA, value={"approved": True, "note": "fine"}),
    "decided-removal": lambda desk: decided(desk, {"infra/main.tf": None}),
    "decided-then-other-work": lambda desk: decided_then(desk, {"src/app.py": "1\n"}),
    "decided-in-two-steps": lambda desk: desk.decision(desk.work_of(decided(desk, INFRA), {"infra/b.tf": "b\n"})),
    "decided-merge": lambda desk: landed(desk, decided(desk, INFRA)),
    "decided-squash": lambda desk: squashed(desk, decided(desk, INFRA)),
    "decided-policy": lambda desk: decided(desk, {GATE: POLICY + '[[require]]\npaths = ["x/**"]\nneed = ["trace"]\n'}),
    "decided-rule": lambda desk: desk.decision(with_tests(desk, {"deploy/run": "x\n"})),
    "decided-question": lambda desk: decided(desk, {"asked/first": "x\n"}),
    "rule-of-another-branch": lost({"elsewhere/file": "x"}),
    # Tests and traces
    "tested": lambda desk: with_tests(desk, LIB),
    "tested-then-other-work": lambda desk: desk.work_of(with_tests(desk, LIB), {"src/app.py": "1\n"}),
    "traced": traced,
    "traced-flat": lambda desk: traced(desk, fan=0),
    # Refs
    "unprotected": lambda desk: Push(on_top(desk, WITHOUT_RULE), ref="refs/heads/topic"),
    "unprotected-deleted": lambda desk: Push("", ref="refs/heads/old-topic"),
    "unprotected-rewritten": lambda desk: Push(
        on_top(desk, TWO), start=on_top(desk, ONE), ref="refs/heads/wip", force=True
    ),
    "agents-branch": lambda desk: Push(on_top(desk, WITHOUT_RULE), ref="refs/heads/agents/free"),
    "a-new-protected-branch": lambda desk: Push(on_top(desk, ONE), start=""),
    "squash": lambda desk: squashed(desk, on_top(desk, ONE)),
    "squash-of-a-published-head": squash_of_a_published_head,
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_a_good_push_is_accepted(desk: GateDesk, name: str) -> None:
    result, ref, _ = push(desk, f"good-{name}", GOOD[name])
    assert result.code == 0, result.text
    assert "clia gate" not in result.text
    assert desk.tip(ref) is not None or "[deleted]" in result.text


def test_there_are_enough_of_both() -> None:
    assert len(BAD) >= 60
    assert len(GOOD) >= 60


def test_the_first_push_into_an_empty_repository_is_accepted(tmp_path: Any) -> None:
    empty = GateDesk(tmp_path)
    empty.start("x")
    assert json.loads(json.dumps(empty.tip("refs/heads/main"))) == empty.base

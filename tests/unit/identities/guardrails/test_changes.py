"""A change of a tree is compared by the guardrails that apply: however a guardrail goes away, it is reported."""

from __future__ import annotations

from typing import Any

import pytest

from clia.git.records import FOLDER, TreeEntry
from clia.identities.guardrails.changes import GuardrailChange, guardrail_change
from clia.space.model import Link, Submodule
from clia.values.canonical import text_digest
from support.memory_trees import MemoryTrees, document, memory_trees

RULE, ROOT_RULE, LOCAL = "Never deploy without approval.", "Never read secrets.", "Keep the tests green."
ROOT_PATH = ".clia/agents/root/root.agent.triad.json"
SCOUT = ".clia/agents/scout/scout.agent.triad.json"
SUB = f"sub/{SCOUT}"
BASE: dict[str, Any] = {
    **document("root", ROOT_RULE),
    **document("scout", RULE, inherits=[ROOT_PATH]),
    **document("scout", LOCAL, at="sub"),
    "sub/code.py": "print()\n",
    "docs/rules.json": {"slug": "rules", "guardrails": ["Cite sources."]},
}


def compared(after: dict[str, Any], before: dict[str, Any] | None = None, source: MemoryTrees | None = None) -> GuardrailChange:
    trees = source or memory_trees()
    return guardrail_change(trees, trees.tree(BASE if before is None else before), trees.tree(after))


def losses(change: GuardrailChange) -> set[tuple[str, str]]:
    return {(loss.kind, loss.text) for loss in change.losses}


def without(*paths: str) -> dict[str, Any]:
    return {path: content for path, content in BASE.items() if path not in paths}


def scout(*guardrails: Any, **fields: Any) -> dict[str, Any]:
    return {**BASE, **document("scout", *guardrails, **{"inherits": [ROOT_PATH], **fields})}


KEPT: dict[str, dict[str, Any]] = {
    "nothing": BASE,
    "other files": {**BASE, "sub/code.py": "print(1)\n", "new.py": ""},
    "a guardrail is added": scout(RULE, "Write short commits."),
    "another order": scout("Write short commits.", RULE),
    "a string becomes an object": scout({"text": RULE}),
    "the same rule, more strictly": {**scout(RULE), **document("scout", "You must keep the tests green.", at="sub")},
    "rules are added": scout({"text": RULE, "rules": [{"on": "tool", "do": "deny"}]}),
    "the document has another name": {**without(SCOUT), ".clia/agents/scout/x.agent.triad.json": BASE[SCOUT]},
    "a new identity": {**BASE, **document("helper", "Be kind.")},
    "a new directory with documents": {**BASE, **document("scout", "Be kind.", at="new")},
    "an agenda changes": {**BASE, ".clia/agents/scout/scout.agenda.triad.json": {"slug": "scout", "milestones": []}},
    "a link to the same document": {
        **without(SCOUT), SCOUT: Link("../../../docs/scout.json"), "docs/scout.json": BASE[SCOUT]
    },
}  # fmt: skip


@pytest.mark.parametrize("case", KEPT)
def test_no_loss(case: str) -> None:
    before = BASE
    if case == "the same rule, more strictly":
        before = {**BASE, **document("scout", "You should keep the tests green.", at="sub")}
    change = compared(KEPT[case], before)
    assert change.losses == ()


LOST: dict[str, tuple[dict[str, Any], set[tuple[str, str]]]] = {
    "removed by an edit": (scout(), {("removed", RULE)}),
    "the list is empty of the root": ({**BASE, **document("root")}, {("removed", ROOT_RULE)}),
    "the document is deleted": (without(SCOUT), {("removed", RULE)}),
    "weakened": (scout("Avoid deploying without approval."), {("weakened", RULE)}),
    "reworded": (scout("Never deploy without asking."), {("reworded", RULE)}),
    "a look-alike character": (scout("N\u0435ver deploy without approval."), {("reworded", RULE)}),
    "an invisible character": (scout("Never deploy without ap\u200bproval."), {("reworded", RULE)}),
    "waived": (scout(RULE, waivers=[{"guardrail": text_digest(RULE)}]), {("waived", RULE)}),
    "the directory is renamed": (
        {**without(SCOUT), ".clia/agents/scout2/scout2.agent.triad.json": BASE[SCOUT]}, {("removed", RULE)}
    ),
    "the slug has capitals": ({**without(SCOUT), ".clia/agents/Scout/scout.agent.triad.json": BASE[SCOUT]}, {("removed", RULE)}),
    "the folder has capitals": ({**without(SCOUT), ".Clia/agents/scout/scout.agent.triad.json": BASE[SCOUT]}, {("removed", RULE)}),
    "the document has no known name": ({**without(SCOUT), ".clia/agents/scout/scout.json": BASE[SCOUT]}, {("removed", RULE)}),
    "moved below": ({**without(SCOUT), SUB: {"slug": "scout", "guardrails": [LOCAL, RULE]}}, {("removed", RULE)}),
    "the subtree is gone": (without(SUB, "sub/code.py"), {("removed", LOCAL)}),
    "the subtree is renamed": (
        {**without(SUB, "sub/code.py"), "other/code.py": "print()\n", "decoy/.clia/agents/scout/a.agent.triad.json": BASE[SUB]},
        {("removed", LOCAL)},
    ),
    "the subtree is a link elsewhere": (
        {**without(SUB, "sub/code.py"), "sub": Link("other"), "other/code.py": "print()\n"}, {("removed", LOCAL)}
    ),
    "the identity is a link out of the repository": (
        {**without(SCOUT), ".clia/agents/scout": Link("/etc")}, {("unreadable", RULE)}
    ),
    "the document is a link out of the repository": ({**BASE, SCOUT: Link("../../../../x.json")}, {("unreadable", RULE)}),
    "the folder is a link to itself": ({**without(SCOUT, ROOT_PATH), ".clia/agents": Link("agents")}, {("removed", RULE)}),
    "the document is a link to another": ({**BASE, SCOUT: Link("../../../docs/rules.json")}, {("removed", RULE)}),
    "not JSON": ({**BASE, SCOUT: "{"}, {("unreadable", RULE)}),
    "not Unicode": ({**BASE, SCOUT: b"\xff\xfe"}, {("unreadable", RULE)}),
    "duplicate keys": ({**BASE, SCOUT: '{"slug": "scout", "guardrails": ["x"], "guardrails": []}'}, {("unreadable", RULE)}),
    "deeply nested": ({**BASE, SCOUT: '{"guardrails": ' + "[" * 200 + "]" * 200 + "}"}, {("unreadable", RULE)}),
    "the guardrails have the wrong type": ({**BASE, SCOUT: {"slug": "scout", "guardrails": 5}}, {("unreadable", RULE)}),
    "an invalid root chain": (scout(RULE, rootChain={"mode": "sometimes"}), {("unreadable", RULE)}),
    "a gitlink takes the place of the documents": (
        {**without(SCOUT, ROOT_PATH), ".clia": Submodule("a" * 40)}, {("removed", RULE)}
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", LOST)
def test_a_lost_guardrail_is_reported(case: str) -> None:
    after, expected = LOST[case]
    assert expected <= losses(compared(after))


def test_an_inherited_rule_is_lost_with_the_inherits_that_names_it() -> None:
    base = {**BASE, **document("scout", RULE, inherits=["docs/rules.json"])}
    assert ("removed", "Cite sources.") in losses(compared(scout(RULE), base))


def test_an_inherited_rule_is_lost_by_an_edit_outside_of_the_identities() -> None:
    base = {**BASE, **document("scout", RULE, inherits=["docs/rules.json"])}
    after = {**base, "docs/rules.json": {"slug": "rules", "guardrails": []}}
    assert losses(compared(after, base)) == {("removed", "Cite sources.")}


def test_a_linked_document_is_followed_to_its_target() -> None:
    base = {**without(SCOUT), SCOUT: Link("../../../docs/scout.json"), "docs/scout.json": BASE[SCOUT]}
    assert ("removed", RULE) in losses(compared({**base, "docs/scout.json": {"slug": "scout"}}, base))


def test_an_inherits_that_only_an_outer_repository_has_counts_until_it_is_gone() -> None:
    base = {**BASE, **document("scout", RULE, inherits=["team/outer.json"])}
    assert compared({**base, "x": ""}, base).losses == ()
    (loss,) = [loss for loss in compared(scout(RULE), base).losses if "inherited" in loss.text]
    assert (loss.kind, loss.text) == ("removed", "guardrails inherited from team/outer.json")


def test_rules_of_a_guardrail_may_be_added_but_not_removed() -> None:
    strict = {"text": RULE, "rules": [{"on": "tool", "do": "deny"}, {"on": "land", "do": "require"}]}
    change = compared(scout({**strict, "rules": strict["rules"][:1]}), scout(strict))
    assert losses(change) == {("weakened", RULE)}
    assert compared(scout({**strict, "rules": [*strict["rules"], {"on": "push"}]}), scout(strict)).losses == ()


def test_a_new_rule_that_allows_calls_is_a_loss_and_one_that_restricts_them_is_not() -> None:
    allowing: set[tuple[str, str]] = {("loosened", "Go on.")}
    for do, expected in (("allow", allowing), ("deny", set()), ("ask", set())):
        item = {"text": "Go on.", "rules": [{"on": "tool", "do": do, "match": {"tool": "Bash"}}]}
        after = {**BASE, SCOUT: {**BASE[SCOUT], "guardrails": [*BASE[SCOUT]["guardrails"], item]}}
        assert losses(compared(after)) == expected
        assert losses(compared(after, after)) == set()


def test_a_loss_names_every_place_and_identity() -> None:
    before = {**BASE, **document("helper", "Be kind.", inherits=[ROOT_PATH])}
    change = compared({**before, **document("root")}, before)
    (loss,) = change.losses
    places = {(place.identity, place.directory) for place in loss.places}
    assert {("root", "."), ("helper", "."), ("scout", "."), ("scout", "sub")} <= places
    assert "helper in ." in str(loss)


def test_cyclic_inherits_end() -> None:
    other = ".clia/agents/other/other.agent.triad.json"
    before = {**scout(RULE, inherits=[other]), **document("other", "Be kind.", inherits=[SCOUT])}
    assert losses(compared({**before, **document("other", inherits=[SCOUT])}, before)) == {("removed", "Be kind.")}


def test_a_very_deep_tree_is_compared() -> None:
    trees = memory_trees()
    inner = trees.tree({"file": "x"})
    for depth in range(1500):
        trees.trees[f"deep{depth}"] = [("d", TreeEntry(FOLDER, inner))]
        inner = f"deep{depth}"
    before, after = trees.tree(BASE), trees.tree(scout())
    trees.trees[after].append(("d", TreeEntry(FOLDER, inner)))
    assert losses(guardrail_change(trees, before, after)) == {("removed", RULE)}


class Repositories:
    """A repository with a submodule whose commits can be read."""

    def __init__(self) -> None:
        self.trees = memory_trees()
        self.commits: dict[str, str] = {}

    def commit(self, cid: str, files: dict[str, Any]) -> Submodule:
        self.commits[cid * 40] = self.trees.tree(files)
        return Submodule(cid * 40)

    def inner(self, path: str, commit: str) -> tuple[MemoryTrees, str] | None:
        assert path
        return (self.trees, self.commits[commit]) if commit in self.commits else None

    def compared(self, before: dict[str, Any], after: dict[str, Any]) -> GuardrailChange:
        return guardrail_change(self.trees, self.trees.tree(before), self.trees.tree(after), self.inner)


def test_a_submodule_bump_is_compared_inside() -> None:
    repositories = Repositories()
    with_rule = repositories.commit("a", document("scout", LOCAL))
    without_rule = repositories.commit("b", document("scout"))
    same_rules = repositories.commit("c", {**document("scout", LOCAL), "code.py": ""})
    base = document("scout", RULE)
    assert losses(repositories.compared({**base, "sub": with_rule}, {**base, "sub": without_rule})) == {("removed", LOCAL)}
    assert repositories.compared({**base, "sub": with_rule}, {**base, "sub": same_rules}).losses == ()
    assert losses(repositories.compared({**base, "sub": with_rule}, base)) == {("removed", LOCAL)}


def test_a_submodule_that_cannot_be_read_is_a_loss_when_it_moves() -> None:
    repositories = Repositories()
    base = document("scout", RULE)
    before, after = {**base, "sub": Submodule("d" * 40)}, {**base, "sub": Submodule("e" * 40)}
    assert losses(repositories.compared(before, after)) == {("submodule", "guardrails in the submodule sub")}
    assert repositories.compared(before, before).losses == ()
    assert repositories.compared(base, before).losses == ()


def test_the_id_of_a_change_is_the_same_where_submodules_cannot_be_read() -> None:
    readable, blind = Repositories(), Repositories()
    old, new = readable.commit("a", document("scout", LOCAL)), readable.commit("b", document("scout"))
    before, after = {**document("scout", RULE), "sub": old}, {**document("scout"), "sub": new}
    ids = {repositories.compared(before, after).digest for repositories in (readable, blind)}
    assert len(ids) == 1
    assert readable.compared(before, {**after, **document("scout", RULE)}).digest not in ids


def test_a_declared_submodule_hides_documents_that_were_linked_into_it() -> None:
    base = {".clia/agents/scout": Link("../../lib/scout"), "lib/scout/a.agent.triad.json": {"slug": "scout", "guardrails": [RULE]}}
    after = {**base, ".gitmodules": '[submodule "lib"]\n\tpath = lib\n\turl = x\n'}
    assert compared(after, base).losses[0].text == RULE


def test_two_changes_differ_in_their_ids() -> None:
    ids = {compared(after).digest for after in (BASE, scout(), scout("Avoid deploying without approval."), without(SUB))}
    assert len(ids) == 4

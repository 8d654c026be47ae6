from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from clia.behaviours.library import EVIDENCE_MAX, NOTES_MAX, checked_evidence
from clia.behaviours.model import BehaviourVersion, KnownBehaviour
from clia.cli import behaviours_versions as lineage
from clia.git.records import FILE, Stamp, TreeEntry
from clia.values.typed_objects import PROMPT, SESSION_FLOW, Behaviour, as_bytes
from support import git
from support.behaviour_walks import started
from support.federation import Pair
from support.session_spaces import root_of, with_agents
from support.spaces import refused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import clia


CHAINS, EVENTS = "refs/clia/behaviours/", "refs/clia/events/"


AT = 1_780_000_000


def flow(number: int) -> str:
    return f"def main(input):\n    return [request('check', {number}), request('check', 'more')]\n"


def put(
    space: clia.Space,
    ref: str,
    changes: Mapping[str, bytes | None],
    message: str = "by hand",
    *,
    at: int = AT,
    parents: Sequence[str] | None = None,
) -> str:
    """A commit that whoever has plain git could make: a ref's tree with some files changed, on top of it unless told."""
    objects, refs = space.core.objects, space.core.refs
    tip = refs.get(ref)
    files = {path: None if data is None else TreeEntry(FILE, objects.write_blob(data)) for path, data in changes.items()}
    tree = objects.update_tree(objects.commit(tip).tree if tip else None, files)
    by = Stamp("Tess", "tess@example.org", at)
    made = objects.write_commit(tree, ([tip] if tip else []) if parents is None else parents, by, by, message)
    refs.move(ref, tip, made, "by hand")
    return made


def states(space: clia.Space, name: str) -> dict[str, str]:
    return {each.cid: each.state for each in space.behaviour(name).versions}


@pytest.fixture
def space(tmp_path: Path) -> Iterator[clia.Space]:
    with started(tmp_path.resolve() / "repo") as made:
        yield made


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A peer with four flows, each with a proposal of its own, and a prompt; a grant lets its behaviours run here."""
    made = Pair(tmp_path_factory.mktemp("survivors").resolve())
    for number, name in enumerate(("hello", "forked", "twice", "past")):
        made.owner.add_behaviour(name, flow(10 + number), SESSION_FLOW)
        made.owner.propose_behaviour(name, flow(20 + number))
    made.owner.add_behaviour("review", "Look twice.", PROMPT)
    made.owner.announce("bee")
    made.hearer.grant("ay", "behaviour", "behaviour", execute=True)
    assert not made.sync().refused
    with_agents(made.hearer, "one", "two")
    made.hearer.add_behaviour("review", flow(1), SESSION_FLOW)
    yield made
    made.owner.close()
    made.hearer.close()


def test_a_peers_version_is_checked_before_it_is_adopted(pair: Pair) -> None:
    """It is of the kind that the name has here, and what could not be added here is not adopted either."""
    space, root = pair.hearer, pair.place("hearer")
    refused("wrong-kind", lambda: space.adopt_behaviour("ay/review"))
    wrong = as_bytes(Behaviour("wrong", SESSION_FLOW, "def main(:\n").to_object())
    cid = space.core.objects.blob_id(wrong)
    put(space, "refs/clia/remotes/ay/behaviours/wrong", {f"versions/{cid}.json": wrong, "current": cid.encode()})
    refused("invalid-flow", lambda: space.adopt_behaviour("ay/wrong"))
    assert git("for-each-ref", f"{CHAINS}wrong", cwd=root) == ""


def test_a_chain_with_marks_of_any_sort_is_none_from_before_there_were_marks(space: clia.Space) -> None:
    old = [space.add_behaviour("plan", f"Look {each}.", PROMPT).cid for each in range(3)]
    put(space, f"{CHAINS}plan", {f"adopted/{cid}": None for cid in old} | {f"retired/{old[0]}": b""})
    assert states(space, "plan") == dict(zip(old, ("retired", "proposed", "current"), strict=True))
    put(space, f"{CHAINS}plan", {f"retired/{old[0]}": None})
    assert states(space, "plan") == dict(zip(old, ("former", "former", "current"), strict=True))


def test_retiring_mends_a_chain_that_calls_one_version_both_current_and_retired(space: clia.Space) -> None:
    cid = space.add_behaviour("plan", "Look.", PROMPT).cid
    put(space, f"{CHAINS}plan", {f"retired/{cid}": b""})
    space.retire_behaviour("plan", cid)
    assert "current" not in git("ls-tree", "--name-only", f"{CHAINS}plan", cwd=root_of(space)).split()


def test_no_version_comes_from_itself_where_only_its_end_is_known(space: clia.Space) -> None:
    """What was current when it was retired was that very version: what came before is told by older commits, which are lacking."""
    space.add_behaviour("plan", "Look.", PROMPT)
    space.retire_behaviour("plan")
    put(space, f"{CHAINS}plan", {}, git("log", "-1", "--format=%B", f"{CHAINS}plan", cwd=root_of(space)), parents=[])
    assert [(each.state, each.parent) for each in space.behaviour("plan").versions] == [("retired", None)]


def test_what_is_expected_counts_also_where_nothing_is_current(space: clia.Space) -> None:
    cid = space.add_behaviour("plan", "Look.", PROMPT).cid
    refused("stale-behaviour", lambda: space.adopt_behaviour("plan", cid, expect="none"))
    space.retire_behaviour("plan", expect=cid)
    refused("stale-behaviour", lambda: space.adopt_behaviour("plan", cid, expect=cid))
    refused("stale-behaviour", lambda: space.retire_behaviour("plan", cid, expect=cid))
    assert space.adopt_behaviour("plan", cid, expect="none").state == "current"


def test_notes_and_evidence_go_to_their_limit_and_no_further(space: clia.Space) -> None:
    assert len(space.add_behaviour("plan", "Look.", PROMPT, notes="x" * NOTES_MAX).notes) == NOTES_MAX
    refused("too-long", lambda: space.add_behaviour("plan", "Look!", notes="x" * (NOTES_MAX + 1)))
    some = [f"{each:040x}" for each in range(EVIDENCE_MAX + 1)]
    assert checked_evidence([*some[1:], some[1]], str) == some[1:]
    refused("too-much", lambda: checked_evidence(some, str))


def test_a_long_line_of_versions_is_drawn_in_pieces_that_say_where_they_come_from(capsys: pytest.CaptureFixture[str]) -> None:
    """Else what is deep stands beyond the edge of every screen. What goes in a circle is left as it is."""
    line = [f"{each:04x}" * 10 for each in range(100)]
    children = {cid: line[at + 1 : at + 2] for at, cid in enumerate(line)} | {"a": ["b"], "b": ["a"]}
    pieces, cut = lineage.split_deep_branches(children, children)
    assert cut == {line[at]: line[at - 1] for at in range(9, 100, 9)}
    assert pieces == {cid: [each for each in found if each not in cut] for cid, found in children.items()}
    versions = tuple(BehaviourVersion("review", cid, PROMPT, "former", "", by="Tess <tess@example.org>") for cid in children)
    lineage.show_lineage(KnownBehaviour("review", PROMPT, None, versions, ()), {}, children, ascii_only=True)
    said = capsys.readouterr().out.splitlines()
    assert [each.split(" former")[0] for each in said[7:11]] == [
        f"{' ' * 24}`-- {line[7][:10]}",
        f"{' ' * 28}`-- {line[8][:10]}",
        f"from {line[8][:10]}: {line[9][:10]}",
        f"`-- {line[10][:10]}",
    ]
    assert [cid for cid, drawn in zip(line, said, strict=False) if f"{cid[:10]} former" not in drawn] == []

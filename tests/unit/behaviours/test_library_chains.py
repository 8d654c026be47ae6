"""Changes of a chain: states, parents, expected versions and limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clia.behaviours.library import EVIDENCE_MAX, NOTES_MAX, checked_evidence
from clia.testing import components
from clia.values.typed_objects import PROMPT, SESSION_FLOW, Behaviour, as_bytes
from support import git
from support.behaviour_walks import CHAINS, commit_to_ref
from support.session_spaces import root_of
from support.spaces import refused

if TYPE_CHECKING:
    import clia
    from support.federation import Pair


def states(space: clia.Space, name: str) -> dict[str, str]:
    return {version.cid: version.state for version in space.behaviours.get(name).versions}


def test_a_peers_version_is_checked_before_it_is_adopted(pair: Pair) -> None:
    """It must have the kind that the name has here, and must be valid here."""
    space, root = pair.hearer, pair.place("hearer")
    refused("wrong-kind", lambda: space.behaviours.adopt("ay/review"))
    invalid = as_bytes(Behaviour("wrong", SESSION_FLOW, "def main(:\n").to_object())
    cid = components(space).core.objects.blob_id(invalid)
    commit_to_ref(space, "refs/clia/remotes/ay/behaviours/wrong", {f"versions/{cid}.json": invalid, "current": cid.encode()})
    refused("invalid-flow", lambda: space.behaviours.adopt("ay/wrong"))
    assert git("for-each-ref", f"{CHAINS}wrong", cwd=root) == ""


def test_a_chain_with_any_marks_is_not_read_as_one_without_marks(space: clia.Space) -> None:
    old = [space.behaviours.add("plan", f"Look {number}.", PROMPT).cid for number in range(3)]
    commit_to_ref(space, f"{CHAINS}plan", {f"adopted/{cid}": None for cid in old} | {f"retired/{old[0]}": b""})
    assert states(space, "plan") == dict(zip(old, ("retired", "proposed", "current"), strict=True))
    commit_to_ref(space, f"{CHAINS}plan", {f"retired/{old[0]}": None})
    assert states(space, "plan") == dict(zip(old, ("former", "former", "current"), strict=True))


def test_retiring_repairs_a_chain_with_a_version_both_current_and_retired(space: clia.Space) -> None:
    cid = space.behaviours.add("plan", "Look.", PROMPT).cid
    commit_to_ref(space, f"{CHAINS}plan", {f"retired/{cid}": b""})
    space.behaviours.retire("plan", cid)
    assert "current" not in git("ls-tree", "--name-only", f"{CHAINS}plan", cwd=root_of(space)).split()


def test_no_version_is_its_own_parent_if_only_its_retirement_is_known(space: clia.Space) -> None:
    """The version was current when it was retired; its parent is in older commits, which are missing."""
    space.behaviours.add("plan", "Look.", PROMPT)
    space.behaviours.retire("plan")
    commit_to_ref(space, f"{CHAINS}plan", {}, git("log", "-1", "--format=%B", f"{CHAINS}plan", cwd=root_of(space)), parents=[])
    assert [(version.state, version.parent) for version in space.behaviours.get("plan").versions] == [("retired", None)]


def test_an_expected_version_is_checked_even_if_nothing_is_current(space: clia.Space) -> None:
    cid = space.behaviours.add("plan", "Look.", PROMPT).cid
    refused("stale-behaviour", lambda: space.behaviours.adopt("plan", cid, expect="none"))
    space.behaviours.retire("plan", expect=cid)
    refused("stale-behaviour", lambda: space.behaviours.adopt("plan", cid, expect=cid))
    refused("stale-behaviour", lambda: space.behaviours.retire("plan", cid, expect=cid))
    assert space.behaviours.adopt("plan", cid, expect="none").state == "current"


def test_notes_and_evidence_have_a_maximum_length(space: clia.Space) -> None:
    assert len(space.behaviours.add("plan", "Look.", PROMPT, notes="x" * NOTES_MAX).notes) == NOTES_MAX
    refused("too-long", lambda: space.behaviours.add("plan", "Look!", notes="x" * (NOTES_MAX + 1)))
    commits = [f"{number:040x}" for number in range(EVIDENCE_MAX + 1)]
    assert checked_evidence([*commits[1:], commits[1]], str) == commits[1:]
    refused("too-much", lambda: checked_evidence(commits, str))

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from clia.git.records import FILE, Stamp, TreeEntry
from clia.values.typed_objects import PROMPT, SESSION_FLOW
from support import git
from support.behaviour_walks import started
from support.federation import Pair, plumbed
from support.session_spaces import root_of, with_agents
from support.spaces import BRIEFING, refused

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


def test_a_session_of_a_peers_is_not_forked_with_what_may_not_run(pair: Pair) -> None:
    """Whatever a note says that the peer's version is, and what was retired here, though the peer goes on with it."""
    space, root = pair.hearer, pair.place("hearer")
    theirs = space.behaviour_version("ay/forked").cid
    proposed = space.propose_behaviour("review", flow(2), agent="one").cid
    foreign = pair.owner.behaviour("forked").versions[1].cid
    space.start("one", "ay/forked")
    head = space.commit("one", "finding", {"a.txt": b"a"})
    assert space.fork("one", "honest", at=head).flow == "ay/forked"
    said = git("notes", "--ref=clia/session/one", "show", head, cwd=root)
    for claimed, code in ((proposed, "not-adopted"), (foreign, "execute-denied")):
        blob = plumbed("hash-object", "-w", "--stdin", cwd=root, stdin=said.replace(theirs, claimed))
        git("notes", "--ref=clia/session/one", "add", "-f", "-C", blob, head, cwd=root)
        refused(code, partial(space.fork, "one", "other", at=head))
    space.adopt_behaviour("ay/forked")
    space.retire_behaviour("forked")
    refused("retired", lambda: space.fork("one", "other"))
    assert "other" not in space.agents()


def test_what_a_peer_itself_does_not_let_run_does_not_run_here(pair: Pair) -> None:
    """A grant with execute is for what the peer lets run: not its proposals, nor what it calls both current and retired."""
    space = pair.hearer
    refused("execute-denied", lambda: space.start("two", pair.owner.behaviour("hello").versions[1].cid))
    cid = space.behaviour_version("ay/hello").cid
    put(space, "refs/clia/remotes/ay/behaviours/hello", {f"retired/{cid}": b""})
    refused("retired", lambda: space.behaviour_version("ay/hello"))
    refused("retired", lambda: space.start("two", "ay/hello"))


def test_what_was_retired_under_one_name_runs_by_another_that_people_let_it_run_under(pair: Pair) -> None:
    space, root = pair.hearer, pair.place("hearer")
    space.adopt_behaviour("ay/twice")
    git("update-ref", f"{CHAINS}second", f"{CHAINS}twice", cwd=root)
    space.retire_behaviour("twice")
    assert space.start("two", "ay/twice").status == "suspended"
    space.retire_behaviour("second")
    space.cancel("two")
    refused("retired", lambda: space.start("two", "ay/twice"))


def test_a_ref_below_a_name_is_no_behaviour_and_lets_nothing_run(space: clia.Space) -> None:
    root = root_of(space)
    space.spawn("scout", BRIEFING)
    hidden = space.propose_behaviour("review", flow(1), agent="scout").cid
    space.adopt_behaviour("review", hidden, trial=True)
    git("update-ref", f"{CHAINS}deep/er", f"{CHAINS}review", cwd=root)
    space.retire_behaviour("review", hidden)
    assert [each.name for each in space.behaviours()] == ["review"]
    refused("retired", lambda: space.start("scout", hidden))


def test_a_session_starts_by_the_start_of_a_versions_id(space: clia.Space) -> None:
    trial = with_agents(space, "scout").behaviour("review").versions[1].cid
    refused("no-such-flow", lambda: space.start("scout", "0123abc"))
    assert space.start("scout", trial[:12], 1).status == "suspended"
    assert space.commit("scout", "test", {"a": b"1"})
    assert space.session_log("scout")[0].behaviour == trial

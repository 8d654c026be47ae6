"""The hub, and the way to it, fail in every manner that is known: nothing is lost, forced or done twice, and it is said.

The first half is about one move of a ref, the second about the verbs of a space.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import pytest

import clia
from clia.errors import CliaError, StaleRef
from clia.git.records import FILE, TreeEntry
from clia.testing import components
from clia.values.refs import tracking
from support import git
from support.crashes import assert_killed, killed_at, run_all
from support.faulty_proxy import FaultyProxy, proxy_for
from support.git_hubs import HUBS, PASSWORD, Hub, away, by_http, by_path, kill_next_push
from support.hub_clones import BY, sharing
from support.space_driver import BRIEFING, Paper, Writer, check_nothing_lost, postgres_url, settings, trace_texts
from support.spaces import refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.hub_clones import Clone

HEAD, RECORD, EVENTS = "refs/heads/agents/scout", "refs/clia/agents/scout", "refs/clia/events/scout"
LARGE = 400_000  # bytes that cannot be made fewer, so that a push of them can be cut in the middle
COMMITS = 4  # of each machine in a race


def going_on(ref: str) -> str:
    """What somebody else does at the hub, as a line of shell: a commit more."""
    person = "-c user.name=Otto -c user.email=otto@example.org"
    return f"git update-ref {ref} $(git {person} commit-tree -p {ref} -m more {ref}^{{tree}})"


def at_hub(hub: Hub) -> dict[str, str]:
    lines = git("for-each-ref", "--format=%(refname) %(objectname)", cwd=hub.repository).splitlines()
    return dict(line.split(" ") for line in lines)


def large_commit(clone: Clone) -> str:
    objects = clone.objects
    tree = objects.update_tree(None, {"noise": TreeEntry(FILE, objects.write_blob(os.urandom(LARGE)))})
    return objects.write_commit(tree, [], BY, BY, "large")


@contextmanager
def proxied(kind: str, top: Path) -> Iterator[tuple[Hub, FaultyProxy]]:
    """A hub over HTTP or ssh, behind a proxy that can fail."""
    top.mkdir()
    with HUBS[kind](top) as hub:
        before, _, rest = hub.url.rpartition("@127.0.0.1:")
        port, _, path = rest.partition("/")
        with proxy_for(int(port)) as proxy:
            yield hub._replace(url=f"{before}@127.0.0.1:{proxy.port}/{path}"), proxy


# One move


@pytest.mark.parametrize("landed", [False, True])
def test_a_push_that_nobody_answered_is_settled_by_reading_the_hub(tmp_path: Path, landed: bool) -> None:
    """The server dies before it has moved the refs, or after: each ref is moved once, and nothing is owed."""
    with by_path(tmp_path) as hub:
        one = sharing(tmp_path / "one", hub)
        first = one.commit("first")
        kill_next_push(hub, landed=landed)
        assert one.refs.move_together([(HEAD, None, first), (RECORD, None, first)], "test")
        assert at_hub(hub) == {HEAD: first, RECORD: first} == {name: one.refs.get(name) for name in (HEAD, RECORD)}
        assert not one.unpublished.refs


def test_a_push_that_landed_unanswered_and_was_built_upon_is_no_lost_race(tmp_path: Path) -> None:
    """By the time the hub is read again, somebody has gone on from our commit. It did land, and must not be made again."""
    with by_path(tmp_path) as hub:
        one = sharing(tmp_path / "one", hub)
        first = one.commit("first")
        kill_next_push(hub, landed=True, then=going_on(HEAD))
        one.refs.move(HEAD, None, first, "test")
        there = at_hub(hub)[HEAD]
        assert git("rev-parse", f"{there}^", cwd=hub.repository).strip() == first
        assert one.refs.get(HEAD) in (first, there)
        assert not one.unpublished.refs


@pytest.mark.parametrize("lock", [f"{HEAD}.lock", "packed-refs.lock"])
def test_a_hub_where_somebody_else_is_in_the_middle_of_a_push_is_tried_again(tmp_path: Path, lock: str) -> None:
    """Who holds a lock at the hub has moved nothing yet: this is neither a lost race nor a refusal."""
    with by_path(tmp_path) as hub:
        one = sharing(tmp_path / "one", hub)
        first = one.commit("first")
        one.refs.move(HEAD, None, first, "test")
        hook = hub.repository / "hooks/pre-receive"  # the first push finds a lock, the next one does not
        hook.write_text(f'#!/bin/sh\nif [ -e {lock} ]; then rm {lock} "$0"; else : >{lock}; fi\n')
        hook.chmod(0o755)
        one.refs.move(HEAD, first, None, "test")
        assert at_hub(hub) == {}
        assert not one.unpublished.refs


def test_all_locks_that_a_killed_fetch_has_left_are_broken_at_once(tmp_path: Path) -> None:
    heads = [f"refs/heads/agents/a{number}" for number in range(12)]
    with by_path(tmp_path) as hub:
        one, two = (sharing(tmp_path / name, hub) for name in ("one", "two"))
        for head in heads:
            one.refs.move(head, None, one.commit(head), "test")
        assert two.hub is not None
        left = [two.root / ".git" / f"{tracking('hub', head)}.lock" for head in heads]
        for each in left:
            each.parent.mkdir(parents=True, exist_ok=True)
            each.touch()
        assert two.hub.fetch()
        assert {ref for ref, _ in two.hub.tracked_under("refs/heads/agents/")} == set(heads)


def test_a_way_that_breaks_in_the_middle_of_a_push_is_tried_again(tmp_path: Path) -> None:
    with proxied("ssh", tmp_path / "server") as (hub, proxy):
        one = sharing(tmp_path / "one", hub)
        cid = large_commit(one)
        proxy.cut_request(LARGE // 2, once=True)
        one.refs.move(HEAD, None, cid, "test")
        assert proxy.met.is_set()
        assert at_hub(hub) == {HEAD: cid}
        assert not one.unpublished.refs


def test_a_way_that_keeps_breaking_leaves_the_hub_as_it_was(tmp_path: Path) -> None:
    """Half of what is sent arrives: what was moved here alone is owed, and the hub has nothing of it."""
    with proxied("http", tmp_path / "server") as (hub, proxy):
        one = sharing(tmp_path / "one", hub)
        cid = large_commit(one)
        proxy.cut_request(LARGE // 2)
        one.refs.move(HEAD, None, cid, "test")
        assert proxy.met.is_set()
        assert (one.refs.get(HEAD), one.unpublished.refs) == (cid, {HEAD})
        assert at_hub(hub) == {}
        git("fsck", "--strict", cwd=hub.repository)
        assert one.hub is not None
        assert one.hub.outage() is not None


def test_an_answer_that_is_lost_on_the_way_is_read_again(tmp_path: Path) -> None:
    with proxied("http", tmp_path / "server") as (hub, proxy):
        one = sharing(tmp_path / "one", hub)
        first = one.commit("first")
        proxy.cut_answer(to=b"/git-receive-pack HTTP")
        one.refs.move(HEAD, None, first, "test")
        assert proxy.met.is_set()
        assert one.refs.get(HEAD) == at_hub(hub)[HEAD] == first
        assert not one.unpublished.refs


@pytest.mark.parametrize("fault", ["refused", "silent", "wrong password", "not there"])
def test_a_hub_that_cannot_be_reached_holds_nobody_up(tmp_path: Path, fault: str) -> None:
    """It is away, which is said with a reason and without the password; and is there again when somebody insists."""
    with proxied("http", tmp_path / "server") as (hub, proxy):
        password = "a-guess" if fault == "wrong password" else PASSWORD
        reached = Hub(hub.url.replace("tess@", f"tess:{password}@"), hub.repository)
        one = sharing(tmp_path / "one", reached, seconds=1.0)
        first = one.commit("first")
        assert one.hub is not None
        with failing(proxy, hub, fault):
            one.refs.move(HEAD, None, first, "test")
            assert one.unpublished.refs == {HEAD}
            found = one.hub.outage()
            assert found is not None
            assert found.reason
            assert password not in f"{found} {one.hub.address()} {one.hub.unreachable().to_json()}"
            assert not one.hub.fetch(retry_now=True)
            assert fault != "silent" or "in time" in one.hub.unreachable().message  # and not when the other side has had enough
        one = sharing(tmp_path / "one", reached)  # a hub that is there may take its time
        assert one.hub is not None
        if fault != "wrong password":
            assert one.hub.fetch(retry_now=True)
            assert one.hub.outage() is None
        assert at_hub(hub) == {}


@contextmanager
def failing(proxy: FaultyProxy, hub: Hub, fault: str) -> Iterator[None]:
    if fault == "refused":
        proxy.refuse()
    elif fault == "silent":
        proxy.fall_silent()
    if fault == "not there":
        with away(hub):
            yield
    else:
        yield
    proxy.heal()


@pytest.mark.parametrize("moved", ["on", "back", "aside", "away"])
def test_a_ref_that_moved_at_the_hub_is_never_forced(tmp_path: Path, moved: str) -> None:
    """Plain git has pushed on, rewound, rewritten or deleted the branch at the hub: who moves it next learns that."""
    with by_path(tmp_path) as hub:
        one = sharing(tmp_path / "one", hub)
        first = one.commit("first")
        second = one.commit("second", first)
        one.refs.move(HEAD, None, second, "test")
        theirs = {"on": one.commit("on", second), "back": first, "aside": one.commit("aside", first), "away": None}[moved]
        git("push", "--quiet", "--force", hub.url, f"{theirs or ''}:{HEAD}", cwd=one.root)
        with pytest.raises(StaleRef) as caught:
            one.refs.move(HEAD, second, one.commit("third", second), "test")
        assert caught.value.fields["actual"] == theirs
        assert at_hub(hub).get(HEAD) == theirs
        assert one.refs.get(HEAD) == (theirs if moved == "on" else second)  # what is ours stays, until somebody decides
        assert not one.unpublished.refs


def test_a_server_of_the_first_protocol_is_a_hub_too(tmp_path: Path) -> None:
    with by_http(tmp_path, newest=False) as hub:
        one, other = sharing(tmp_path / "one", hub), sharing(tmp_path / "other", hub)
        first = one.commit("first")
        assert one.refs.move_together([(HEAD, None, first), (RECORD, None, first)], "test")
        with pytest.raises(StaleRef):
            other.refs.move(HEAD, None, other.commit("mine"), "test")
        assert other.refs.get(HEAD) == first


# The verbs of a space


def machine(root: Path, hub: Hub, store: str | None = None, reached: Callable[[str], None] | None = None) -> clia.Space:
    environment = {**(settings().environment or {}), **hub.environment}
    return clia.init(root, settings=settings(environment=environment, reached=reached, store=store), hub=hub.url)


def check_fresh_clone(hub: Hub, root: Path, paper: Paper) -> None:
    """A machine that comes new finds everything that was acknowledged, once, and all of it sound."""
    with machine(root, hub) as fresh:
        check_nothing_lost(root, paper, fresh)


def test_work_goes_on_while_the_hub_is_away_and_is_published_on_return(tmp_path: Path) -> None:
    paper = Paper(str(tmp_path / "paper"))
    with by_path(tmp_path) as hub, machine(tmp_path / "one", hub) as one:
        writer = Writer(one, paper)
        writer.spawn("scout")
        before = at_hub(hub)
        with away(hub):
            writer.trace("scout", "alone")
            writer.commit("scout", "alone.txt", "1", with_trace=True)
            writer.spawn("helper", "scout")
            one.register_type("insight", "finding")
            status = one.hub_status()
            assert status.away_since is not None
            assert {HEAD, RECORD.replace("scout", "helper"), "refs/clia/types"} <= set(status.owed)
        assert at_hub(hub) == before
        one.hub_sync()
        assert one.hub_status().owed == ()
        assert one.hub_status().away_since is None
        assert at_hub(hub)[HEAD] == one.head("scout")
        check_fresh_clone(hub, tmp_path / "two", paper)


def test_a_machine_that_finds_its_agent_gone_on_shows_a_fork_and_both_lines_stay(tmp_path: Path) -> None:
    """Two machines, each with a store of its own, worked on one agent while they could not meet."""
    with by_path(tmp_path) as hub, machine(tmp_path / "one", hub) as one:
        one.spawn("scout", BRIEFING)
        with machine(tmp_path / "two", hub) as two:
            two.claim("scout")
            with away(hub):
                ours = one.commit("scout", "finding", changes={"one.txt": b"1"})
                theirs = two.commit("scout", "finding", changes={"two.txt": b"2"})
            two.hub_sync()
            done = one.hub_sync()
            assert [(each.ref, each.what) for each in done if each.what == "fork"] == [(HEAD, "fork")]
            (fork,) = one.hub_status().forks
            assert (fork.agent, fork.ours, fork.theirs, fork.ahead, fork.behind) == ("scout", ours, theirs, 1, 1)
            refused("hub-diverged", lambda: one.commit("scout", "finding", changes={"more.txt": b"3"}))
            assert at_hub(hub)[HEAD] == theirs
            one.hub_sync(forks={"scout": "scout-one"})
            assert (one.hub_status().forks, one.hub_status().owed) == ((), ())
            assert one.head("scout") == at_hub(hub)[HEAD] == theirs
            assert ours in {each.cid for each in one.log("scout-one")}
            assert at_hub(hub)["refs/heads/agents/scout-one"] == one.head("scout-one")
            assert one.verify().clean


def test_agents_that_plain_git_moved_at_the_hub(tmp_path: Path) -> None:
    """Who is further there is followed; who was put back or deleted is there again with the next commit; else there is a fork."""
    with by_path(tmp_path) as hub, machine(tmp_path / "one", hub) as one:
        heads = {}
        for name in ("on", "back", "gone", "aside"):
            one.spawn(name, BRIEFING)
            heads[name] = one.commit(name, "finding", changes={"a.txt": b"1"})
        other = tmp_path / "plain"
        git("clone", "--quiet", str(hub.repository), str(other), cwd=tmp_path)
        for name, start in (("on", "origin/agents/on"), ("aside", "origin/agents/aside~1")):
            git("checkout", "--quiet", "-b", name, start, cwd=other)
            git("commit", "--quiet", "--allow-empty", "-m", "by hand", cwd=other)
        moves = ("on:agents/on", "+aside:agents/aside", "+origin/agents/back~1:refs/heads/agents/back", ":agents/gone")
        git("push", "--quiet", "origin", *moves, cwd=other)
        aside = at_hub(hub)["refs/heads/agents/aside"]
        refused("hub-diverged", lambda: one.commit("aside", "finding", changes={"b.txt": b"2"}))
        assert (at_hub(hub)["refs/heads/agents/aside"], one.head("aside")) == (aside, heads["aside"])
        for name, behind in (("on", "by hand"), ("back", None), ("gone", None)):
            made = one.commit(name, "finding", changes={"b.txt": b"2"})
            assert at_hub(hub)[f"refs/heads/agents/{name}"] == made
            parent = git("log", "-1", "--format=%H %s", f"{made}^", cwd=hub.repository).split(" ", 1)
            assert (parent[1].strip() == behind) if behind else (parent[0] == heads[name])


def test_what_only_one_machine_has_is_left_to_it(tmp_path: Path, postgres_address: str) -> None:
    """The store is shared, and one machine cannot reach the hub: the other leaves that agent alone until it can see the work."""
    store, way = postgres_url(postgres_address), tmp_path / "way"
    with by_path(tmp_path) as hub:
        way.symlink_to(hub.repository)
        with machine(tmp_path / "one", hub._replace(url=str(way)), store) as one, machine(tmp_path / "two", hub, store) as two:
            one.spawn("scout", BRIEFING)
            way.unlink()
            made = one.commit("scout", "finding", changes={"a.txt": b"1"})
            refused("work-elsewhere", lambda: two.commit("scout", "finding", changes={"b.txt": b"2"}))
            assert [each.agent for each in two.hub_status().elsewhere] == ["scout"]
            way.symlink_to(hub.repository)
            one.hub_sync()
            two.commit("scout", "finding", changes={"b.txt": b"2"})
            assert two.log("scout")[1].cid == made


def test_a_hub_that_hides_some_of_our_refs_is_not_taken(tmp_path: Path) -> None:
    """Git moves the others then, though the push is to be atomic: no such server can be a hub."""
    with by_path(tmp_path) as hub:
        git("config", "transfer.hideRefs", "refs/notes", cwd=hub.repository)
        with pytest.raises(CliaError) as caught:
            machine(tmp_path / "one", hub)
        assert caught.value.code in ("hub-refused", "hub-unfit")
        assert at_hub(hub) == {}


@pytest.mark.parametrize("landed", [False, True])
def test_a_verb_whose_push_nobody_answered_has_happened_once(tmp_path: Path, landed: bool) -> None:
    paper = Paper(str(tmp_path / "paper"))
    with by_path(tmp_path) as hub, machine(tmp_path / "one", hub) as one:
        writer = Writer(one, paper)
        kill_next_push(hub, landed=landed)
        writer.spawn("scout")
        writer.trace("scout", "seen")
        kill_next_push(hub, landed=landed, then=going_on(HEAD) if landed else ":")
        writer.commit("scout", "a.txt", "1", with_trace=True)
        kill_next_push(hub, landed=landed, then=going_on(EVENTS) if landed else ":")
        writer.relate("scout", "reviews", "scout")
        assert one.hub_status().owed == ()
        assert [each.kind for each in reversed(one.log("scout"))][:2] == ["spawn", "finding"]
        for ref, commits in ((HEAD, 2), (EVENTS, 1)):
            assert int(git("rev-list", "--count", ref, cwd=hub.repository)) == commits + landed
        check_fresh_clone(hub, tmp_path / "two", paper)


@pytest.mark.parametrize("verb", ["spawn", "commit", "relate"])
def test_a_process_that_dies_when_the_hub_has_moved_and_its_clone_has_not_loses_nothing(tmp_path: Path, verb: str) -> None:
    with by_path(tmp_path) as hub:
        with machine(tmp_path / "one", hub) as one:
            one.spawn("scout", BRIEFING)
            one.spawn("other", BRIEFING)
            one.trace("scout", "console", "seen")

        def die() -> None:
            with machine(tmp_path / "one", hub, reached=killed_at("hub-moved")) as one:
                if verb == "spawn":
                    one.spawn("third", BRIEFING)
                elif verb == "commit":
                    one.commit_with_trace("scout", "finding", changes={"a.txt": b"1"})
                else:
                    one.relate("scout", "reviews", "other")

        assert_killed(die)
        with machine(tmp_path / "one", hub) as one:
            assert not components(one).envelope.unfinished()
            assert one.hub_status().owed == one.hub_status().behind == ()
            if verb == "spawn":
                assert one.agents() == ["other", "scout", "third"]
            elif verb == "commit":
                assert one.log("scout")[0].kind == "finding"
                assert one.trace_pending("scout") == []
                assert trace_texts(one) == {"seen": 1}
            else:
                assert one.reviewing("scout") == ["other"]
            assert one.verify().clean


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_machines_that_race_on_one_agent_lose_and_double_nothing(
    tmp_path: Path, store: str, request: pytest.FixtureRequest
) -> None:
    """Three processes, each with a clone of its own, commit to one agent with traces; who loses tries again."""
    shared = postgres_url(request.getfixturevalue("postgres_address")) if store == "postgresql" else None
    paper = Paper(str(tmp_path / "paper"))
    with by_path(tmp_path) as hub:
        with machine(tmp_path / "m0", hub, shared) as first:
            first.spawn("scout", BRIEFING)
        run_all([partial(race, tmp_path / f"m{number}", hub, shared, paper, str(number)) for number in range(3)], 3)
        assert len(paper.read("file")) == 3 * COMMITS
        with machine(tmp_path / "m0", hub, shared) as one:
            one.hub_sync()
            check_nothing_lost(tmp_path / "m0", paper, one)
            assert [each.kind for each in one.log("scout")].count("finding") == 3 * COMMITS
            assert {path for _, path, _ in paper.read("file")} <= one.files("scout").keys()


def race(root: Path, hub: Hub, store: str | None, paper: Paper, number: str) -> None:
    with machine(root, hub, store) as space:
        if store is None and number != "0":
            space.claim("scout")
        writer = Writer(space, paper)
        for step in range(COMMITS):
            writer.trace("scout", f"{number}.{step}")
            done = False
            while not done:
                try:
                    writer.commit("scout", f"{number}-{step}.txt", "x", with_trace=True)
                    done = True
                except StaleRef:
                    continue

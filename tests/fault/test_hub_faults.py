"""Failures of the hub and of the connection to it: nothing is lost, forced or done twice, and errors are reported.

The first half tests single moves of refs, the second the verbs of a space.
"""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from clia.errors import CliaError, GitError, StaleRef, TransportError
from clia.facade.setup import set_up
from clia.git.libgit2 import GitHandle
from clia.git.records import FILE, TreeEntry
from clia.git.ref_files import RefFiles
from clia.git.refs import GitRefs
from clia.hub import remote as git_hub
from clia.hub.fetch_marks import FetchMarks
from clia.hub.joining import HubTarget
from clia.hub.model import BRANCHES
from clia.testing import components
from clia.values import refs as names
from clia.values.refs import tracking
from support import git
from support.crashes import FORK, assert_killed, killed_at, run_all
from support.faulty_proxy import FaultyProxy, proxy_for
from support.git_hubs import HUBS, PASSWORD, Hub, away, by_http, by_path, kill_next_push
from support.hub_clones import BY, sharing
from support.space_driver import BRIEFING, Paper, Writer, check_nothing_lost, postgres_url, settings, trace_texts
from support.spaces import refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.process import BaseProcess
    from pathlib import Path

    import clia
    from support.hub_clones import Clone

HEAD, RECORD, EVENTS = "refs/heads/agents/scout", "refs/clia/agents/scout", "refs/clia/events/scout"
LARGE = 400_000  # incompressible, so that a push can be cut in the middle
COMMITS = 4  # by each machine in a race


def new_commit_script(ref: str) -> str:
    """A shell command that adds a commit at the hub."""
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
def test_a_push_without_an_answer_is_settled_by_reading_the_hub(tmp_path: Path, landed: bool) -> None:
    """The server is killed before or after it moves the refs: each ref moves once, and nothing stays unpublished."""
    with by_path(tmp_path) as hub:
        machine_one = sharing(tmp_path / "one", hub)
        first = machine_one.commit("first")
        kill_next_push(hub, landed=landed)
        assert machine_one.refs.move_together([(HEAD, None, first), (RECORD, None, first)], "test")
        assert at_hub(hub) == {HEAD: first, RECORD: first} == {name: machine_one.refs.get(name) for name in (HEAD, RECORD)}
        assert not machine_one.unpublished.refs


def test_a_push_without_an_answer_that_was_built_upon_is_not_a_lost_race(tmp_path: Path) -> None:
    """When the hub is read again, another commit is on top of our own. Ours landed and must not be repeated."""
    with by_path(tmp_path) as hub:
        machine_one = sharing(tmp_path / "one", hub)
        first = machine_one.commit("first")
        kill_next_push(hub, landed=True, then=new_commit_script(HEAD))
        machine_one.refs.move(HEAD, None, first, "test")
        hub_head = at_hub(hub)[HEAD]
        assert git("rev-parse", f"{hub_head}^", cwd=hub.repository).strip() == first
        assert machine_one.refs.get(HEAD) in (first, hub_head)
        assert not machine_one.unpublished.refs


@pytest.mark.parametrize("lock", [f"{HEAD}.lock", "packed-refs.lock"])
def test_a_hub_locked_by_another_push_is_retried(tmp_path: Path, lock: str) -> None:
    """The holder of the lock has not moved the ref yet: this is neither a lost race nor a refusal."""
    with by_path(tmp_path) as hub:
        machine_one = sharing(tmp_path / "one", hub)
        first = machine_one.commit("first")
        machine_one.refs.move(HEAD, None, first, "test")
        hook = hub.repository / "hooks/pre-receive"  # the first push finds a lock, the next one does not
        hook.write_text(f'#!/bin/sh\nif [ -e {lock} ]; then rm {lock} "$0"; else : >{lock}; fi\n')
        hook.chmod(0o755)
        machine_one.refs.move(HEAD, first, None, "test")
        assert at_hub(hub) == {}
        assert not machine_one.unpublished.refs


def test_all_locks_of_a_killed_fetch_are_broken_at_once(tmp_path: Path) -> None:
    heads = [f"refs/heads/agents/a{number}" for number in range(12)]
    with by_path(tmp_path) as hub:
        machine_one, machine_two = (sharing(tmp_path / name, hub) for name in ("one", "two"))
        for head in heads:
            machine_one.refs.move(head, None, machine_one.commit(head), "test")
        assert machine_two.hub is not None
        lock_files = [machine_two.root / ".git" / f"{tracking('hub', head)}.lock" for head in heads]

        def fetch_and_die() -> None:
            with FetchMarks(GitHandle(str(machine_two.root))).fetching():
                for lock_file in lock_files:
                    lock_file.parent.mkdir(parents=True, exist_ok=True)
                    lock_file.write_text("1" * 40 + "\n")
                os.kill(os.getpid(), signal.SIGKILL)

        killed = FORK.Process(target=fetch_and_die)
        killed.start()
        killed.join()
        assert all(lock_file.exists() for lock_file in lock_files)
        assert machine_two.hub.fetch()
        assert {ref for ref, _ in machine_two.hub.tracked_under("refs/heads/agents/")} == set(heads)


def lock_and_signal(clone: Clone, ref: str, signal_: int) -> BaseProcess:
    """Start a process that locks a ref as clia does, and then sends itself a signal."""

    def lock() -> None:
        with RefFiles(GitHandle(str(clone.root))).hold(ref, "1" * 40):
            os.kill(os.getpid(), signal_)

    process = FORK.Process(target=lock)
    process.start()
    return process


def test_the_lock_of_a_dead_process_of_clia_on_a_tracking_ref_is_broken(tmp_path: Path) -> None:
    with by_path(tmp_path) as hub:
        machine_one, machine_two = (sharing(tmp_path / name, hub) for name in ("one", "two"))
        machine_one.refs.move(HEAD, None, machine_one.commit("first"), "test")
        assert machine_two.hub is not None
        lock_and_signal(machine_two, tracking("hub", HEAD), signal.SIGKILL).join()
        assert (machine_two.root / ".git" / f"{tracking('hub', HEAD)}.lock").exists()
        assert machine_two.hub.fetch("scout")


def test_the_lock_of_a_stopped_process_of_clia_on_a_tracking_ref_is_not_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even if a fetch was killed earlier."""
    monkeypatch.setattr(git_hub, "LOCKED_SECONDS", 1.5)
    with by_path(tmp_path) as hub:
        machine_one, machine_two = (sharing(tmp_path / name, hub) for name in ("one", "two"))
        machine_one.refs.move(HEAD, None, machine_one.commit("first"), "test")
        assert machine_two.hub is not None
        marks = FetchMarks(GitHandle(str(machine_two.root)))
        with marks.fetching():
            marks.keep()
        process = lock_and_signal(machine_two, tracking("hub", HEAD), signal.SIGSTOP)
        assert process.pid is not None
        try:
            os.waitpid(process.pid, os.WUNTRACED)
            assert not machine_two.hub.fetch("scout")
        finally:
            os.kill(process.pid, signal.SIGCONT)
        process.join()
        assert process.exitcode == 0, "the process no longer had its lock"
        assert machine_two.hub.fetch("scout")


def test_a_lock_of_another_program_on_a_tracking_ref_is_not_broken_and_the_hub_is_not_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_hub, "LOCKED_SECONDS", 1.5)
    with by_path(tmp_path) as hub:
        machine_one, machine_two = (sharing(tmp_path / name, hub) for name in ("one", "two"))
        machine_one.refs.move(HEAD, None, machine_one.commit("first"), "test")
        assert machine_two.hub is not None
        lock = machine_two.root / ".git" / f"{tracking('hub', HEAD)}.lock"
        lock.parent.mkdir(parents=True)
        lock.write_text("1" * 40 + "\n")
        assert not machine_two.hub.fetch("scout")
        assert lock.exists()
        assert machine_two.hub.outage() is None
        assert str(lock) in machine_two.hub.unreachable().message
        other = machine_two.commit("other")
        machine_two.refs.move("refs/heads/agents/other", None, other, "test")
        assert at_hub(hub)["refs/heads/agents/other"] == other


def test_a_stale_lock_at_the_hub_concerns_that_ref_alone(tmp_path: Path) -> None:
    with by_path(tmp_path) as hub:
        machine_one = sharing(tmp_path / "one", hub)
        first = machine_one.commit("first")
        machine_one.refs.move(HEAD, None, first, "test")
        (hub.repository / f"{HEAD}.lock").touch()
        second = machine_one.commit("second", first)
        machine_one.refs.move(HEAD, first, second, "test")
        assert (machine_one.refs.get(HEAD), machine_one.unpublished.refs) == (second, {HEAD})
        assert machine_one.hub is not None
        assert machine_one.hub.outage() is None, "the hub is not away"
        machine_one.refs.move("refs/heads/agents/other", None, first, "test")
        assert at_hub(hub) == {HEAD: first, "refs/heads/agents/other": first}
        with pytest.raises(TransportError) as caught:
            machine_one.hub.send([(HEAD, first, second)])
        assert caught.value.code == "hub-ref-locked"
        assert f"{HEAD}.lock" in " ".join(caught.value.hints)


def test_a_connection_that_breaks_during_a_push_is_retried(tmp_path: Path) -> None:
    with proxied("ssh", tmp_path / "server") as (hub, proxy):
        machine_one = sharing(tmp_path / "one", hub)
        cid = large_commit(machine_one)
        proxy.cut_request(LARGE // 2, once=True)
        machine_one.refs.move(HEAD, None, cid, "test")
        assert proxy.met.is_set()
        assert at_hub(hub) == {HEAD: cid}
        assert not machine_one.unpublished.refs


def test_a_connection_that_keeps_breaking_leaves_the_hub_unchanged(tmp_path: Path) -> None:
    """Half of the data arrives: the local move stays unpublished, and the hub has nothing of it."""
    with proxied("http", tmp_path / "server") as (hub, proxy):
        machine_one = sharing(tmp_path / "one", hub)
        cid = large_commit(machine_one)
        proxy.cut_request(LARGE // 2)
        machine_one.refs.move(HEAD, None, cid, "test")
        assert proxy.met.is_set()
        assert (machine_one.refs.get(HEAD), machine_one.unpublished.refs) == (cid, {HEAD})
        assert at_hub(hub) == {}
        git("fsck", "--strict", cwd=hub.repository)
        assert machine_one.hub is not None
        assert machine_one.hub.outage() is not None


def test_a_lost_answer_to_a_read_is_retried(tmp_path: Path) -> None:
    with proxied("http", tmp_path / "server") as (hub, proxy):
        machine_one = sharing(tmp_path / "one", hub)
        first = machine_one.commit("first")
        proxy.cut_answer(to=b"/git-receive-pack HTTP")
        machine_one.refs.move(HEAD, None, first, "test")
        assert proxy.met.is_set()
        assert machine_one.refs.get(HEAD) == at_hub(hub)[HEAD] == first
        assert not machine_one.unpublished.refs


@pytest.mark.parametrize("fault", ["refused", "silent", "wrong password", "not there"])
def test_an_unreachable_hub_does_not_block_work(tmp_path: Path, fault: str) -> None:
    """The outage is reported with a reason and without the password; a forced retry ends it."""
    with proxied("http", tmp_path / "server") as (hub, proxy):
        password = "a-guess" if fault == "wrong password" else PASSWORD
        reached = Hub(hub.url.replace("tess@", f"tess:{password}@"), hub.repository)
        machine_one = sharing(tmp_path / "one", reached, seconds=1.0)
        first = machine_one.commit("first")
        assert machine_one.hub is not None
        with failing(proxy, hub, fault):
            machine_one.refs.move(HEAD, None, first, "test")
            assert machine_one.unpublished.refs == {HEAD}
            outage = machine_one.hub.outage()
            assert outage is not None
            assert outage.reason
            assert password not in f"{outage} {machine_one.hub.address()} {machine_one.hub.unreachable().to_json()}"
            assert not machine_one.hub.fetch(retry_now=True)
            assert fault != "silent" or "in time" in machine_one.hub.unreachable().message  # and not when the other side gives up
        machine_one = sharing(tmp_path / "one", reached)  # a reachable hub may be slow
        assert machine_one.hub is not None
        if fault != "wrong password":
            assert machine_one.hub.fetch(retry_now=True)
            assert machine_one.hub.outage() is None
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
    """Plain git advanced, rewound, rewrote or deleted the branch at the hub: the next move gets an error."""
    with by_path(tmp_path) as hub:
        machine_one = sharing(tmp_path / "one", hub)
        first = machine_one.commit("first")
        second = machine_one.commit("second", first)
        machine_one.refs.move(HEAD, None, second, "test")
        moved_head = {
            "on": machine_one.commit("on", second),
            "back": first,
            "aside": machine_one.commit("aside", first),
            "away": None,
        }[moved]
        git("push", "--quiet", "--force", hub.url, f"{moved_head or ''}:{HEAD}", cwd=machine_one.root)
        with pytest.raises(StaleRef) as caught:
            machine_one.refs.move(HEAD, second, machine_one.commit("third", second), "test")
        assert caught.value.fields["actual"] == moved_head
        assert at_hub(hub).get(HEAD) == moved_head
        assert machine_one.refs.get(HEAD) == (moved_head if moved == "on" else second)  # our commit stays until a person decides
        assert not machine_one.unpublished.refs


def test_a_server_with_the_first_protocol_is_a_hub_too(tmp_path: Path) -> None:
    with by_http(tmp_path, newest=False) as hub:
        machine_one, other_clone = sharing(tmp_path / "one", hub), sharing(tmp_path / "other", hub)
        first = machine_one.commit("first")
        assert machine_one.refs.move_together([(HEAD, None, first), (RECORD, None, first)], "test")
        with pytest.raises(StaleRef):
            other_clone.refs.move(HEAD, None, other_clone.commit("mine"), "test")
        assert other_clone.refs.get(HEAD) == first


# The verbs of a space


def machine(
    root: Path,
    hub: Hub,
    store: str | None = None,
    reached: Callable[[str], None] | None = None,
    notify: Callable[[str], None] | None = None,
) -> clia.Space:
    environment = {**(settings().environment or {}), **hub.environment}
    chosen = settings(environment=environment, reached=reached, store=store, notify=notify)
    return set_up(root, settings=chosen, hub=HubTarget(hub.url, BRANCHES)).space


def check_fresh_clone(hub: Hub, root: Path, paper: Paper) -> None:
    """Check that a new machine gets every acknowledged change, once, and that the space is sound."""
    with machine(root, hub) as fresh:
        check_nothing_lost(root, paper, fresh)


def test_work_continues_without_the_hub_and_is_published_afterwards(tmp_path: Path) -> None:
    paper = Paper(str(tmp_path / "paper"))
    with by_path(tmp_path) as hub, machine(tmp_path / "one", hub) as machine_one:
        writer = Writer(machine_one, paper)
        writer.spawn("scout")
        before = at_hub(hub)
        with away(hub):
            writer.trace("scout", "alone")
            writer.commit("scout", "alone.txt", "1", with_trace=True)
            writer.spawn("helper", "scout")
            machine_one.types.register("insight", "finding")
            status = machine_one.hub.status()
            assert status.away_since is not None
            assert {HEAD, RECORD.replace("scout", "helper"), "refs/clia/types"} <= set(status.owed)
        assert at_hub(hub) == before
        machine_one.hub.sync()
        assert machine_one.hub.status().owed == ()
        assert machine_one.hub.status().away_since is None
        assert at_hub(hub)[HEAD] == machine_one.head("scout")
        check_fresh_clone(hub, tmp_path / "two", paper)


@pytest.mark.parametrize("verb", ["commit", "commit_with_trace", "relate", "attach"])
def test_what_the_hub_has_recorded_is_not_an_error_if_this_clone_cannot_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """For example with a full disk, or beside a git process that holds a lock: an error would make the caller repeat it."""
    notices: list[str] = []
    with by_path(tmp_path) as hub, machine(tmp_path / "one", hub, notify=notices.append) as space:
        base = space.spawn("scout", BRIEFING).genesis
        space.spawn("smith", BRIEFING)
        space.trace("scout", "console", "one")
        entries = [{"kind": "console", "text": "one"}]
        verbs: dict[str, Callable[[], object]] = {
            "commit": lambda: space.commit("scout", "finding", changes={"a": b"1"}, message="again"),
            "commit_with_trace": lambda: space.commit_with_trace("scout", "finding", changes={"a": b"1"}, message="again"),
            "relate": lambda: space.relate("scout", "helps", "smith"),
            "attach": lambda: space.attach_trace(base, entries),
        }
        before, move = space.head("scout"), GitRefs.move

        def move_unless_shared(refs: GitRefs, name: str, *rest: Any, **options: Any) -> None:
            fail() if names.is_shared(name) else move(refs, name, *rest, **options)

        with monkeypatch.context() as patch:
            patch.setattr(GitRefs, "move", move_unless_shared)
            verbs[verb]()
        assert notices[0].startswith("recorded at the hub, but not here yet (")
        assert space.head("scout") == before
        space.hub.sync()
        assert [commit.subject for commit in space.session_log("scout")].count("again") == verb.startswith("commit")
        assert [edge.kind for edge in space.relations()].count("helps") == (verb == "relate")
        assert len(space.trace_pending("scout")) == (verb != "commit_with_trace")
        assert len(space.session_traces("scout")) == (verb in ("commit_with_trace", "attach"))
        space.commit_with_trace("scout", "finding", changes={"a": b"2"})
        assert trace_texts(space, "console") == {"one": 2 if verb == "attach" else 1}
        assert space.verify().clean


def fail() -> None:
    raise GitError("no space left on device")


def test_an_agent_that_two_machines_advanced_is_a_fork_and_both_lines_are_kept(tmp_path: Path) -> None:
    """Two machines with separate stores worked on one agent without the hub."""
    with by_path(tmp_path) as hub, machine(tmp_path / "one", hub) as machine_one:
        machine_one.spawn("scout", BRIEFING)
        with machine(tmp_path / "two", hub) as machine_two:
            machine_two.agents.claim("scout")
            with away(hub):
                own_cid = machine_one.commit("scout", "finding", changes={"one.txt": b"1"})
                other_cid = machine_two.commit("scout", "finding", changes={"two.txt": b"2"})
            machine_two.hub.sync()
            synced = machine_one.hub.sync()
            assert [(synced_ref.ref, synced_ref.what) for synced_ref in synced if synced_ref.what == "fork"] == [(HEAD, "fork")]
            (fork,) = machine_one.hub.status().forks
            assert (fork.agent, fork.ours, fork.theirs, fork.ahead, fork.behind) == ("scout", own_cid, other_cid, 1, 1)
            refused("hub-diverged", lambda: machine_one.commit("scout", "finding", changes={"more.txt": b"3"}))
            assert at_hub(hub)[HEAD] == other_cid
            machine_one.hub.sync(forks={"scout": "scout-one"})
            assert (machine_one.hub.status().forks, machine_one.hub_status().owed) == ((), ())
            assert machine_one.head("scout") == at_hub(hub)[HEAD] == other_cid
            assert own_cid in {commit.cid for commit in machine_one.log("scout-one")}
            assert at_hub(hub)["refs/heads/agents/scout-one"] == machine_one.head("scout-one")
            assert machine_one.verify().clean


def test_agents_that_plain_git_moved_at_the_hub(tmp_path: Path) -> None:
    """An advanced agent is followed; a rewound or deleted one is restored by the next commit; otherwise there is a fork."""
    with by_path(tmp_path) as hub, machine(tmp_path / "one", hub) as machine_one:
        heads = {}
        for name in ("on", "back", "gone", "aside"):
            machine_one.spawn(name, BRIEFING)
            heads[name] = machine_one.commit(name, "finding", changes={"a.txt": b"1"})
        plain_clone = tmp_path / "plain"
        git("clone", "--quiet", str(hub.repository), str(plain_clone), cwd=tmp_path)
        for name, start in (("on", "origin/agents/on"), ("aside", "origin/agents/aside~1")):
            git("checkout", "--quiet", "-b", name, start, cwd=plain_clone)
            git("commit", "--quiet", "--allow-empty", "-m", "by hand", cwd=plain_clone)
        moves = ("on:agents/on", "+aside:agents/aside", "+origin/agents/back~1:refs/heads/agents/back", ":agents/gone")
        git("push", "--quiet", "origin", *moves, cwd=plain_clone)
        aside = at_hub(hub)["refs/heads/agents/aside"]
        refused("hub-diverged", lambda: machine_one.commit("aside", "finding", changes={"b.txt": b"2"}))
        assert (at_hub(hub)["refs/heads/agents/aside"], machine_one.head("aside")) == (aside, heads["aside"])
        for name, behind in (("on", "by hand"), ("back", None), ("gone", None)):
            cid = machine_one.commit(name, "finding", changes={"b.txt": b"2"})
            assert at_hub(hub)[f"refs/heads/agents/{name}"] == cid
            parent = git("log", "-1", "--format=%H %s", f"{cid}^", cwd=hub.repository).split(" ", 1)
            assert (parent[1].strip() == behind) if behind else (parent[0] == heads[name])


def test_an_agent_with_unpublished_work_is_left_to_its_machine(tmp_path: Path, postgres_address: str) -> None:
    """With a shared store, one machine cannot reach the hub: the other does not use that agent until it has the work."""
    store, way = postgres_url(postgres_address), tmp_path / "way"
    with by_path(tmp_path) as hub:
        way.symlink_to(hub.repository)
        with (
            machine(tmp_path / "one", hub._replace(url=str(way)), store) as machine_one,
            machine(tmp_path / "two", hub, store) as machine_two,
        ):
            machine_one.spawn("scout", BRIEFING)
            way.unlink()
            cid = machine_one.commit("scout", "finding", changes={"a.txt": b"1"})
            refused("work-elsewhere", lambda: machine_two.commit("scout", "finding", changes={"b.txt": b"2"}))
            assert [owed_work.agent for owed_work in machine_two.hub.status().elsewhere] == ["scout"]
            way.symlink_to(hub.repository)
            machine_one.hub.sync()
            machine_two.commit("scout", "finding", changes={"b.txt": b"2"})
            assert machine_two.log("scout")[1].cid == cid


def test_a_hub_that_hides_some_of_our_refs_is_refused(tmp_path: Path) -> None:
    """Git then moves the other refs although the push is atomic, so such a server cannot be a hub."""
    with by_path(tmp_path) as hub:
        git("config", "transfer.hideRefs", "refs/notes", cwd=hub.repository)
        with pytest.raises(CliaError) as caught:
            machine(tmp_path / "one", hub)
        assert caught.value.code in ("hub-refused", "hub-unfit")
        assert at_hub(hub) == {}


@pytest.mark.parametrize("landed", [False, True])
def test_a_verb_whose_push_has_no_answer_is_applied_once(tmp_path: Path, landed: bool) -> None:
    paper = Paper(str(tmp_path / "paper"))
    with by_path(tmp_path) as hub, machine(tmp_path / "one", hub) as machine_one:
        writer = Writer(machine_one, paper)
        kill_next_push(hub, landed=landed)
        writer.spawn("scout")
        writer.trace("scout", "seen")
        kill_next_push(hub, landed=landed, then=new_commit_script(HEAD) if landed else ":")
        writer.commit("scout", "a.txt", "1", with_trace=True)
        kill_next_push(hub, landed=landed, then=new_commit_script(EVENTS) if landed else ":")
        writer.relate("scout", "reviews", "scout")
        assert machine_one.hub.status().owed == ()
        assert [commit.kind for commit in reversed(machine_one.log("scout"))][:2] == ["spawn", "finding"]
        for ref, commits in ((HEAD, 2), (EVENTS, 1)):
            assert int(git("rev-list", "--count", ref, cwd=hub.repository)) == commits + landed
        check_fresh_clone(hub, tmp_path / "two", paper)


@pytest.mark.parametrize("verb", ["spawn", "commit", "relate"])
def test_a_process_killed_between_the_moves_of_the_hub_and_the_clone_loses_nothing(tmp_path: Path, verb: str) -> None:
    with by_path(tmp_path) as hub:
        with machine(tmp_path / "one", hub) as machine_one:
            machine_one.spawn("scout", BRIEFING)
            machine_one.spawn("other", BRIEFING)
            machine_one.trace("scout", "console", "seen")

        def die() -> None:
            with machine(tmp_path / "one", hub, reached=killed_at("hub-moved")) as machine_one:
                if verb == "spawn":
                    machine_one.spawn("third", BRIEFING)
                elif verb == "commit":
                    machine_one.commit_with_trace("scout", "finding", changes={"a.txt": b"1"})
                else:
                    machine_one.relate("scout", "reviews", "other")

        assert_killed(die)
        with machine(tmp_path / "one", hub) as machine_one:
            assert not components(machine_one).envelope.unfinished()
            assert machine_one.hub.status().owed == machine_one.hub_status().behind == ()
            if verb == "spawn":
                assert machine_one.agents() == ["other", "scout", "third"]
            elif verb == "commit":
                assert machine_one.log("scout")[0].kind == "finding"
                assert machine_one.traces.pending("scout") == []
                assert trace_texts(machine_one) == {"seen": 1}
            else:
                assert machine_one.relations.reviewing("scout") == ["other"]
            assert machine_one.verify().clean


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_machines_that_race_on_one_agent_lose_and_duplicate_nothing(
    tmp_path: Path, store: str, request: pytest.FixtureRequest
) -> None:
    """Three processes with separate clones commit to one agent with traces; losers retry."""
    shared = postgres_url(request.getfixturevalue("postgres_address")) if store == "postgresql" else None
    paper = Paper(str(tmp_path / "paper"))
    with by_path(tmp_path) as hub:
        with machine(tmp_path / "m0", hub, shared) as first:
            first.spawn("scout", BRIEFING)
        run_all([partial(race, tmp_path / f"m{number}", hub, shared, paper, str(number)) for number in range(3)], 3)
        assert len(paper.read("file")) == 3 * COMMITS
        with machine(tmp_path / "m0", hub, shared) as machine_one:
            machine_one.hub.sync()
            check_nothing_lost(tmp_path / "m0", paper, machine_one)
            assert [commit.kind for commit in machine_one.log("scout")].count("finding") == 3 * COMMITS
            assert {path for _, path, _ in paper.read("file")} <= machine_one.files("scout").keys()


def race(root: Path, hub: Hub, store: str | None, paper: Paper, number: str) -> None:
    with machine(root, hub, store) as space:
        if store is None and number != "0":
            space.agents.claim("scout")
        writer = Writer(space, paper)
        for step in range(COMMITS):
            writer.trace("scout", f"{number}.{step}")
            committed = False
            while not committed:
                try:
                    writer.commit("scout", f"{number}-{step}.txt", "x", with_trace=True)
                    committed = True
                except StaleRef:
                    continue

"""Idle agents: which are put away, and that every read and every later write works as before."""

from __future__ import annotations

import shutil
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

import clia
from clia.facade import background_upkeep, opening
from clia.git import archive, ref_files, refs
from clia.git.porcelain import MANY_LOOSE
from clia.space.upkeep import DAY, RECENT, IdleRules
from clia.testing import components
from support import git
from support.disks import no_file_beyond
from support.machine_logs import superseded_commits
from support.plain_git import all_recorded_bytes, commit_file, rev
from support.spaces import refused

if TYPE_CHECKING:
    from collections.abc import Iterator

ARCHIVE = ".git/clia/archive.git"
OWN_REFS = ("refs/clia-local/bases", "refs/clia-local/store")
RULES = IdleRules(agents=10, days=7)


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 5, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return tmp_path / "place"


@pytest.fixture
def space(repo: Path, clock: Clock) -> Iterator[clia.Space]:
    """A space with a person's branch and two agents on it that have traces, an event and an archived helper."""
    settings = clia.Settings(durable=False, person=("Tess", "tess@example.org"), clock=clock)
    with clia.init(repo, settings=settings) as space:
        commit_file(repo, "a", "1\n")
        for name in ("scout", "critic", "helper"):
            space.spawn_at(name, clia.Briefing(name), "main")
            space.trace(name, "console", f"$ {name}")
            space.commit_with_trace(name, "finding", changes={f"{name}.txt": name.encode()})
        space.reviews("critic", "scout")
        space.archive("helper")
        yield space


def put_away(space: clia.Space, *agents: str) -> list[str]:
    return components(space).archiving.put_away(agents or ("scout", "critic", "helper"))


def archived_git(repo: Path, *words: str) -> str:
    return git(f"--git-dir={ARCHIVE}", *words, cwd=repo).strip()


def refs_in(repo: Path) -> list[str]:
    return git("for-each-ref", "--format=%(refname)", cwd=repo).split()


def answers(space: clia.Space) -> list[object]:
    """What the reading verbs say."""
    return [
        space.agents(),
        space.agents(archived=True),
        space.states() if hasattr(space, "states") else None,
        [space.log(name) for name in ("scout", "critic", "helper")],
        [space.files(name) for name in ("scout", "critic", "helper")],
        [space.session_traces(name) for name in ("scout", "critic")],
        space.relations("critic"),
        space.show("scout~1"),
        space.show("agents/critic"),
        space.diff("scout"),
        space.briefing_of("helper"),
        [line.agent for line in space.blame("scout", "scout.txt")],
    ]


def test_reads_give_the_same_answers_and_stock_git_reads_the_archive(space: clia.Space, repo: Path) -> None:
    before, heads = answers(space), {name: rev(repo, f"agents/{name}") for name in ("scout", "critic")}
    assert put_away(space) == ["critic", "helper", "scout"]
    assert answers(space) == before
    assert components(space).core.refs.missing("refs/heads/agents/", {"scout", "critic", "other"}) == {"other"}
    of_all = ["refs/clia/keys", *(ref for ref in refs_in(repo) if ref.startswith("refs/clia/log/")), "refs/clia/space"]
    assert refs_in(repo) == ["refs/clia-local/bases", "refs/clia-local/store", *of_all, "refs/heads/main"]
    assert {name: archived_git(repo, "rev-parse", f"agents/{name}") for name in heads} == heads
    assert archived_git(repo, "log", "--format=%s", "refs/heads/agents/scout").splitlines()[-1] == "a: 1"
    assert '"$ scout"' in archived_git(repo, "notes", "--ref=clia/trace/scout", "show", "refs/heads/agents/scout")
    assert not [line for line in archived_git(repo, "fsck").splitlines() if not line.startswith(("dangling", "notice"))]
    assert archived_git(repo, "reflog", "refs/heads/agents/scout").count("\n") == 1  # spawn and commit
    dangling = {line.split()[-1] for line in git("fsck", cwd=repo).splitlines()} - set(superseded_commits(repo))
    assert len(dangling) == 1, "one dangling commit, not one for each ref"
    assert space.verify().clean


def test_nothing_is_lost_when_people_rewrite_their_history_and_clean_up(space: clia.Space, repo: Path) -> None:
    before = answers(space)
    put_away(space)
    git("commit", "--amend", "-qm", "other", cwd=repo)
    # The person's, those of the space, its keys and its store, the bases and what they keep.
    assert len(git("rev-list", "--exclude=refs/clia/log/*", "--all", cwd=repo).split()) == 6
    git("reflog", "expire", "--expire=now", "--all", cwd=repo)
    git("-c", "gc.reflogExpire=now", "gc", "--quiet", "--prune=now", cwd=repo)
    git("repack", "-adq", cwd=repo)
    assert answers(space) == before
    assert space.verify().clean
    assert git("count-objects", cwd=repo).startswith("0 objects")


def test_a_write_brings_all_refs_of_its_agent_back(space: clia.Space, repo: Path) -> None:
    put_away(space)
    cid = space.commit("scout", "finding", changes={"b": b"2"})
    assert rev(repo, "agents/scout") == cid
    scout = ["refs/clia/agents/scout", "refs/heads/agents/scout", "refs/notes/clia/trace/scout"]
    assert [ref for ref in refs_in(repo) if ref.endswith("scout")] == scout
    assert "$ scout" in git("notes", "--ref=clia/trace/scout", "show", "agents/scout~1", cwd=repo)
    assert git("reflog", "agents/scout", cwd=repo).count("\n") == 4  # spawn, commit, brought back, commit
    assert components(space).archiving.names() == ["critic", "helper"]
    space.restore("helper")
    assert "helper" in space.agents()
    assert put_away(space) == ["helper", "scout"]
    assert space.verify().clean


def test_work_of_archived_agents_can_be_merged_landed_and_spawned_from(space: clia.Space, repo: Path) -> None:
    put_away(space)
    assert isinstance(space.merge("critic", "scout"), clia.Merged)
    space.spawn_from("third", clia.Briefing("third"), "scout")
    space.land("scout", "main")
    assert git("status", "--porcelain", cwd=repo) == ""
    assert (repo / "scout.txt").exists()
    git("fsck", "--strict", cwd=repo)
    assert put_away(space, *space.agents(), "helper") == ["critic", "scout", "third"]
    git("-c", "gc.reflogExpire=now", "gc", "--quiet", "--prune=now", cwd=repo)
    assert space.verify().clean


def test_idle_agents_are_chosen_by_age_number_and_use(space: clia.Space, repo: Path, clock: Clock) -> None:
    archiving = components(space).archiving
    assert archiving.idle(RULES) == []
    clock.advance(RECENT)
    assert archiving.idle(RULES) == []
    assert archiving.idle(IdleRules(2)) == ["helper"]  # archived by its owner
    assert archiving.idle(IdleRules(1)) == ["helper", "scout"]
    clock.advance(7 * DAY)
    assert archiving.idle(IdleRules()) == []
    assert archiving.idle(RULES) == ["helper", "scout", "critic"]
    space.trace("scout", "console", "still here")
    git("switch", "-q", "agents/critic", cwd=repo)
    assert archiving.idle(RULES) == ["helper"]
    git("switch", "-q", "main", cwd=repo)
    space.sessions.ask("critic", {"question": "Go on?"})
    assert archiving.idle(RULES) == ["helper"]


def test_maintain_puts_idle_agents_away_unless_the_setting_is_off(space: clia.Space, repo: Path, clock: Clock) -> None:
    clock.advance(8 * DAY)
    assert space.maintain(dry_run=True).put_away == ()
    git("config", "clia.idleDays", "7", cwd=repo)
    assert space.maintain(dry_run=True).put_away == ("critic", "helper", "scout")
    assert components(space).archiving.names() == []
    git("config", "clia.archiveIdle", "false", cwd=repo)
    assert space.maintain().put_away == ()
    git("config", "--unset", "clia.archiveIdle", cwd=repo)
    assert space.maintain().put_away == ("critic", "helper", "scout")


def test_everything_can_be_brought_back_to_the_former_layout(space: clia.Space, repo: Path, clock: Clock) -> None:
    clock.advance(8 * DAY)
    git("config", "clia.idleDays", "7", cwd=repo)
    before, said = git("show-ref", cwd=repo), answers(space)
    space.maintain()
    assert space.local.unarchive_all() == ["critic", "helper", "scout"]
    assert git("show-ref", cwd=repo) == before
    assert not list((repo / ".git/objects/pack").glob("*.keep"))
    assert space.maintain().put_away == ()
    git("gc", "--quiet", "--prune=now", cwd=repo)
    assert answers(space) == said
    assert space.verify().clean


@pytest.mark.parametrize("upkeep", ["maintain", "background", "archive", "restore"])
def test_upkeep_renames_the_refs_of_this_clone_that_earlier_versions_have_below_refs_clia(
    space: clia.Space, repo: Path, upkeep: str
) -> None:
    put_away(space, "scout")
    before = {ref: rev(repo, ref) for ref in OWN_REFS}
    for ref, cid in before.items():
        git("update-ref", ref.replace("-local", ""), cid, cwd=repo)
        git("update-ref", "-d", ref, cwd=repo)
    with clia.open(repo, settings=clia.Settings(durable=False)) as reopened:
        assert reopened.doctor() == [], "the former name is read"
        if upkeep == "maintain":
            reopened.maintain()
        elif upkeep == "background":
            assert reopened.local.upkeep()
        elif upkeep == "archive":
            put_away(reopened, "critic")
            reopened.maintain()
        else:
            reopened.local.unarchive_all()
            reopened.maintain()
        assert reopened.doctor() == []
        reopened.trace("scout", "console", "on")
    present = [ref for ref in refs_in(repo) if ref.startswith(OWN_REFS) or ref in ("refs/clia/bases", "refs/clia/store")]
    assert present == ([OWN_REFS[1]] if upkeep == "restore" else list(OWN_REFS))
    assert rev(repo, OWN_REFS[1]) == before[OWN_REFS[1]]
    git("commit", "--amend", "-qm", "other", cwd=repo)
    git("-c", "gc.reflogExpire=now", "gc", "--quiet", "--prune=now", cwd=repo)
    with clia.open(repo, settings=clia.Settings(durable=False)) as reopened:
        assert reopened.verify().clean


def test_the_bases_of_an_earlier_and_of_this_version_are_kept(space: clia.Space, repo: Path) -> None:
    """The earlier version archived agents again."""
    put_away(space, "scout")
    git("commit", "--allow-empty", "-qm", "more", cwd=repo)
    former = git("commit-tree", "-m", "bases", "-p", "HEAD", "HEAD^{tree}", cwd=repo).strip()
    git("update-ref", "refs/clia/bases", former, cwd=repo)
    space.maintain()
    assert "refs/clia/bases" in refs_in(repo)
    put_away(space, "critic")
    assert "refs/clia/bases" not in refs_in(repo)
    assert rev(repo, "HEAD") in git("rev-list", OWN_REFS[0], cwd=repo).split()
    space.local.unarchive_all()
    assert OWN_REFS[0] not in refs_in(repo)


def test_a_branch_that_a_person_creates_with_the_name_counts_and_the_archived_value_is_kept(space: clia.Space, repo: Path) -> None:
    head = rev(repo, "agents/scout")
    put_away(space)
    git("branch", "agents/scout", "main", cwd=repo)
    assert space.head("scout") == rev(repo, "main")
    components(space).core.refs.move("refs/heads/agents/scout", rev(repo, "main"), rev(repo, "main"), "test")
    assert archived_git(repo, "rev-parse", f"refs/superseded/heads/agents/scout/{head}") == head


def test_a_ref_is_not_brought_back_while_it_is_put_away(space: clia.Space, repo: Path) -> None:
    """Both repositories have it at that moment: its lock decides which one loses it."""
    refs = components(space).git.refs
    before = refs.under("refs/heads/agents/")
    refusals = []

    def bring_back(step: str) -> None:
        if step == "refs-archived":
            with pytest.raises(OSError, match="exist") as caught:
                refs.bring_back(refs.archive.among(["refs/heads/agents/scout"]))
            refusals.append(caught.value)

    with clia.open(repo, settings=clia.Settings(durable=False, reached=bring_back)) as other:
        assert put_away(other) == ["critic", "helper", "scout"]
    assert len(refusals) == 1
    assert refs.under("refs/heads/agents/") == before
    assert refs.present("refs/heads/agents/scout") is None


def test_a_purge_reaches_archived_traces(space: clia.Space, repo: Path) -> None:
    put_away(space)
    space.trace_purge("scout", "$ scout")
    assert b"$ scout" not in all_recorded_bytes(repo)
    assert b"$ critic" in all_recorded_bytes(repo)
    put_away(space)
    assert b"$ scout" not in all_recorded_bytes(repo)
    assert space.verify().clean


def test_archived_agents_can_be_published(space: clia.Space, repo: Path, tmp_path: Path) -> None:
    git("init", "-q", "--bare", "hub.git", cwd=tmp_path)
    git("remote", "add", "origin", str(tmp_path / "hub.git"), cwd=repo)
    heads = {name: rev(repo, f"agents/{name}") for name in ("scout", "critic")}
    put_away(space)
    assert {pushed.state for pushed in space.publish(["scout", "critic", "helper"])} == {"new"}
    assert {name: rev(tmp_path / "hub.git", f"refs/clia/agents-published/{name}") for name in heads} == heads


def test_small_packs_are_joined_when_there_are_many_and_large_ones_stay(
    space: clia.Space, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packs, joined = repo / ".git/objects/pack", components(space).archiving.join_packs
    space.spawn_at("painter", clia.Briefing("painter"), "main")
    space.commit("painter", "finding", changes={f"{number}.txt": b"%d" % number for number in range(200)})
    put_away(space, "painter")
    (large,) = packs.glob("*.keep")
    before = answers(space)
    for name in ("scout", "critic", "helper"):
        put_away(space, name)
    monkeypatch.setattr(archive, "FEW", 3)
    joined()
    assert len(list(packs.glob("*.keep"))) == 4, "three small packs are few"
    monkeypatch.setattr(archive, "FEW", 2)
    joined()
    assert len(list(packs.glob("*.keep"))) == 2
    assert large.exists()
    joined()
    assert len(list(packs.glob("*.keep"))) == 2
    git("gc", "--quiet", "--prune=now", cwd=repo)
    assert answers(space) == before
    assert space.verify().clean
    assert len(git("fsck", "--connectivity-only", cwd=repo).splitlines()) == 2, "one dangling commit for each pack"
    space.maintain()
    assert len(list(packs.glob("*.keep"))) == 1
    assert answers(space) == before
    assert space.verify().clean
    assert len(git("fsck", "--connectivity-only", cwd=repo).splitlines()) == 1


def test_a_moved_repository_keeps_its_archive(space: clia.Space, repo: Path, clock: Clock) -> None:
    put_away(space)
    head = space.head("scout")
    space.close()
    shutil.move(repo, repo.parent / "moved")
    assert archived_git(repo.parent / "moved", "rev-parse", "agents/scout") == head
    with clia.open(repo.parent / "moved", settings=clia.Settings(durable=False, clock=clock)) as moved:
        assert moved.head("scout") == head
        assert moved.verify().clean


def test_verify_finds_archived_objects_that_are_missing(space: clia.Space, repo: Path) -> None:
    put_away(space)
    (pack,) = (path.with_suffix(".pack") for path in (repo / ".git/objects/pack").glob("*.keep"))
    for end in (".pack", ".idx", ".rev", ".keep"):
        pack.with_suffix(end).unlink(missing_ok=True)
    assert not space.verify().clean


def test_upkeep_starts_in_the_background_after_many_moves_but_not_again_at_once(
    space: clia.Space, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(opening, "MOVES", 64)
    monkeypatch.setattr(subprocess, "run", lambda words, **_: started.append(words))
    count_move = components(space).git.refs.counted
    background_upkeep.begin(str(repo / ".git/clia"))
    for _ in range(64):
        count_move()
    assert started == []  # upkeep ran just now
    (repo / ".git/clia/moves.done").unlink()
    for _ in range(64):
        count_move()
    monkeypatch.undo()
    (words,) = started
    subprocess.run(words[4:], check=True)  # without the shell, which does not wait
    assert words[-1] == str(repo)
    assert (repo / ".git/clia/moves.done").exists()


def test_a_space_counts_moves_unless_the_setting_is_off(space: clia.Space, repo: Path) -> None:
    background_upkeep.begin(str(repo / ".git/clia"))
    space.commit("scout", "finding", changes={"b": b"2"})
    assert (repo / ".git/clia/moves").stat().st_size == 1
    put_away(space, "scout")
    background_upkeep.begin(str(repo / ".git/clia"))
    space.commit("scout", "finding", changes={"b": b"3"})
    assert (repo / ".git/clia/moves").stat().st_size == 1, "one ref moves; those that come back are packed refs"
    git("config", "clia.upkeep", "false", cwd=repo)
    with clia.open(repo) as reopened:
        reopened.commit("scout", "finding", changes={"b": b"4"})
    assert (repo / ".git/clia/moves").stat().st_size == 1


def test_background_upkeep_packs_refs_and_loose_objects(space: clia.Space, repo: Path) -> None:
    git("branch", "mine", cwd=repo)
    space.commit("scout", "finding", changes={"n": b"1"})
    objects = components(space).core.objects
    for number in range(MANY_LOOSE):
        objects.write_blob(b"%d" % number)
    before = answers(space)
    git("config", "clia.idleDays", "1", cwd=repo)
    background_upkeep.run(str(repo))
    assert sorted(path.name for path in (repo / ".git/refs").rglob("*") if path.is_file()) == ["main", "mine"]
    directories = [path.relative_to(repo / ".git/refs") for path in (repo / ".git/refs").rglob("*") if path.is_dir()]
    assert sorted(map(str, directories)) == ["heads", "notes", "tags"], "git lists every directory"
    assert git("count-objects", cwd=repo).startswith("0 objects")
    assert answers(space) == before
    assert space.verify().clean


def test_a_full_disk_is_an_error_that_names_the_archive_repository(space: clia.Space) -> None:
    before = answers(space)
    put_away(space, "critic")
    with no_file_beyond(0):
        error = refused("git-error", lambda: put_away(space, "scout"))
        refused("git-error", space.local.unarchive_all)
    assert error.message.startswith("cannot write to the archive repository: ")
    assert answers(space) == before
    assert put_away(space) == ["helper", "scout"]


def test_an_agent_that_moved_and_was_put_away_meanwhile_keeps_its_newest_commit(space: clia.Space, repo: Path) -> None:
    """Upkeep was stopped after it had read the refs, and continues later."""
    commits: list[str] = []

    def work(step: str) -> None:
        if step == "objects-kept" and not commits:
            with clia.open(repo, settings=clia.Settings(durable=False, person=("Tess", "tess@example.org"))) as other:
                commits.append(other.commit("scout", "finding", changes={"b": b"2"}))
                assert put_away(other, "scout") == ["scout"]

    with clia.open(repo, settings=clia.Settings(durable=False, person=("Tess", "tess@example.org"), reached=work)) as stopped:
        assert put_away(stopped, "scout") == ["scout"]
    assert space.head("scout") == commits[0] == archived_git(repo, "rev-parse", "agents/scout")
    assert not archived_git(repo, "for-each-ref", "refs/superseded")
    assert space.verify().clean


def test_putting_away_waits_for_a_writer_that_brings_an_agent_back(space: clia.Space, monkeypatch: pytest.MonkeyPatch) -> None:
    put_away(space, "helper")
    lock = Path(components(space).git.refs.archive.lock)
    lock.touch()
    monkeypatch.setattr(refs, "time", SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: lock.unlink()))
    assert put_away(space, "scout") == ["scout"]


def test_refs_are_moved_and_packed_after_another_process_that_holds_the_packed_refs(
    space: clia.Space, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git("pack-refs", "--all", cwd=repo)
    git_refs, lock = components(space).git.refs, repo / ".git/packed-refs.lock"
    monkeypatch.setattr(ref_files, "time", SimpleNamespace(**vars(time) | {"sleep": lambda _: lock.unlink()}))
    lock.touch()
    assert put_away(space, "scout") == ["scout"]
    lock.touch()
    assert components(space).archiving.bring_back() == ["scout"]
    git("pack-refs", "--all", cwd=repo)
    space.commit("scout", "finding", changes={"b": b"2"})
    lock.touch()
    assert git_refs.pack() > 0
    assert space.verify().clean


def test_a_lost_commit_of_an_agent_that_is_put_away_is_still_a_finding(space: clia.Space, repo: Path) -> None:
    lost = space.commit("scout", "finding", changes={"b": b"2"})
    git("branch", "--force", "agents/scout", f"{lost}~1", cwd=repo)
    before = [(finding.code, finding.ref, finding.cid) for finding in space.verify().findings]
    assert before == [("ref-rewound", "refs/heads/agents/scout", lost)]
    put_away(space, "scout")
    assert [(finding.code, finding.ref, finding.cid) for finding in space.verify().findings] == before


def test_refs_that_another_git_locks_during_upkeep_are_a_clean_error(space: clia.Space, repo: Path) -> None:
    lock = repo / ".git/packed-refs.lock"
    lock.touch()
    refused("git-error", space.local.upkeep)
    lock.unlink()
    assert space.local.upkeep()

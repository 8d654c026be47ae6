from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

import pytest

import clia
from clia.facade.backup import check_backup
from clia.facade.restore import restore
from clia.testing import components
from support import git, postgres
from support.backups import backed_up, check_sound, exposed, restored, state_of
from support.joined_spaces import joined
from support.session_flows import APPROVAL, TALK
from support.session_spaces import with_agents
from support.space_driver import postgres_url
from support.spaces import BRIEFING, commit_with_trace, refused, settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def busy(space: clia.Space, repo: Path) -> clia.Space:
    """A space with files of people, a bound and a pending trace, a live session, an open question and a relation."""
    git("config", "user.name", "Tess", cwd=repo)
    git("config", "user.email", "tess@example.org", cwd=repo)
    (repo / "stock.txt").write_text("apples\n")
    git("add", ".", cwd=repo)
    git("commit", "-m", "Stock", cwd=repo)
    with_agents(space, "scout", "judge", "asker", approval=APPROVAL, talk=TALK)
    commit_with_trace(space, "bound", **{"a.txt": b"a"})
    space.trace("scout", "console", "pending")
    space.relate("scout", "reviews", "judge")
    space.start("judge", "talk", None)
    space.decide("judge", "one")
    space.ask("asker", {"question": "May I?"})
    return space


@pytest.fixture
def backup(busy: clia.Space, tmp_path: Path) -> Path:
    """A backup of that space."""
    busy.local.back_up(str(tmp_path / "backup"))
    return tmp_path / "backup"


def put_away(space: clia.Space, *agents: str) -> None:
    assert components(space).archiving.put_away(agents) == sorted(agents)


class TestRestoring:
    def test_the_restored_space_has_everything_and_continues(self, busy: clia.Space, backup: Path, tmp_path: Path) -> None:
        place = restored(backup, tmp_path / "copy")
        assert (place.root / "stock.txt").read_text() == "apples\n"
        assert git("status", "--porcelain", cwd=place.root) == ""
        with place.open() as space:
            assert state_of(space) == state_of(busy)
            assert [request.kind for request in space.session("judge").pending] == ["human"]
            space.decide("judge", "two")
            assert space.session("judge").result == ["one", "two"]
            space.decide("asker", "yes")
            assert space.commit_with_trace("scout", "finding", changes={"b.txt": b"b"})
            check_sound(space)

    def test_the_copy_and_the_original_are_told_apart(self, busy: clia.Space, backup: Path, tmp_path: Path, repo: Path) -> None:
        copy = restored(backup, tmp_path / "copy")
        subjects = git("log", "--format=%s", "refs/clia-local/store", cwd=copy.root).splitlines()
        assert subjects[0].startswith("store epoch 2: restored from the backup of ")
        busy.trace("scout", "console", "later")
        busy.close()
        for source, target, code in ((repo, copy.root, "store-older"), (copy.root, repo, "store-other")):
            swapped = tmp_path / f"with-store-{code}"
            shutil.copytree(target, swapped, symlinks=True)
            shutil.copy(source / ".git/clia/space.db", swapped / ".git/clia/space.db")
            with clia.open(swapped, settings=settings()) as space:
                refused(code, lambda opened=space: opened.trace("scout", "console", "x"))  # type: ignore[misc]

    def test_a_backup_of_a_copy_is_one_like_any_other(self, backup: Path, tmp_path: Path) -> None:
        first = restored(backup, tmp_path / "first")
        backed_up(first.root, tmp_path / "second-backup")
        with first.open() as one, restored(tmp_path / "second-backup", tmp_path / "second").open() as two:
            assert state_of(one) == state_of(two)

    def test_idle_agents_are_put_away_again(self, busy: clia.Space, tmp_path: Path) -> None:
        put_away(busy, "scout")
        busy.local.back_up(str(tmp_path / "backup"))
        with restored(tmp_path / "backup", tmp_path / "copy").open() as space:
            parts = components(space)
            assert parts.git.refs.present("refs/heads/agents/scout") is None
            assert space.head("scout") == busy.head("scout")
            git("gc", "--quiet", "--prune=now", cwd=tmp_path / "copy")
            check_sound(space)

    def test_a_value_that_the_archive_repository_alone_has_is_kept(self, busy: clia.Space, tmp_path: Path) -> None:
        head, ref = busy.head("scout"), "refs/heads/agents/scout"
        put_away(busy, "scout")
        other = git("commit-tree", "-m", "Other", f"{head}^{{tree}}", cwd=components(busy).options.place).strip()
        git("update-ref", ref, other, cwd=components(busy).options.place)
        busy.local.back_up(str(tmp_path / "backup"))
        refs = git("for-each-ref", "--format=%(refname) %(objectname)", cwd=tmp_path / "backup/git").splitlines()
        assert {f"{ref} {other}", f"refs/superseded/heads/agents/scout/{head} {head}"} <= set(refs)

    def test_keys_hook_events_settings_hooks_stash_and_tags_are_restored(
        self, busy: clia.Space, repo: Path, tmp_path: Path
    ) -> None:
        key = busy.peers.key()
        home = repo / ".git/clia"
        (home / "config.toml").write_text("[flows]\nturn_seconds = 7\n")
        (home / "spool/new").mkdir(parents=True)
        (home / "spool/tmp").mkdir()
        (home / "spool/new/event").write_bytes(b"clia-hook 1\n")
        (home / "spool/tmp/half").write_bytes(b"clia")
        (repo / ".git/hooks/post-commit").write_text("#!/bin/sh\n")
        (repo / ".git/hooks/post-commit").chmod(0o755)
        git("config", "alias.st", "status", cwd=repo)
        git("tag", "--annotate", "--message=One", "v1", cwd=repo)
        (repo / "stock.txt").write_text("pears\n")
        git("stash", cwd=repo)
        git("checkout", "--quiet", "--detach", cwd=repo)
        busy.local.back_up(str(tmp_path / "backup"))
        copy = restored(tmp_path / "backup", tmp_path / "copy")
        assert (copy.root / ".git/clia/config.toml").read_text() == "[flows]\nturn_seconds = 7\n"
        assert [path.name for path in (copy.root / ".git/clia/spool").rglob("*") if path.is_file()] == ["event"]
        assert os.access(copy.root / ".git/hooks/post-commit", os.X_OK)
        for words in (["config", "alias.st"], ["rev-parse", "v1^{}", "HEAD", "stash@{0}"], ["stash", "list"], ["describe"]):
            assert git(*words, cwd=copy.root) == git(*words, cwd=repo)
        assert not exposed(copy.root / ".git/clia")
        with copy.open() as space:
            assert space.peers.key() == key
            assert space.local.config.flows.turn_seconds == 7

    def test_a_bare_repository_is_restored_as_one(self, busy: clia.Space, backup: Path, tmp_path: Path, repo: Path) -> None:
        first = restored(backup, tmp_path / "first").root
        bare = tmp_path / "space.git"
        shutil.move(first / ".git", bare)
        git("config", "core.bare", "true", cwd=bare)
        backed_up(bare, tmp_path / "second-backup")
        with restored(tmp_path / "second-backup", tmp_path / "second.git").open() as space:
            assert space.head("scout") == busy.head("scout")
            assert (tmp_path / "second.git/HEAD").exists()

    def test_a_shallow_clone_stays_one(self, repo: Path, busy: clia.Space, tmp_path: Path) -> None:
        git("commit", "--allow-empty", "-m", "Two", cwd=repo)
        git("clone", "--quiet", "--depth=1", f"file://{repo}", str(tmp_path / "shallow"), cwd=tmp_path)
        clia.init(tmp_path / "shallow", settings=settings()).close()
        backed_up(tmp_path / "shallow", tmp_path / "backup")
        copy = restored(tmp_path / "backup", tmp_path / "copy")
        assert git("rev-parse", "--is-shallow-repository", cwd=copy.root) == "true\n"

    def test_a_partial_clone_stays_one(self, repo: Path, busy: clia.Space, tmp_path: Path) -> None:
        git("config", "uploadpack.allowFilter", "true", cwd=repo)
        (repo / "stock.txt").write_text("pears\n")
        git("commit", "--all", "-m", "Two", cwd=repo)
        git("clone", "--quiet", "--filter=blob:none", f"file://{repo}", str(tmp_path / "partial"), cwd=tmp_path)
        with clia.init(tmp_path / "partial", settings=settings()) as space:
            before = [ailment.message for ailment in space.doctor()]  # of a checkpoint that the clone lacks
        backed_up(tmp_path / "partial", tmp_path / "backup")
        restore(str(tmp_path / "backup"), str(tmp_path / "copy"), settings())
        with clia.open(tmp_path / "copy", settings=settings()) as space:
            assert [ailment.message for ailment in space.doctor()] == before
            assert space.verify().clean
        assert git("rev-list", "--objects", "--missing=print", "main", cwd=tmp_path / "copy").count("?") == 1
        assert git("show", "main~1:stock.txt", cwd=tmp_path / "copy") == "apples\n"  # fetched from the origin


class TestPlaces:
    def test_a_used_directory_is_refused(self, busy: clia.Space, tmp_path: Path) -> None:
        (tmp_path / "used").mkdir()
        (tmp_path / "used/file").touch()
        refused("not-empty", lambda: busy.local.back_up(str(tmp_path / "used")))
        refused("not-empty", lambda: busy.local.back_up(str(tmp_path / "used/file")))
        assert os.listdir(tmp_path / "used") == ["file"]

    @pytest.mark.parametrize("place", ["backup", ".git/backup"])
    def test_a_directory_inside_the_repository_is_refused(self, busy: clia.Space, repo: Path, place: str) -> None:
        refused("backup-inside", lambda: busy.local.back_up(str(repo / place)))
        assert not (repo / place).exists()

    def test_an_existing_space_is_replaced_only_if_asked(self, busy: clia.Space, backup: Path, repo: Path) -> None:
        (repo / "stock.txt").write_text("pears\n")
        busy.commit("scout", "finding", changes={"later.txt": b"later"})
        later = busy.head("scout")
        busy.close()
        refused("space-exists", lambda: restore(str(backup), str(repo), settings()))
        place = restored(backup, repo, replace=True)
        assert (repo / "stock.txt").read_text() == "pears\n"
        assert git("status", "--porcelain", cwd=repo) == " M stock.txt\n"
        with place.open() as space:
            assert space.head("scout") != later
        assert place.result.replaced == str(repo / ".git/replaced")
        with clia.open(repo, settings=settings()) as space:
            assert space.local.store_problem() is None
        assert later in git("--git-dir", str(repo / ".git/replaced"), "rev-parse", "agents/scout", cwd=repo)

    def test_a_new_clone_is_replaced_unless_a_commit_would_be_lost(
        self, busy: clia.Space, backup: Path, repo: Path, tmp_path: Path
    ) -> None:
        clone = tmp_path / "clone"
        git("clone", "--quiet", "--branch=main", "--single-branch", str(repo), str(clone), cwd=tmp_path)
        git("commit", "--allow-empty", "-m", "Of the clone alone", cwd=clone)
        refused("commits-in-the-way", lambda: restore(str(backup), str(clone), settings()))
        git("reset", "--quiet", "--hard", "HEAD~1", cwd=clone)
        with restored(backup, clone).open() as space:
            assert state_of(space) == state_of(busy)

    def test_an_exchange_that_was_killed_is_finished_or_undone(self, backup: Path, tmp_path: Path) -> None:
        first = restored(backup, tmp_path / "first").root
        (first / ".git").rename(first / ".git-new")
        (first / ".git-new/replaced").mkdir()
        refused("space-exists", lambda: restore(str(backup), str(first), settings()))
        second = restored(backup, tmp_path / "second").root
        shutil.copytree(second / ".git", second / ".git-new")
        restored(backup, second, replace=True)
        assert not (second / ".git-new").exists()


class TestChecking:
    def test_a_backup_is_private_and_whole(self, backup: Path) -> None:
        assert not exposed(backup)
        report = check_backup(str(backup))
        assert report.agents == 3
        assert report.bytes == sum(path.stat().st_size for path in backup.rglob("*") if path.is_file()) - (
            (backup / "manifest.json").stat().st_size
        )

    def test_stock_git_reads_it(self, busy: clia.Space, backup: Path) -> None:
        assert git("rev-parse", "agents/scout", cwd=backup / "git").strip() == busy.head("scout")
        git("fsck", "--strict", cwd=backup / "git")

    def test_any_change_of_a_file_is_found(self, backup: Path, tmp_path: Path) -> None:
        for path in sorted(path for path in backup.rglob("*") if path.is_file() and path.stat().st_size):
            content = path.read_bytes()
            path.write_bytes(content[:-1])
            refused("backup-damaged", lambda: check_backup(str(backup)))
            path.unlink()
            missing = "not-a-backup" if path.name == "manifest.json" else "backup-damaged"
            refused(missing, lambda: restore(str(backup), str(tmp_path / "copy"), settings()))
            path.write_bytes(content)
        (backup / "git/more").touch()
        refused("backup-damaged", lambda: check_backup(str(backup)))
        assert not (tmp_path / "copy").exists()

    @pytest.mark.parametrize("damage", ["pack", "store"])
    def test_damage_before_the_digests_were_taken_is_found(self, backup: Path, damage: str) -> None:
        target = next((backup / "git/objects/pack").glob("*.pack")) if damage == "pack" else backup / "store.db"
        content = bytearray(target.read_bytes())
        content[len(content) // 2 :] = bytes(len(content) - len(content) // 2)
        target.write_bytes(content)
        _take_digests_again(backup)
        refused("backup-damaged", lambda: check_backup(str(backup)))

    def test_a_backup_of_a_newer_version_is_refused(self, backup: Path) -> None:
        manifest = json.loads((backup / "manifest.json").read_text())
        (backup / "manifest.json").write_text(json.dumps(manifest | {"format": 2}))
        refused("unsupported-backup", lambda: check_backup(str(backup)))

    def test_a_lost_store_is_not_backed_up(self, busy: clia.Space, repo: Path, tmp_path: Path) -> None:
        busy.close()
        for path in (repo / ".git/clia").glob("space.db*"):
            path.unlink()
        refused("store-lost", lambda: backed_up(repo, tmp_path / "backup"))
        assert not (tmp_path / "backup").exists()

    def test_a_missing_object_is_an_error_that_leaves_nothing(self, busy: clia.Space, repo: Path, tmp_path: Path) -> None:
        blob = git("rev-parse", "agents/scout:a.txt", cwd=repo).strip()
        (repo / ".git/objects" / blob[:2] / blob[2:]).unlink()
        with pytest.raises(clia.errors.GitError):
            busy.local.back_up(str(tmp_path / "backups/backup"))
        assert os.listdir(tmp_path / "backups") == []


class TestTheMoment:
    """What moves while a backup is made is in it completely, or not at all."""

    def test_refs_that_always_move_are_waited_for(self, busy: clia.Space, repo: Path, tmp_path: Path) -> None:
        with clia.open(repo, settings=settings()) as other:
            call_when(busy, "refs-read", lambda number: other.commit("scout", "finding", changes={f"{number}.txt": b"x"}))
            busy.local.back_up(str(tmp_path / "backup"))
            with restored(tmp_path / "backup", tmp_path / "copy").open() as space:
                assert space.head("scout") == other.head("scout")
                assert "2.txt" in space.files("scout")

    def test_a_change_between_the_store_and_git_is_noticed(self, busy: clia.Space, repo: Path, tmp_path: Path) -> None:
        with clia.open(repo, settings=settings()) as other:
            call_when(busy, "view-begun", lambda number: other.decide("judge", "two") if number == 0 else None)
            busy.local.back_up(str(tmp_path / "backup"))
            with restored(tmp_path / "backup", tmp_path / "copy").open() as space:
                assert state_of(space) == state_of(other)
                assert space.session("judge").result == ["one", "two"]

    def test_what_happens_after_the_moment_is_not_in_it(self, busy: clia.Space, repo: Path, tmp_path: Path) -> None:
        before = state_of(busy)
        with clia.open(repo, settings=settings()) as other:

            def work(_: int) -> None:
                commit_with_trace(other, "later", **{"later.txt": b"later"})
                other.decide("judge", "two")
                other.spawn("late", BRIEFING)
                git("commit", "--allow-empty", "-m", "Late", cwd=repo)
                git("gc", "--quiet", cwd=repo)

            call_when(busy, "state-fixed", work)
            busy.local.back_up(str(tmp_path / "backup"))
        with restored(tmp_path / "backup", tmp_path / "copy").open() as space:
            assert state_of(space) == before
            assert "Late" not in git("reflog", "main", cwd=tmp_path / "copy")


class TestManyMachines:
    def test_a_backup_has_the_work_of_other_machines(self, tmp_path: Path, store: str) -> None:
        hub = joined(tmp_path.resolve(), store)
        with (
            clia.open(tmp_path / "repo", settings=settings(store=store)) as first,
            clia.init(tmp_path / "other", settings=settings(store=store), hub=hub) as second,
        ):
            with_agents(second, "scout", talk=TALK)
            second.start("scout", "talk", None)
            second.decide("scout", "one")
            first.local.back_up(str(tmp_path / "backup"))
            refused("store-required", lambda: restore(str(tmp_path / "backup"), str(tmp_path / "copy"), settings()))
            url = postgres_url(postgres.fresh())
            with restored(tmp_path / "backup", tmp_path / "copy", url).open() as space:
                assert space.head("scout") == second.head("scout")
                space.decide("scout", "two")
                assert space.session("scout").result == ["one", "two"]

    def test_what_other_machines_do_meanwhile_is_noticed(self, tmp_path: Path, store: str) -> None:
        hub = joined(tmp_path.resolve(), store)
        with (
            clia.open(tmp_path / "repo", settings=settings(store=store)) as first,
            clia.init(tmp_path / "other", settings=settings(store=store), hub=hub) as second,
        ):
            with_agents(second, "scout", talk=TALK)
            second.start("scout", "talk", None)
            call_when(first, "view-begun", lambda number: second.decide("scout", f"{number}") if number < 2 else None)
            first.local.back_up(str(tmp_path / "backup"))
            with restored(tmp_path / "backup", tmp_path / "copy", postgres_url(postgres.fresh())).open() as space:
                assert space.head("scout") == second.head("scout")
                assert space.session("scout").result == ["0", "1"]


def call_when(space: clia.Space, step: str, change: Callable[[int], object]) -> None:
    """Call a function each time that the backup reaches a step."""
    counts = iter(range(100))

    def reached(at: str) -> None:
        if at == step:
            change(next(counts))

    components(space).core = components(space).core._replace(reached=reached)


def _take_digests_again(backup: Path) -> None:
    import hashlib

    manifest = json.loads((backup / "manifest.json").read_text())
    for name in manifest["files"]:
        content = (backup / name).read_bytes()
        manifest["files"][name] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (backup / "manifest.json").write_text(json.dumps(manifest))

"""Signing of commits: every commit of a new space, by the machine; never silently unsigned."""

from __future__ import annotations

import os
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest

import clia
from clia import testing
from clia.errors import CliaError
from clia.testing import Crash, ScriptedEffect, Settings, crash_at
from clia.trust.ssh_format import private_key_file
from clia.trust.ssh_signatures import signer_of
from support.forge_server import eventually

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = Settings(person=("Ada", "ada@example.org"), durable=False)


def git(directory: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=directory, check=True, capture_output=True, text=True).stdout


def commits_of(directory: Path) -> list[str]:
    return git(directory, "rev-list", "--all").split()


def unsigned(directory: Path) -> list[str]:
    return [
        cid for cid in commits_of(directory) if "\ngpgsig -----BEGIN SSH SIGNATURE" not in git(directory, "cat-file", "commit", cid)
    ]


def work(space: clia.Space) -> None:
    space.spawn("scout", clia.Briefing("look"))
    space.trace("scout", "note", "looked")
    space.commit_with_trace("scout", "finding", changes={"a.txt": b"a\n"})
    space.register_type("sketch", "agent-commit")
    space.relate("scout", "reviews", "scout")
    space.ask("scout", {"question": "go?"})
    space.decide("scout", "yes")


def key_path(directory: Path) -> Path:
    return directory / ".git/clia/signing/machine"


def test_every_commit_of_a_new_space_is_signed(tmp_path: Path) -> None:
    with clia.init(tmp_path, settings=SETTINGS) as space:
        work(space)
    assert len(commits_of(tmp_path)) > 8
    assert unsigned(tmp_path) == []
    assert key_path(tmp_path).stat().st_mode & 0o777 == 0o600


def test_a_space_of_an_earlier_version_continues_unsigned(tmp_path: Path) -> None:
    clia.init(tmp_path, settings=SETTINGS).close()
    git(tmp_path, "update-ref", "-d", "refs/clia/keys")
    key_path(tmp_path).unlink()
    before = set(commits_of(tmp_path))
    with clia.open(tmp_path, settings=SETTINGS) as space:
        work(space)
    assert set(unsigned(tmp_path)) >= set(commits_of(tmp_path)) - before
    assert not key_path(tmp_path).exists()


def test_a_missing_key_stops_every_commit_and_loses_nothing(tmp_path: Path) -> None:
    with clia.init(tmp_path, settings=SETTINGS) as space:
        space.spawn("scout", clia.Briefing("look"))
        space.trace("scout", "note", "before")
        head = space.head("scout")
        key = key_path(tmp_path).read_bytes()
        key_path(tmp_path).unlink()
        with pytest.raises(CliaError) as refused:
            space.commit("scout", "finding", changes={"a.txt": b"a\n"})
        assert refused.value.code == "no-signing-key"
        assert str(key_path(tmp_path)) in refused.value.message
        space.trace("scout", "note", "kept")
        assert space.head("scout") == head
        key_path(tmp_path).write_bytes(key)
        key_path(tmp_path).chmod(0o600)
        space.commit_with_trace("scout", "finding", changes={"a.txt": b"a\n"})
    assert unsigned(tmp_path) == []


@pytest.mark.parametrize(
    ("content", "mode", "code"),
    [("damaged", 0o600, "signing-key-unreadable"), (None, 0o644, "key-exposed"), ("locked", 0o600, "signing-key-locked")],
)
def test_a_key_that_cannot_be_used_is_an_error_that_names_its_file(
    tmp_path: Path, content: str | None, mode: int, code: str
) -> None:
    with clia.init(tmp_path, settings=SETTINGS) as space:
        space.spawn("scout", clia.Briefing("look"))
        path = key_path(tmp_path)
        if content == "locked":
            subprocess.run(["ssh-keygen", "-q", "-p", "-N", "secret", "-f", str(path)], check=True)
        elif content is not None:
            path.write_text(content)
        path.chmod(mode)
        with pytest.raises(CliaError) as refused:
            space.commit("scout", "finding", changes={"a.txt": b"a\n"})
    assert (refused.value.code, refused.value.fields["path"]) == (code, str(path))


def test_the_key_may_be_elsewhere_or_behind_a_command(tmp_path: Path) -> None:
    seed, root = b"\7" * 32, tmp_path / "project"
    public = signer_of(seed).public
    path = tmp_path / "key"
    path.write_text(private_key_file(seed, public.blob[-32:], ""))
    path.chmod(0o600)
    (tmp_path / "key.pub").write_text(public.text)
    git(tmp_path, "init", "--quiet", str(root))
    git(root, "config", "clia.signingKey", str(path))
    with clia.init(root, settings=SETTINGS) as space:
        space.spawn("scout", clia.Briefing("look"))
        git(root, "config", "--unset", "clia.signingKey")
        git(root, "config", "clia.signingCommand", f"ssh-keygen -q -Y sign -n git -f {path}")
    with clia.open(root, settings=SETTINGS) as space:
        space.commit("scout", "finding", changes={"a.txt": b"a\n"})
        assert not key_path(root).exists()
        (tmp_path / "allowed").write_text(f"* {public.text}\n")
        git(root, "-c", f"gpg.ssh.allowedSignersFile={tmp_path / 'allowed'}", "verify-commit", *commits_of(root))
        git(root, "config", "clia.signingCommand", "false")
        with pytest.raises(CliaError) as refused:
            clia.open(root, settings=SETTINGS).commit("scout", "finding", changes={"b.txt": b"b\n"})
    assert refused.value.code == "signing-command-failed"


def test_an_init_that_dies_after_it_started_the_chain_is_finished_by_the_next(tmp_path: Path) -> None:
    with pytest.raises(Crash):
        clia.init(tmp_path, settings=SETTINGS._replace(reached=crash_at("keys-started")))
    with clia.init(tmp_path, settings=SETTINGS) as space:
        work(space)
        assert f'"space":"{space.id}"' in git(tmp_path, "log", "-1", "--format=%B", "refs/clia/keys")
    assert unsigned(tmp_path) == []


def test_a_clone_gets_a_key_of_its_own(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    with clia.init(one, settings=SETTINGS) as space:
        work(space)
    git(tmp_path, "clone", "--quiet", "--bare", str(one), "hub")
    git(one, "push", "--quiet", str(tmp_path / "hub"), "refs/*:refs/*")
    git(tmp_path, "clone", "--quiet", str(tmp_path / "hub"), "two")
    with clia.init(two, settings=SETTINGS) as clone:
        clone.spawn("rover", clia.Briefing("look"))
    assert unsigned(two) == []
    assert key_path(two).read_bytes() != key_path(one).read_bytes()


@pytest.mark.skipif(os.name != "posix", reason="file modes")
def test_a_process_that_creates_the_key_at_the_same_time_gets_the_same_one(tmp_path: Path) -> None:
    from clia.trust.machine_keys import read_key, write_key

    path = str(tmp_path / "signing" / "machine")
    write_key(path, b"\1" * 32)
    write_key(path, b"\2" * 32)
    assert read_key(path).public == signer_of(b"\1" * 32).public
    assert os.listdir(tmp_path / "signing") == ["machine"]


def test_a_worker_waits_while_the_key_is_missing_and_then_continues(tmp_path: Path) -> None:
    source = "def main(input):\n    return request('llm', {'prompt': 'hello'})\n"
    with clia.init(tmp_path, settings=SETTINGS) as space:
        space.spawn("scout", clia.Briefing("look"))
        space.define("talk", source)
        session = space.start("scout", "talk")
        assert space.trust.signing() == (True, None, None, (), True)
        content = key_path(tmp_path).read_bytes()
        key_path(tmp_path).unlink()
        state, before = space.trust.signing(), commits_of(tmp_path)
        assert (state.code, state.enrolled) == ("no-signing-key", False)
        assert str(key_path(tmp_path)) in str(state.problem)
        effect = ScriptedEffect("hi")
        worker = threading.Thread(target=testing.work, args=(space, {"llm": effect}))
        worker.start()
        eventually(lambda: any("no key to sign with" in str(waiting.error) for waiting in space.sessions.attempts()))
        assert (effect.payloads, commits_of(tmp_path), space.pending("scout")) == ([], before, list(session.pending))
        draft = key_path(tmp_path).with_suffix(".copy")
        draft.write_bytes(content)
        draft.chmod(0o600)
        draft.rename(key_path(tmp_path))
        worker.join()
        assert (space.session("scout").status, len(effect.payloads)) == ("finished", 1)
        key_path(tmp_path).chmod(0o644)
        assert space.trust.signing().code == "key-exposed"
    assert unsigned(tmp_path) == []

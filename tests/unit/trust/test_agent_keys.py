"""Keys of agents' sessions: certified for an agent, machine and time; stolen and ended keys are found."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import clia
from clia.space.events import read_events
from clia.testing import Settings, components
from clia.trust.agent_keys import AgentKeys, certify, key_id, principal, read_agent_key
from clia.trust.machine_keys import machine_name
from clia.trust.ssh_signatures import certified, signer_of
from support.people import key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from clia.trust.agent_keys import AgentKey

SETTINGS = Settings(person=("Ada", "ada@example.org"), durable=False)


@pytest.fixture
def space(tmp_path: Path) -> Iterator[clia.Space]:
    with clia.init(tmp_path / "project", settings=SETTINGS) as opened:
        for name in ("scout", "rover"):
            opened.spawn(name, clia.Briefing("look"))
        yield opened


def root(space: clia.Space) -> Path:
    return Path(space.home).parent.parent


def codes(space: clia.Space) -> set[str]:
    return {finding.code for finding in space.trust.verify().findings}


def commit(space: clia.Space, name: str = "scout", text: str = "a") -> str:
    return str(space.commit(name, "finding", changes={f"{name}.txt": f"{text}\n".encode()}))


def signed_with(space: clia.Space, key: AgentKey) -> None:
    """Let the process sign commits of any agent with a key, as a thief would."""
    git = components(space).git
    machine = git.objects.sign

    def sign(data: bytes) -> str | None:
        return key.signer.sign(data) if b"\nClia-Type: " in data else machine(data)

    git.objects.sign = sign


def own_key(space: clia.Space, agent: str = "scout", at: int | None = None) -> AgentKey:
    now = components(space).core.now()
    key, _ = certify(components(space).trust_keys.machine, space.id, agent, now if at is None else at)
    assert key is not None
    return key


def test_the_commits_of_a_run_are_signed_with_its_key(space: clia.Space) -> None:
    path = space.trust.start_agent_key("scout")
    assert path is not None
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    commit(space)
    with clia.open(root(space), settings=SETTINGS._replace(environment={"CLIA_AGENT_KEY": path})) as child:
        commit(child, text="b")
        commit(child, "rover")
    space.trust.end_agent_key(path)
    assert not os.path.exists(path)
    commit(space, text="c")
    report = space.trust.verify()
    assert report.findings == ()
    assert {(signer.owner, signer.commits) for signer in report.signers if signer.owner == "scout"} == {("scout", 2)}


def test_stock_git_accepts_the_commits_of_a_run(space: clia.Space, tmp_path: Path) -> None:
    path = space.trust.start_agent_key("scout")
    cid = commit(space)
    assert path is not None
    (tmp_path / "allowed").write_text(space.trust.allowed_signers())
    words = ["git", "-c", "gpg.format=ssh", "-c", f"gpg.ssh.allowedSignersFile={tmp_path / 'allowed'}", "verify-commit", "-v", cid]
    result = subprocess.run(words, cwd=root(space), capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "scout@agents.clia.invalid" in result.stderr


def test_a_process_certifies_a_key_for_each_agent_and_ends_them(tmp_path: Path) -> None:
    clia.init(tmp_path / "project", settings=SETTINGS).close()
    with clia.open(tmp_path / "project", settings=SETTINGS._replace(agent_keys=AgentKeys(certify=True))) as space:
        for name in ("scout", "rover"):
            space.spawn(name, clia.Briefing("look"))
            commit(space, name)
        space.ask("scout", {"question": "go?"})
        space.decide("scout", "yes")
    with clia.open(tmp_path / "project", settings=SETTINGS) as space:
        report = space.trust.verify()
        assert report.findings == ()
        assert {signer.owner for signer in report.signers} >= {"scout", "rover"}
        core = components(space).core
        tip = core.refs.get("refs/clia/events/scout")
        assert tip is not None
        assert [event.body.get("event") for event in read_events(core, tip)] == ["key-ended"]


def test_nothing_is_certified_in_a_space_that_does_not_sign(tmp_path: Path) -> None:
    project = tmp_path / "project"
    clia.init(project, settings=SETTINGS).close()
    subprocess.run(["git", "update-ref", "-d", "refs/clia/keys"], cwd=project, check=True)
    with clia.open(project, settings=SETTINGS._replace(agent_keys=AgentKeys(certify=True))) as space:
        space.spawn("scout", clia.Briefing("look"))
        assert space.trust.start_agent_key("scout") is None
        assert space.trust.verify().state == "unsigned"


@pytest.mark.parametrize("damage", [lambda path: path.write_text("{"), lambda path: path.chmod(0o644), lambda path: path.unlink()])
def test_without_a_usable_key_the_machine_signs(space: clia.Space, damage: Callable[[Path], None]) -> None:
    path = space.trust.start_agent_key("scout")
    assert path is not None
    damage(Path(path))
    assert read_agent_key(path) is None
    with clia.open(root(space), settings=SETTINGS._replace(environment={"CLIA_AGENT_KEY": path})) as child:
        commit(child)
        assert codes(child) == set()


# Attacks


def test_a_stolen_key_used_for_another_agent_is_found(space: clia.Space) -> None:
    signed_with(space, own_key(space, "scout"))
    commit(space, "rover")
    assert codes(space) == {"wrong-agent-key"}


def test_a_key_used_after_its_session_ended_is_found(space: clia.Space) -> None:
    path = space.trust.start_agent_key("scout")
    assert path is not None
    key = read_agent_key(path)
    assert key is not None
    commit(space)
    space.trust.end_agent_key(path)
    assert codes(space) == set()
    signed_with(space, key)
    commit(space, text="later")
    assert codes(space) == {"expired-agent-key"}


def test_a_key_used_before_or_after_its_time_is_found(space: clia.Space) -> None:
    now = components(space).core.now()
    for at in (now - 3 * 86400, now + 86400):
        signed_with(space, own_key(space, "scout", at))
        commit(space, text=str(at))
    assert [finding.code for finding in space.trust.verify().findings] == ["expired-agent-key"] * 2


def test_a_decision_signed_with_an_agents_key_is_found(space: clia.Space) -> None:
    space.ask("scout", {"question": "go?"})
    signed_with(space, own_key(space))
    space.decide("scout", "yes")
    assert "wrong-agent-key" in codes(space)


def test_a_machine_that_certifies_for_another_machine_is_found(space: clia.Space, tmp_path: Path) -> None:
    machine = components(space).trust_keys.machine.certifier()
    assert machine is not None
    seed, now = b"\5" * 32, components(space).core.now()
    other = signer_of(b"\6" * 32).public
    for name in (key_id("scout", machine_name(other), space.id), key_id("scout", machine_name(machine.public), "another space")):
        blob = certified(machine, signer_of(seed).public, name, principal("scout"), (now - 9, now + 9999), b"n" * 32)
        signed_with(space, own_key(space)._replace(signer=signer_of(seed, blob)))
        commit(space, text=name)
    assert [finding.code for finding in space.trust.verify().findings] == ["wrong-machine"] * 2


def test_a_key_that_an_unknown_machine_or_a_person_certified_is_found(space: clia.Space, tmp_path: Path) -> None:
    now = components(space).core.now()
    space.trust.enrol("Ada", key_of(tmp_path / "home"), roles=["owner"])
    for issuer in (signer_of(b"\6" * 32), signer_of(b"\5" * 32)):
        blob = certified(issuer, signer_of(b"\4" * 32).public, "x", principal("scout"), (now - 9, now + 9999), b"n" * 32)
        signed_with(space, own_key(space)._replace(signer=signer_of(b"\4" * 32, blob)))
        commit(space, text=issuer.public.fingerprint)
    assert codes(space) == {"unknown-key"}


def test_an_altered_certificate_is_found(space: clia.Space) -> None:
    key = own_key(space, "rover")
    blob = (key.signer.certificate or b"").replace(b"rover@", b"scout@").replace(b"agent rover", b"agent scout")
    signed_with(space, key._replace(signer=key.signer._replace(certificate=blob)))
    commit(space)
    assert codes(space) == {"bad-signature"}

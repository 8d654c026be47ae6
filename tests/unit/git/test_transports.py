"""No address makes git run a program, whatever the configuration of the repository allows."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

import clia
from clia.errors import CliaError, TransportError
from clia.gate.repository import GateRepository
from clia.git.command import allowed_protocols
from support import git
from support.spaces import BRIEFING, refused, settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HOW = ("address", "insteadOf", "pushInsteadOf", "vcs", "other-helper")


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    return tmp_path / "ran"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with one commit, whose configuration allows helpers."""
    root = tmp_path.resolve() / "repo"
    git("init", "--quiet", "-b", "main", str(root), cwd=tmp_path)
    git("config", "protocol.allow", "always", cwd=root)
    git("config", "protocol.ext.allow", "always", cwd=root)
    git("-c", "user.name=T", "-c", "user.email=t@example.org", "commit", "--quiet", "--allow-empty", "-m", "Start", cwd=root)
    return root


def point(root: Path, how: str, marker: Path) -> None:
    """Let the remote ``origin`` run a program."""
    helper = f"ext::sh -c touch% {marker}"
    if how == "address":
        git("remote", "add", "origin", helper, cwd=root)
        return
    git("remote", "add", "origin", "https://git.example.org/team/shop.git", cwd=root)
    if how in ("insteadOf", "pushInsteadOf"):
        git("config", f"url.{helper}% .{how}", "https://git.example.org/", cwd=root)
    elif how == "vcs":
        git("config", "remote.origin.vcs", "ext", cwd=root)
        git("config", "remote.origin.url", f"sh -c touch% {marker}", cwd=root)
    else:
        git("config", "remote.origin.url", f"marker::{marker}", cwd=root)


def with_helper(tmp_path: Path, marker: Path) -> dict[str, str]:
    """An environment whose path has a helper program of git, and that allows every transport."""
    programs = tmp_path / "programs"
    programs.mkdir(exist_ok=True)
    helper = programs / "git-remote-marker"
    helper.write_text(f"#!/bin/sh\ntouch {marker}\n")
    helper.chmod(0o755)
    return {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "GIT_ALLOW_PROTOCOL": "ext:marker:https:file"}


def test_the_set_up_runs_the_program_without_clia(root: Path, tmp_path: Path, marker: Path) -> None:
    """Otherwise the tests below would prove nothing."""
    environment = with_helper(tmp_path, marker)
    for how in ("address", "insteadOf", "vcs", "other-helper"):
        point(root, how, marker)
        subprocess.run(["git", "ls-remote", "origin"], cwd=root, env=environment, capture_output=True, check=False)
        assert marker.exists(), how
        marker.unlink()
        git("remote", "remove", "origin", cwd=root)
        if how == "insteadOf":
            git("config", "--remove-section", f"url.ext::sh -c touch% {marker}% ", cwd=root)


@pytest.mark.parametrize("how", [how for how in HOW if how != "pushInsteadOf"])
def test_init_runs_no_program_that_a_remote_names(root: Path, tmp_path: Path, marker: Path, how: str) -> None:
    point(root, how, marker)
    options = settings(environment=with_helper(tmp_path, marker))
    err = refused("transport-not-allowed", lambda: clia.init(root, settings=options))
    assert isinstance(err, TransportError)
    assert not err.retryable
    assert err.fields["transport"] in ("ext", "marker")
    assert not marker.exists()
    with clia.init(root, settings=options, adopt=False) as space:
        assert space.agents() == []


VERBS: dict[str, Callable[[clia.Space], object]] = {
    "publish": lambda space: space.publish(["scout"]),
    "adopt": lambda space: space.adopt(),
    "publish for peers": lambda space: space.publish(["scout"], federation=True),
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_runs_a_program_that_a_remote_names(root: Path, tmp_path: Path, marker: Path, how: str, verb: str) -> None:
    options = settings(environment=with_helper(tmp_path, marker))
    with clia.init(root, settings=options) as space:
        space.spawn("scout", BRIEFING)
        point(root, how, marker)
        if how == "pushInsteadOf" and verb == "adopt":
            return  # it pushes nothing, and the server does not exist
        refused("transport-not-allowed", lambda: VERBS[verb](space))
    assert not marker.exists()


@pytest.mark.parametrize("how", ["address", "insteadOf", "vcs", "other-helper"])
def test_a_hub_is_reached_by_a_transport_of_git_only(root: Path, tmp_path: Path, marker: Path, how: str) -> None:
    point(root, how, marker)
    options = settings(environment=with_helper(tmp_path, marker))
    refused("transport-not-allowed", lambda: clia.init(root, settings=options, hub="origin"))
    assert not marker.exists()


def test_a_missing_object_is_not_fetched_by_a_program(root: Path, tmp_path: Path, marker: Path) -> None:
    """A partial clone names where git fetches missing objects."""
    options = settings(environment=with_helper(tmp_path, marker))
    with clia.init(root, settings=options) as space:
        space.spawn("scout", BRIEFING)
        commit = space.commit("scout", "finding", changes={"a.txt": b"a\n"})
    point(root, "address", marker)
    git("config", "extensions.partialClone", "origin", cwd=root)
    git("config", "remote.origin.promisor", "true", cwd=root)
    blob = git("rev-parse", f"{commit}:a.txt", cwd=root).strip()
    (root / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with clia.open(root, settings=options) as space:
        reads: list[Callable[[], object]] = [lambda: space.files(commit), space.verify, lambda: space.diff(commit)]
        for read in reads:
            with suppress(CliaError):
                read()
    assert not marker.exists()
    repository = GateRepository(str(root), with_helper(tmp_path, marker))
    assert repository.read(blob) is None
    repository.close()
    assert not marker.exists()


def test_a_callers_narrower_list_counts() -> None:
    assert allowed_protocols({}) == "file:git:http:https:ssh"
    assert allowed_protocols({"GIT_ALLOW_PROTOCOL": "ssh:ext:https"}) == "https:ssh"
    assert allowed_protocols({"GIT_ALLOW_PROTOCOL": ""}) == "none"


@pytest.mark.parametrize(("key", "value"), [("protocol.file.allow", "never"), ("protocol.allow", "never")])
def test_a_transport_that_the_configuration_forbids_stays_forbidden(root: Path, tmp_path: Path, key: str, value: str) -> None:
    remote = tmp_path / "remote.git"
    git("clone", "--quiet", "--bare", str(root), str(remote), cwd=tmp_path)
    git("remote", "add", "origin", str(remote), cwd=root)
    git("config", "--unset", "protocol.allow", cwd=root)
    git("config", key, value, cwd=root)
    err = refused("transport-not-allowed", lambda: clia.init(root, settings=settings()))
    assert err.fields["transport"] == "file"
    git("config", key, "user", cwd=root)
    clia.init(root, settings=settings()).close()

"""Who is accountable."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import clia
from clia.facade.settings import Settings, person_of
from support import git
from support.spaces import BRIEFING, refused, settings

if TYPE_CHECKING:
    from pathlib import Path

CONFIGURED = {"user.name": "Ada", "user.email": "ada@example.org"}


@pytest.mark.parametrize(
    ("environment", "configured", "person"),
    [
        ({}, CONFIGURED, ("Ada", "ada@example.org")),
        ({"GIT_COMMITTER_NAME": "Bea"}, CONFIGURED, ("Bea", "ada@example.org")),
        ({"EMAIL": "bea@example.org"}, {"user.name": "Ada"}, ("Ada", "bea@example.org")),
        ({"EMAIL": "bea@example.org"}, CONFIGURED, ("Ada", "ada@example.org")),
    ],
)
def test_the_person_is_the_committer_as_git_knows_it(
    environment: dict[str, str], configured: dict[str, str], person: tuple[str, str]
) -> None:
    assert person_of(Settings(environment=environment), configured.get) == person


@pytest.mark.parametrize(
    ("configured", "hints"),
    [
        ({}, ('git config --global user.name "Your Name"', "git config --global user.email you@example.org")),
        ({"user.name": "Ada"}, ("git config --global user.email you@example.org",)),
    ],
)
def test_without_an_identity_the_error_says_how_to_set_it(configured: dict[str, str], hints: tuple[str, ...]) -> None:
    error = refused("no-git-identity", lambda: person_of(Settings(environment={}), configured.get))
    assert error.hints == hints


def test_without_an_identity_reading_works_and_nothing_is_written(
    scout: clia.Space, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = scout.commit("scout", "finding", changes={"a": b"1\n"})
    monkeypatch.setattr("clia.facade.opening.person_of", lambda _, __: person_of(Settings(environment={}), lambda _: None))
    refs = git("for-each-ref", cwd=repo)
    with clia.open(repo, settings=settings()) as nobody:
        assert nobody.log("scout")[0].cid == head
        refused("no-git-identity", lambda: nobody.commit("scout", "finding", changes={"a": b"2\n"}))
        refused("no-git-identity", lambda: nobody.spawn("other", BRIEFING))
    assert git("for-each-ref", cwd=repo) == refs

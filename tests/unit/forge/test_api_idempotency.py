"""Idempotency keys of the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from clia.errors import BackendError, StoreError
from support.forge import OpenForge, problem_of

if TYPE_CHECKING:
    import clia


FINDING = {"kind": "finding", "files": {"a": "1"}}


def test_a_key_used_for_one_agent_is_refused_for_another(forge: OpenForge) -> None:
    token, before = forge.bearer(), forge.space.head("smith")
    assert forge.post_to_agents("/scout/commits", FINDING, idempotency_key="k", **token).status_code == 200
    assert problem_of(forge.post_to_agents("/smith/commits", FINDING, idempotency_key="k", **token)) == (
        422,
        "idempotency-mismatch",
    )
    assert forge.space.head("smith") == before
    assert forge.post_to_agents("/smith/commits", FINDING, idempotency_key="k-2", **token).status_code == 200


@pytest.mark.parametrize("kind", [BackendError, StoreError])
def test_a_key_stays_claimed_if_the_outcome_of_the_change_is_unknown(
    forge: OpenForge, monkeypatch: pytest.MonkeyPatch, kind: type[BackendError]
) -> None:
    """The connection to the store breaks after the commit: a retry with the same key does not commit again."""
    token, space, commit = forge.bearer(), forge.space, type(forge.space).commit

    def commit_then_fail(self: clia.Space, *args: Any, **more: Any) -> None:
        commit(self, *args, **more)
        raise kind("the connection was lost")

    monkeypatch.setattr(type(space), "commit", commit_then_fail)
    assert forge.post_to_agents("/scout/commits", FINDING, idempotency_key="k", **token).status_code == 503
    monkeypatch.undo()
    head = space.head("scout")
    for _ in range(2):
        assert problem_of(forge.post_to_agents("/scout/commits", FINDING, idempotency_key="k", **token)) == (
            409,
            "idempotency-in-progress",
        )
    assert space.head("scout") == head

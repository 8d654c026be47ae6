from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from clia.errors import BackendError, StoreError
from support.forge import OpenForge, open_forge
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from httpx2 import Response

    import clia


AGENTS = "/api/v1/spaces/repo/agents"


FINDING = {"kind": "finding", "files": {"a": "1"}}


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[OpenForge]:
    with open_forge(tmp_path) as made:
        for name in ("scout", "smith"):
            made.space.spawn(name, BRIEFING)
        yield made


def bearer(opened: OpenForge, name: str = "ada", role: str = "admin", display: str = "") -> dict[str, str]:
    """What proves to be a user, who is made where there is none of that name."""
    if opened.forge.users.get(name) is None:
        opened.forge.users.add(name, role, display)
    return {"authorization": f"Bearer {opened.forge.users.make_token(name)[0]}"}


def post(opened: OpenForge, path: str, body: Any, **headers: str) -> Response:
    """Asks the API for a change; a header's name may be written with ``_``."""
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    answer: Response = opened.stranger().client.post(AGENTS + path, json=body, headers=named)
    return answer


def said(answer: Response) -> tuple[int, str]:
    """The status and the code of a problem."""
    return answer.status_code, answer.json()["code"]


def test_a_key_that_was_used_for_one_agent_is_none_for_another(opened: OpenForge) -> None:
    who, before = bearer(opened), opened.space.head("smith")
    assert post(opened, "/scout/commits", FINDING, idempotency_key="k", **who).status_code == 200
    assert said(post(opened, "/smith/commits", FINDING, idempotency_key="k", **who)) == (422, "idempotency-mismatch")
    assert opened.space.head("smith") == before
    assert post(opened, "/smith/commits", FINDING, idempotency_key="k-2", **who).status_code == 200


@pytest.mark.parametrize("kind", [BackendError, StoreError])
def test_a_key_stays_taken_where_nobody_knows_whether_the_change_was_made(
    opened: OpenForge, monkeypatch: pytest.MonkeyPatch, kind: type[BackendError]
) -> None:
    """The line to the store breaks after the commit was made: asked for again with the same key, it is not made twice."""
    who, space, made = bearer(opened), opened.space, type(opened.space).commit

    def lost(self: clia.Space, *args: Any, **more: Any) -> None:
        made(self, *args, **more)
        raise kind("the connection was lost")

    monkeypatch.setattr(type(space), "commit", lost)
    assert post(opened, "/scout/commits", FINDING, idempotency_key="k", **who).status_code == 503
    monkeypatch.undo()
    head = space.head("scout")
    for _ in range(2):
        assert said(post(opened, "/scout/commits", FINDING, idempotency_key="k", **who)) == (409, "idempotency-in-progress")
    assert space.head("scout") == head

"""The forge and the MCP server sign with nobody's own keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from clia.cli import forge
from clia.facade import opening
from clia.forge import server
from clia.mcp import server as mcp_server
from support.spaces import settings

if TYPE_CHECKING:
    from pathlib import Path

    from clia.facade.settings import Settings


class Opened(Exception):  # it ends the command
    """A command would open a space with these settings."""


def refuse(*_: Any, **__: Any) -> Any:
    raise AssertionError("it must not sign")


def test_the_forge_does_not_sign_with_the_ssh_keys_of_who_started_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Users log in with a cookie, which is no proof by a key."""

    def serve(options: Any, used: Settings, *_: Any) -> None:
        raise Opened(used)

    monkeypatch.setattr(server, "serve", serve)
    with pytest.raises(Opened) as caught:
        forge.serve(
            settings(prove=refuse), str(tmp_path), False, directories=[], user=None, quiet=True, host_name=None, socket=None
        )
    assert caught.value.args[0].prove is None


def test_the_mcp_server_does_not_sign_what_a_client_fills_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client runs in the agent's hands: it could fill in a form itself."""

    def open_space(path: str, settings: Settings) -> None:
        raise Opened(settings)

    monkeypatch.setattr(opening, "open_space", open_space)
    monkeypatch.setattr(mcp_server, "serve", lambda context, *_: context.space())
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("clia.mcp.startup_cache.EarlyAnswers", lambda *_: None)
    with pytest.raises(Opened) as caught:
        forge.mcp(settings(prove=refuse), str(tmp_path), agent="scout", forge=None)
    assert (caught.value.args[0].prove, caught.value.args[0].agent) == (None, "scout")

"""Answers before the SDK is loaded: which requests are answered, with what, and what reaches the client once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

import clia
from clia.mcp.server import CORE, prepare_answers
from clia.mcp.startup_cache import answers_directory, installed_code
from support import warm
from support.spaces import settings

if TYPE_CHECKING:
    from pathlib import Path

SERVER = """\
import json, sys
from clia.mcp.startup_cache import EarlyAnswers, KeptAnswers
messages = EarlyAnswers(KeptAnswers(sys.argv[1], sys.argv[2]))
while line := messages.readline():
    message = json.loads(line)
    if sys.argv[3] != "silent" and "id" in message:
        answer = {"error": {"code": 1}} if sys.argv[3] == "error" else {"result": {"from": sys.argv[3], "é": [1]}}
        messages.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}) + "\\n")
print("stray output")
"""
"""Stands in for the SDK: it answers every request with its name, with an error, or never."""
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
INITIALIZE = {"method": "initialize", "params": HELLO}
LIST = {"method": "tools/list", "params": {"_meta": {"progressToken": 1}}}
CALL = {"method": "tools/call", "params": {"name": "agents", "arguments": {}}}


def run(directory: Path, how: str, *requests: Any, code: str = "1") -> list[Any]:
    """The messages that a client receives for some requests, which have the ids a0, a1, …"""
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": f"a{number}", **request}) if isinstance(request, dict) else request
        for number, request in enumerate(requests)
    ]
    words = [sys.executable, "-c", SERVER, str(directory), code, how]
    server = subprocess.run(words, input="".join(f"{line}\n" for line in lines), capture_output=True, text=True, check=False)
    assert (server.returncode, "stray" in server.stderr) == (0, True), server.stderr
    return [json.loads(line) for line in server.stdout.splitlines()]


def sources(messages: list[Any]) -> dict[str, str]:
    """Which server an answer is from, by request."""
    answers = {message["id"]: message["result"]["from"] for message in messages}
    assert len(answers) == len(messages), "each request is answered once"
    return answers


def test_a_server_gives_the_answers_of_the_one_before_at_once_and_each_once(tmp_path: Path) -> None:
    assert sources(run(tmp_path, "first", INITIALIZE, LIST, CALL)) == {"a0": "first", "a1": "first", "a2": "first"}
    newer = {"method": "initialize", "params": {**HELLO, "clientInfo": {"name": "t", "version": "2"}}}
    again = run(tmp_path, "silent", newer, {"method": "tools/list", "params": {"_meta": {"progressToken": 2}}}, CALL)
    assert sources(again) == {"a0": "first", "a1": "first"}, "calls are never answered early"
    assert again[0] == {"jsonrpc": "2.0", "id": "a0", "result": {"from": "first", "é": [1]}}
    assert sources(run(tmp_path, "next", INITIALIZE, LIST, CALL)) == {"a0": "first", "a1": "first", "a2": "next"}
    assert all(os.stat(path).st_mode & 0o77 == 0 for path in tmp_path.iterdir())


def test_only_the_same_request_after_the_same_handshake_with_the_same_code_is_answered(tmp_path: Path) -> None:
    run(tmp_path, "first", INITIALIZE, LIST)
    other = {"method": "initialize", "params": {**HELLO, "protocolVersion": "2025-11-25"}}
    modern = {"method": "tools/list", "params": {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}}
    assert run(tmp_path, "silent", INITIALIZE, LIST, code="2") == []
    assert run(tmp_path, "silent", LIST) == [], "without a handshake"
    assert run(tmp_path, "silent", other, LIST) == []
    assert sources(run(tmp_path, "silent", INITIALIZE, modern)) == {"a0": "first"}


def test_an_answer_is_kept_before_it_is_sent(tmp_path: Path) -> None:
    words = [sys.executable, "-c", SERVER, str(tmp_path), "1", "first"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, **INITIALIZE}).encode() + b"\n")
        server.stdin.flush()
        server.stdout.readline()
        server.kill()
    assert sources(run(tmp_path, "silent", INITIALIZE)) == {"a0": "first"}


def test_errors_are_not_kept_and_other_messages_go_to_the_sdk(tmp_path: Path) -> None:
    assert [message["error"] for message in run(tmp_path, "error", INITIALIZE, LIST)] == [{"code": 1}, {"code": 1}]
    assert run(tmp_path, "silent", INITIALIZE, LIST) == []
    odd = ["[1, 2]", '"text"', "7", '{"method": "initialize"}', '{"id": 1, "method": ["tools/list"]}']
    assert run(tmp_path, "silent", *odd, '{"id": 1, "method": "tools/list", "params": [1]}') == []


def test_without_a_writable_directory_and_with_many_answers_the_server_works(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert sources(run(tmp_path / "file", "first", INITIALIZE)) == {"a0": "first"}
    (tmp_path / "kept").mkdir()
    for number in range(70):
        (tmp_path / "kept" / f"{number}.json").write_text("{}")
    run(tmp_path / "kept", "first", INITIALIZE)
    assert len(list((tmp_path / "kept").iterdir())) == 64


def test_the_installed_code_covers_the_sdk_and_the_modules_of_clia() -> None:
    code = installed_code()
    assert all(f"{name}.py:" in code for name in ("mcp/__init__", "mcp_types/__init__", "clia/facade/space", "clia/mcp/server"))


def test_kept_and_prepared_answers_are_those_of_the_sdk_in_every_protocol(tmp_path: Path) -> None:
    """The real server: it keeps the SDK's answers and then gives them, as it gives those that were prepared for any client."""
    root = tmp_path.resolve() / "repo"
    clia.init(root, settings=settings()).close()
    own, prepared = ({**os.environ, "XDG_STATE_HOME": str(tmp_path / name)} for name in ("own", "prepared"))
    prepare_answers(clia.__version__, answers_directory(prepared), f"{clia.__version__} {installed_code()}")
    files = sorted(os.listdir(answers_directory(prepared)))
    handshakes = _handshakes({"roots": {"listChanged": True}, "elicitation": {"form": {}, "url": {}}, "sampling": {}})
    for requests in handshakes:
        first, second, third = (_answers(root, environment, requests) for environment in (own, own, prepared))
        assert first == second == third
        assert [tool["name"] for tool in third["a1"]["result"]["tools"]] == list(CORE)
    assert sorted(os.listdir(answers_directory(own))) == sorted(os.listdir(answers_directory(prepared))) == files
    assert len(files) == 2 * len(handshakes)


def _handshakes(capabilities: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """The first two requests of a client in each version of the protocol."""
    hellos = [{**HELLO, "protocolVersion": version, "capabilities": capabilities} for version in HANDSHAKE_PROTOCOL_VERSIONS]
    handshakes = [[{"method": "initialize", "params": hello}, LIST] for hello in hellos]
    for version in MODERN_PROTOCOL_VERSIONS:
        meta = {
            "io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientCapabilities": capabilities,
            "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        }
        handshakes.append([{"method": method, "params": {"_meta": meta}} for method in ("server/discover", "tools/list")])
    return handshakes


def _answers(root: Path, environment: dict[str, str], requests: list[dict[str, Any]]) -> dict[str, Any]:
    """The answers of a server to requests, by id. A request that only the SDK answers comes last."""
    answers: dict[str, Any] = {}
    words = [warm.program(), "mcp", "--path", str(root)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        for number, request in enumerate([*requests, {**requests[-1], "method": "prompts/list"}]):
            server.stdin.write(json.dumps({"jsonrpc": "2.0", "id": f"a{number}", **request}).encode() + b"\n")
            if request["method"] == "initialize":
                server.stdin.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
            server.stdin.flush()
        while "a2" not in answers:
            answer = json.loads(server.stdout.readline())
            assert answer["id"] not in answers, "each request is answered once"
            answers[answer["id"]] = answer
        server.stdin.close()
        assert server.stdout.read() == b""
    return answers

"""Bad input gives an error or a diagnostic, never a traceback, and writes nothing."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from clia.values.documents import MAX_BYTES
from support import Ran, clia, program

if TYPE_CHECKING:
    from support import Tree

READS = ("context", "profile", "plan", "agency")


def run_read(tree: Tree, command: str = "profile", where: str = "w") -> Ran:
    before = tree.snapshot()
    ran = clia("agents", command, "--slug", "scout", "--json", "--path", tree.path(where))
    assert tree.snapshot() == before
    assert "Traceback" not in ran.err
    assert "bug" not in ran.err
    return ran


def only_diagnostic(ran: Ran) -> dict[str, Any]:
    (line,) = ran.err.splitlines()
    diagnostic: dict[str, Any] = json.loads(line)
    assert set(diagnostic) == {"code", "severity", "path", "pointer", "message", "hint"}
    return diagnostic


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (b"", "line 1, column 1"),
        (b"{", "line 1, column 2"),
        (b'{"a": 1,}', "line 1, column"),
        (b'{"a": 1}\n{"b": 2}', "line 2, column 1"),
        (b'\xef\xbb\xbf{"a": tru}', "line 1, column 7"),
        (b'{\r\n"a": "\xff"}', "line 2, column 7"),
        (b"\xff\xfe{\x00}\x00", "line 1, column 1"),
        (b'{"a": "\t"}', "line 1, column 8"),
        (b"[1]", "must be a JSON object, not an array"),
        (b'"x"', "must be a JSON object, not a string"),
        (b"null", "must be a JSON object, not null"),
        (b'{"a": "\\ud800"}', "lone surrogate"),
        (b'{"n": ' + b"1" * 5000 + b"}", "a number cannot be read"),
    ],
)
def test_malformed_json_is_reported_with_its_position(tree: Tree, text: bytes, where: str) -> None:
    tree.repository("w")
    tree.agenda("w", title="the other kinds still work")
    path = tree.write("w/.clia/agents/scout/scout.agent.triad.json", text)
    ran = run_read(tree)
    assert ran.code == 2
    diagnostic = only_diagnostic(ran)
    assert (diagnostic["code"], diagnostic["severity"], diagnostic["path"]) == ("invalid-json", "error", str(path))
    assert where in diagnostic["message"]
    assert run_read(tree, "plan").code == 0


@pytest.mark.parametrize("text", ['\ufeff{"title": "ok"}', '{\r\n"title": "ok"\r\n}\r\n', '{"title": "\\ud83c\\udf9b ok"}'])
def test_byte_order_marks_crlf_and_paired_surrogates_are_fine(tree: Tree, text: str) -> None:
    tree.repository("w")
    tree.write("w/.clia/agents/scout/scout.agent.triad.json", text)
    ran = run_read(tree)
    assert (ran.code, ran.err) == (0, "")
    assert ran.json()["title"].endswith("ok")


@pytest.mark.parametrize(
    ("content", "code", "severity", "pointer"),
    [
        ({"title": 5}, "wrong-type", "error", "/title"),
        ({"guardrails": 5}, "wrong-type", "error", "/guardrails"),
        ({"guardrails": "one rule"}, "scalar-for-list", "warning", "/guardrails"),
        ({"extensions": ["x"]}, "wrong-type", "error", "/extensions"),
        ({"persona": "x"}, "wrong-type", "error", "/persona"),
        ({"contributionMix": "code"}, "wrong-type", "error", "/contributionMix"),
        ({"links": 1}, "wrong-type", "error", "/links"),
        ({"inherits": 1}, "wrong-type", "error", "/inherits"),
        ({"inherits": [""]}, "wrong-type", "error", "/inherits/0"),
    ],
)
def test_a_wrong_type_has_a_pointer(tree: Tree, content: dict[str, Any], code: str, severity: str, pointer: str) -> None:
    tree.repository("w")
    tree.agent("w", **content)
    ran = run_read(tree)
    diagnostic = only_diagnostic(ran)
    assert (diagnostic["code"], diagnostic["severity"], diagnostic["pointer"]) == (code, severity, pointer)
    assert ran.code == (2 if severity == "error" else 0)
    if severity == "warning":
        assert ran.json()["guardrails"] == ["one rule"]


def test_a_wrong_type_leaves_the_outer_value(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", title="outer")
    tree.agent("w/in", title=["inner"])
    assert run_read(tree, where="w/in").json()["title"] == "outer"


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_ten_thousand_levels_of_nesting_are_refused_and_the_limit_is_named(tree: Tree, opening: str) -> None:
    tree.repository("w")
    closing = "]" if opening == "[" else "}"
    tree.write("w/.clia/agents/scout/scout.agent.triad.json", f'{{"x": {opening * 10_000}1{closing * 10_000}}}')
    diagnostic = only_diagnostic(run_read(tree))
    assert diagnostic["code"] == "document-too-deep"
    assert "128 levels" in diagnostic["message"]


def test_the_nesting_limit_is_exact(tree: Tree) -> None:
    tree.repository("w")
    path = tree.write("w/.clia/agents/scout/scout.agent.triad.json", f'{{"x": {"[" * 127}{"]" * 127}}}')
    assert run_read(tree).code == 0
    path.write_text(f'{{"x": {"[" * 128}{"]" * 128}}}')
    assert only_diagnostic(run_read(tree))["code"] == "document-too-deep"


def test_a_document_of_fifty_megabytes_is_refused_and_the_limit_is_named(tree: Tree) -> None:
    tree.repository("w")
    path = tree.write("w/.clia/agents/scout/scout.agent.triad.json", b'{"title": "' + b"x" * 50_000_000 + b'"}')
    ran = run_read(tree)
    diagnostic = only_diagnostic(ran)
    assert (ran.code, diagnostic["code"]) == (2, "document-too-large")
    assert f"{MAX_BYTES} bytes (16 MiB)" in diagnostic["message"]
    path.unlink()
    agency = tree.write("w/.clia/agents/scout/scout.agency.triad.json", b'{"entries": ["' + b"x" * (MAX_BYTES - 100) + b'"]}')
    before = agency.read_bytes()
    wrote = clia("agents", "journal", "--slug", "scout", "--note", "n" * 200, "--path", tree.path("w"))
    assert wrote.code == 2
    assert "document-too-large" in wrote.err
    assert agency.read_bytes() == before


def test_a_directory_in_place_of_a_document_is_reported(tree: Tree) -> None:
    tree.repository("w")
    tree.directory("w/.clia/agents/scout/a.agent.triad.json")
    tree.agent("w", title="the real one")
    ran = run_read(tree)
    assert (ran.code, only_diagnostic(ran)["code"]) == (2, "not-a-file")
    assert ran.json()["title"] == "the real one"


def test_a_file_in_place_of_the_agent_directory_is_reported(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", title="outer")
    tree.write("w/in/.clia/agents/scout", "not a directory")
    ran = run_read(tree, where="w/in")
    assert (ran.code, only_diagnostic(ran)["code"]) == (2, "not-a-directory")
    assert ran.json()["title"] == "outer"
    wrote = clia("agents", "journal", "--slug", "scout", "--note", "x", "--write-scope", "local", "--path", tree.path("w/in"))
    assert wrote.code == 1
    assert "file-error" in wrote.err


def test_a_named_pipe_in_place_of_a_document_does_not_block(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", title="here")
    os.mkfifo(tree.root / "w/.clia/agents/scout/a.agent.triad.json")
    assert only_diagnostic(run_read(tree))["code"] == "not-a-file"


@pytest.mark.parametrize("command", READS)
def test_an_unknown_agent_is_refused(tree: Tree, command: str) -> None:
    tree.repository("w")
    ran = run_read(tree, command)
    assert (ran.code, ran.out) == (2, "")
    assert json.loads(ran.err)["error"]["code"] == "agent-not-found"


def test_a_missing_path_is_refused(tree: Tree) -> None:
    ran = clia("agents", "profile", "--slug", "scout", "--path", tree.path("none"))
    assert ran.code == 2
    assert "no-such-path" in ran.err


def test_the_path_of_a_file_stands_for_its_directory(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", title="here")
    tree.write("w/src/main.py", "")
    assert run_read(tree, where="w/src/main.py").json()["title"] == "here"


def test_a_ceiling_stops_the_climb_and_must_contain_the_path(tree: Tree) -> None:
    for where in ("w", "w/r", "w/r/s"):
        tree.repository(where)
        tree.agent(where, guardrails=[where])
    base = ("agents", "profile", "--slug", "scout", "--json", "--path", tree.path("w/r/s"), "--ceiling")
    assert clia(*base, tree.path("w/r")).json()["guardrails"] == ["w/r", "w/r/s"]
    refused = clia(*base, tree.path("w/r/s/deeper"))
    assert (refused.code, json.loads(refused.err)["error"]["code"]) == (2, "invalid-ceiling")


def without_rights(*words: str) -> Ran:
    """Run clia without privileges, so that file permissions apply even if the tests run as root."""
    if os.getuid() != 0:
        return clia(*words)
    return clia("--inh-caps=-all", "--bounding-set=-all", program(), *words, executable="setpriv")


def test_an_unreadable_document_is_reported_and_the_others_still_merge(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", title="outer")
    path = tree.agent("w/in", title="inner")
    path.chmod(0)
    ran = without_rights("agents", "profile", "--slug", "scout", "--json", "--path", tree.path("w/in"))
    assert ran.code == 2
    assert ran.json()["title"] == "outer"
    assert only_diagnostic(ran)["code"] == "unreadable"


def test_an_unreadable_agent_directory_is_reported(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", title="outer")
    path = tree.agent("w/in", title="inner")
    path.parent.chmod(0)
    ran = without_rights("agents", "profile", "--slug", "scout", "--json", "--path", tree.path("w/in"))
    path.parent.chmod(0o755)
    assert (ran.code, only_diagnostic(ran)["code"]) == (2, "unreadable")


def test_a_read_only_directory_is_refused_and_nothing_changes(tree: Tree) -> None:
    tree.repository("w")
    agency = tree.agency("w", entries=[])
    agency.parent.chmod(0o555)
    before = tree.snapshot()
    ran = without_rights("agents", "journal", "--slug", "scout", "--note", "x", "--path", tree.path("w"))
    assert tree.snapshot() == before
    assert ran.code == 1
    assert "Permission denied" in ran.err
    assert str(agency.parent) in ran.err


@pytest.mark.skipif(os.getuid() != 0, reason="only root can change the owner of a directory")
@pytest.mark.parametrize("path", ["w", "w/.clia", "w/.clia/agents/scout", "w/.clia/agents/scout/scout@w.agent.triad.json"])
def test_a_context_owned_by_another_user_outside_every_repository_is_not_trusted(tree: Tree, path: str) -> None:
    tree.agent("w", guardrails=["planted"])
    tree.repository("w/mine")
    tree.agent("w/mine", guardrails=["mine"])
    os.chown(tree.root / path, 12345, 12345)
    ran = clia("agents", "context", "--slug", "scout", "--json", "--path", tree.path("w/mine"))
    assert [context["path"] for context in ran.json()["chain"]] == [tree.path("w/mine")]
    assert {"path": tree.path("w/.clia/agents/scout"), "reason": "untrusted-owner"} in ran.json()["excluded"]
    os.chown(tree.root / path, 0, 0)
    assert len(clia("agents", "context", "--slug", "scout", "--json", "--path", tree.path("w/mine")).json()["chain"]) == 2


@pytest.mark.skipif(os.getuid() != 0, reason="only root can change the owner of a directory")
def test_inside_a_repository_the_owner_does_not_matter(tree: Tree) -> None:
    tree.repository("w")
    path = tree.agent("w", title="checked out by another user")
    os.chown(path.parent, 12345, 12345)
    assert run_read(tree).json()["title"] == "checked out by another user"

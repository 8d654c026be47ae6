"""The commands for flows, sessions, questions, decisions and workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import clia as library
from clia.cli.main import main
from support import Ran, clia, git, warm
from support.fake_secrets import FAKES
from support.session_flows import APPROVAL, CAREFUL, PARTS, PRODUCT, QUESTION
from support.space_driver import postgres_url
from support.terminal import PATIENCE, Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

RED = "\x1b[31mred\x1b[0m"
HARMLESS = "\\u{1b}[31mred\\u{1b}[0m"
QUICK = library.Settings(durable=False, person=("Tess", "tess@example.org"))
NAP = "import time\n\ndef main(input):\n    time.sleep(input)\n    return request('human', 'Rested?')\n"
FLOWS = {"product": PRODUCT, "approval": APPROVAL, "careful": CAREFUL, "parts": PARTS, "question": QUESTION, "nap": NAP}


class Running(NamedTuple):
    process: subprocess.Popen[str]

    def line(self, stream: str = "stdout") -> str:
        """The next line of its output."""
        text = getattr(self.process, stream).readline()
        assert text, self.process.poll()
        return str(text)

    def ends(self) -> Ran:
        out, err = self.process.communicate()
        return Ran(self.process.returncode, out, err)


class SessionCli(NamedTuple):
    """Commands in a space with the agent ``scout`` and some flows."""

    root: Path

    def __call__(self, *words: str, code: int = 0, env: dict[str, str] | None = None) -> Ran:
        ran = clia(*words, cwd=self.root, env={"COLUMNS": "200"} | (env or {}))
        assert ran.code == code, ran
        return ran

    def inside(self, *words: str) -> Ran:
        """Run a command in this process, because starting one takes long."""
        out, err = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            needs_no_space = words[:2] == ("flow", "check")
            exit_code = main([*words, *(() if needs_no_space else ("--path", str(self.root)))])
        return Ran(exit_code, out.getvalue(), err.getvalue())

    def json(self, *words: str, code: int = 0) -> Any:
        ran = self.inside(*words, "--json")
        assert (ran.code, ran.err) == (code, ""), ran
        return ran.json()

    def refused(self, *words: str, code: int = 2) -> dict[str, Any]:
        """The error of a command, whose standard output must be empty."""
        ran = self.inside(*words, "--json")
        assert (ran.code, ran.out) == (code, ""), ran
        error: dict[str, Any] = json.loads(ran.err)["error"]
        return error

    def fed(self, text: str | bytes, *words: str) -> Ran:
        """Run a command with standard input."""
        data = text.encode() if isinstance(text, str) else text
        result = subprocess.run([warm.program(), *words], cwd=self.root, input=data, capture_output=True, check=False)
        return Ran(result.returncode, result.stdout.decode(), result.stderr.decode())

    @contextmanager
    def beside(self, *words: str) -> Iterator[Running]:
        """A program that runs beside the test and ends with it."""
        with subprocess.Popen(
            [warm.program(), *words], cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            watchdog = threading.Timer(PATIENCE, process.kill)  # otherwise a failing test would wait forever
            watchdog.start()
            try:
                yield Running(process)
            finally:
                watchdog.cancel()
                process.kill()

    def terminal(self, *words: str) -> Terminal:
        return Terminal(self.root, *words)

    def space(self) -> library.Space:
        return library.open(self.root, settings=QUICK)

    def file(self, name: str, text: str) -> str:
        path = self.root.parent / name
        path.write_text(text)
        return str(path)

    def start(self, flow: str, value: Any = None, agent: str = "scout") -> library.Session:
        with self.space() as space:
            return space.start(agent, flow, value)

    def ask(self, payload: dict[str, Any], agent: str = "scout") -> str:
        with self.space() as space:
            return space.ask(agent, payload).id

    def head(self, agent: str = "scout") -> str:
        return git("rev-parse", f"agents/{agent}", cwd=self.root).strip()


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SessionCli:
    for key in [key for key in os.environ if key.startswith(("GIT_", "CLIA_"))]:
        monkeypatch.delenv(key)
    root = tmp_path.resolve() / "w"
    with library.init(root, settings=QUICK) as space:
        space.spawn("scout", library.Briefing("Look around"))
        for name, source in FLOWS.items():
            space.define(name, source)
    for key, value in (("user.name", "Tess"), ("user.email", "tess@example.org"), ("clia.durable", "false")):
        git("config", key, value, cwd=root)
    return SessionCli(root)


def rows(ran: Ran) -> list[list[str]]:
    """The words of each line."""
    return [line.split() for line in ran.out.splitlines()]


# Flows


def test_a_flow_is_defined_once_for_each_source_and_keeps_its_versions(cli: SessionCli) -> None:
    file = cli.file("plan.py", PRODUCT)
    first = cli.json("flow", "define", "plan", file, "-m", "Two numbers")
    assert list(first) == ["name", "cid", "versions", "by", "at", "why", "changed"]
    assert (first["changed"], first["versions"], first["why"]) == (True, [first["cid"]], "Two numbers")
    again = cli("flow", "define", "plan", file)
    assert again.out == f"plan {first['cid'][:10]}  unchanged; nothing was written\n"
    assert cli.json("flow", "define", "plan", file) == {**first, "changed": False}
    ran = cli.fed(PRODUCT + "\n", "flow", "define", "plan", "-")
    assert (ran.code, ran.out.split()[2:]) == (0, ["version", "2"])
    second = cli.json("flow", "show", "plan")
    assert (second["versions"], second["source"]) == ([first["cid"], second["cid"]], PRODUCT + "\n")
    assert cli.json("flow", "show", first["cid"])["source"] == PRODUCT


def test_flows_are_listed_and_shown_with_numbered_lines(cli: SessionCli) -> None:
    assert [flow["name"] for flow in cli.json("flow", "list")] == sorted(FLOWS)
    assert [line[0] for line in rows(cli("flow", "list"))] == ["flow", *sorted(FLOWS)]
    output = cli("flow", "show", "product").out
    assert "  2 │     one = request(" in output
    assert cli("flow", "show", "product", "--source").out == PRODUCT
    with library.init(cli.root.parent / "empty"):
        assert (
            clia("flow", "list", cwd=cli.root.parent / "empty").out == "no flows yet; define one with: clia flow define NAME FILE\n"
        )


def test_an_invalid_flow_is_refused_and_not_defined(cli: SessionCli) -> None:
    before = cli.json("flow", "list")
    file = cli.file("plan.py", PRODUCT)
    assert cli.refused("flow", "define", "No Name", file)["code"] == "invalid-name"
    assert cli.refused("flow", "define", "ask", file, code=1)["code"] == "already-exists"
    assert cli.refused("flow", "define", "plan", str(cli.root / "none"), code=1)["code"] == "file-error"
    assert cli.refused("flow", "define", "plan", "-", "-m", "-")["code"] == "invalid-option"
    assert cli.refused("flow", "show", "nothing")["code"] == "no-such-flow"
    binary = cli.root / "binary"
    binary.write_bytes(b"\xff")
    assert cli.refused("flow", "define", "plan", str(binary))["code"] == "invalid-text"
    assert cli.json("flow", "list") == before


BROKEN = "def main(input):\n    x = 5\n    return x +\n"


def test_check_reports_problems_with_the_lines_of_the_flow(cli: SessionCli) -> None:
    file = cli.file("broken.py", BROKEN)
    check = cli.json("flow", "check", file, code=1)
    assert (check["file"], check["works"]) == (file, False)
    first = check["problems"][0]
    assert list(first) == ["code", "message", "line", "column", "severity"]
    assert (first["code"], first["line"]) == ("syntax", 3)
    lines = cli("flow", "check", file, code=1).out.splitlines()
    assert lines[0].startswith(f"{file}:3:{first['column']}: error: ")
    assert lines[1] == "    3 │     return x +"
    assert lines[2].rstrip().endswith("^")
    assert lines[-1].startswith(f"{file}: ")
    assert " error" in lines[-1]


def test_define_reports_the_same_problems_and_defines_nothing(cli: SessionCli) -> None:
    ran = cli("flow", "define", "plan", cli.file("broken.py", BROKEN), code=2)
    assert ran.out == ""
    assert "    3 │     return x +\n" in ran.err
    assert "error: invalid-flow: plan:3:" in ran.err
    error = cli.refused("flow", "define", "plan", cli.file("broken.py", BROKEN))
    assert (error["code"], error["fields"]["problems"][0]["line"]) == ("invalid-flow", 3)
    assert cli.refused("flow", "show", "plan")["code"] == "no-such-flow"


def test_a_flow_that_works_checks_clean(cli: SessionCli) -> None:
    for name, source in FLOWS.items():
        file = cli.file(f"{name}.py", source)
        assert cli.inside("flow", "check", file) == (0, f"{file}: nothing found\n", ""), name
    assert cli.fed(PRODUCT, "flow", "check", "-", "--no-types").out == "-: nothing found\n"


def test_a_flow_is_checked_outside_of_a_repository_and_with_a_byte_order_mark(tmp_path: Path) -> None:
    outside = SessionCli(tmp_path / "nowhere")
    outside.root.mkdir()
    file = tmp_path / "flow.py"
    file.write_bytes(b"\xef\xbb\xbf" + PRODUCT.encode())
    assert outside("flow", "check", str(file)).out == f"{file}: nothing found\n"
    assert outside.fed(file.read_bytes(), "flow", "check", "-").out == "-: nothing found\n"
    assert list(outside.root.iterdir()) == []


def test_the_type_check_reports_a_missing_await(cli: SessionCli) -> None:
    source = "def main(input):\n    asked = request('n')\n    return asked + 1\n"
    check = cli.json("flow", "check", cli.file("forgotten.py", f"async {source}"), code=1)
    assert [(problem["code"], problem["line"]) for problem in check["problems"]] == [("type", 3)]
    assert cli.json("flow", "check", cli.file("plain.py", source))["works"]


# Sessions


def test_a_session_is_started_resumed_and_shown_to_its_end(cli: SessionCli) -> None:
    started = cli.json("session", "start", "scout", "product")
    assert (started["status"], [request["id"] for request in started["pending"]]) == ("suspended", ["1.1"])
    ran = cli("session", "resume", "scout", "15")
    assert ran.out.splitlines()[0] == "scout  session 1  suspended"
    assert "waits for  number (1.2): number" in ran.out
    session = cli.json("session", "resume", "scout", "3", "--request", "1.2")
    assert (session["status"], session["result"]) == ("finished", 45)
    session = cli.json("session", "show", "scout", "--journal")
    assert (session["resumes"], session["decisions"], session["input"]) == ([15, 3], [], None)
    assert [event["event"] for event in session["journal"]] == ["started", "resumed", "resumed", "ended"]
    lines = rows(cli("session", "show", "scout", "--journal"))
    assert ["result", "45"] in lines
    assert ["2", "resumed", "call", "1:", "15", "Tess", "<tess@example.org>"] in [line[:7] for line in lines]
    assert "journal" not in cli.json("session", "show", "scout", "--session", "1")


def test_the_input_is_json_from_an_option_a_file_or_standard_input(cli: SessionCli) -> None:
    value = {"kind": "number", "payload": {"n": 1}}
    for words, text in (
        (["--input", json.dumps(value)], ""),
        (["--input-file", cli.file("input.json", json.dumps(value))], ""),
        (["--input-file", "-"], json.dumps(value)),
    ):
        ran = cli.fed(text, "session", "start", "scout", "question", "--json", *words)
        assert ran.json()["pending"][0]["payload"] == {"n": 1}, words
        with cli.space() as space:
            assert space.cancel("scout").input == value
    for words, field in ((["--input", "{"], "--input"), (["--input-file", cli.file("bad.json", "x")], "--input-file")):
        error = cli.refused("session", "start", "scout", "question", *words)
        assert (error["code"], error["fields"]["field"]) == ("invalid-json", field)
    assert clia("session", "start", "scout", "question", "--input", "1", "--input-file", "-").code == 2


@pytest.mark.parametrize(
    ("words", "text", "value"),
    [
        (['{"a": [1]}'], "", {"a": [1]}),
        (["two words"], "", "two words"),
        (["-5"], "", -5),
        (["5", "--text"], "", "5"),
        (["-"], "7\n", 7),
        (["-"], "line\nline\r\n", "line\nline"),
        (["--error", "not found"], "", "not found"),
    ],
)
def test_an_answer_is_json_or_text(cli: SessionCli, words: Sequence[str], text: str, value: Any) -> None:
    cli.start("careful", {"find": "it"})
    ran = cli.fed(text, "session", "resume", "scout", *words, "--json")
    assert ran.code == 0, ran
    assert ran.json()["pending"][0]["payload"] == value


def test_a_request_takes_one_answer_and_a_question_takes_a_decision(cli: SessionCli) -> None:
    cli.start("product")
    assert cli.refused("session", "resume", "scout")["code"] == "usage"
    assert cli.refused("session", "resume", "scout", "1", "--error", "x")["code"] == "usage"
    assert cli.refused("session", "resume", "scout", "1", "--request", "1.9")["code"] == "no-such-request"
    cli.json("session", "resume", "scout", "1")
    stale = cli.refused("session", "resume", "scout", "2", "--request", "1.1", code=1)
    assert (stale["code"], stale["fields"]["value"]) == ("stale-request", 1)
    question = cli.ask({"question": "Go?"})
    error = cli.refused("session", "resume", "scout", "yes", "--request", question, code=1)
    assert (error["code"], error["hints"]) == ("human-request", [f"clia decide scout VALUE --request {question} -m WHY"])


def test_a_fork_continues_separately_from_now_or_from_a_commit(cli: SessionCli) -> None:
    cli.start("product")
    with cli.space() as space:
        start = space.commit("scout", "finding", {"a": b"a"})
    cli.json("session", "resume", "scout", "15")
    assert cli.json("session", "fork", "scout", "other")["forked"]["agent"] == "scout"
    ran = cli("session", "fork", "scout", "early", "--at", start[:12])
    assert ran.out.splitlines()[0] == "early  session 1  suspended"
    assert f"from scout, session 1, at {start[:10]}" in ran.out
    assert cli.json("session", "resume", "scout", "3")["result"] == 45
    assert cli.json("session", "resume", "other", "100")["result"] == 1500
    assert cli.json("session", "show", "early")["resumes"] == []
    assert "forked" in cli("show", git("rev-list", "-1", "agents/early", cwd=cli.root).strip()).out
    assert cli.refused("session", "fork", "scout", "scout")["code"] == "same-agent"
    assert cli.refused("session", "fork", "scout", "fresh")["code"] == "no-such-session"


def test_sessions_and_open_questions_can_be_cancelled_once(cli: SessionCli) -> None:
    cli.start("product")
    question = cli.ask({"question": "Go?"})
    ran = cli("session", "cancel", "scout", "-m", "nobody needs it")
    assert ran.out.splitlines()[0] == "scout  session 1  cancelled"
    assert ["reason", "nobody", "needs", "it"] in rows(ran)
    assert cli.json("session", "cancel", "scout", "--session", question.partition(".")[0])["status"] == "cancelled"
    assert cli.refused("session", "cancel", "scout", code=1)["code"] == "session-over"


def test_sessions_are_listed_live_ones_first(cli: SessionCli) -> None:
    assert cli("session", "list").out == "no sessions yet; start one with: clia session start AGENT FLOW\n"
    cli.start("product")
    cli.json("session", "cancel", "scout")
    cli.start("approval", {"goal": "x"})
    sessions = cli.json("session", "list")
    assert [(session["id"], session["status"]) for session in sessions] == [("2", "suspended"), ("1", "cancelled")]
    assert cli.json("session", "list", "scout", "--live") == sessions[:1]
    assert [cli.json("session", "show", "scout", *words)["id"] for words in ([], ["--session", "1"])] == ["2", "1"]
    assert [line[:4] for line in rows(cli("session", "list"))[1:]] == [
        ["scout", "2", "approval", "suspended"],
        ["scout", "1", "product", "cancelled"],
    ]
    assert cli.refused("session", "list", "nobody")["code"] == "no-such-agent"


def test_a_failed_flow_is_shown_with_the_error_and_its_line(cli: SessionCli) -> None:
    with cli.space() as space:
        space.define("fails", "def main(input):\n    return 1 / request('n', None)\n")
    cli.start("fails")
    ran = cli("session", "resume", "scout", "0")
    assert ran.out.splitlines()[0] == "scout  session 1  failed"
    assert "ZeroDivisionError" in ran.out
    assert "(line 2)" in ran.out
    output = cli("session", "show", "scout").out
    assert "return 1 / request('n', None)" in output or "line 2, in main" in output


def test_only_a_person_retries_a_failed_session(cli: SessionCli, monkeypatch: pytest.MonkeyPatch) -> None:
    with cli.space() as space:
        space.define("fails", "def main(input):\n    return 1 / request('n', None)\n")
    cli.start("fails")
    assert cli.refused("session", "retry", "scout", code=1)["code"] == "not-failed"
    cli.json("session", "resume", "scout", "0")
    monkeypatch.setenv("CLIA_AGENT", "scout")
    error = cli.refused("session", "retry", "scout", code=1)
    assert (error["code"], error["fields"]) == ("person-needed", {"agent": "scout"})
    monkeypatch.delenv("CLIA_AGENT")
    ran = cli("session", "retry", "scout", "-m", "not zero")
    assert ran.out.splitlines()[0] == "scout  session 1  suspended"
    assert "call 1 again: not zero" in cli("session", "show", "scout", "--journal").out
    assert cli.json("session", "resume", "scout", "2")["result"] == 0.5


# Inbox


def test_the_inbox_shows_the_question_its_context_its_choices_and_how_to_answer(cli: SessionCli) -> None:
    cli.start("approval", {"goal": "Count the apples"})
    assert cli("inbox").out == "nothing waits for you; 1 request waits for a worker (show them with --all)\n"
    cli.json("session", "resume", "scout", json.dumps("First this.\nThen that."))
    lines = cli("inbox").out.splitlines()
    assert lines[0] == "scout asks  1.2 · less than a minute · flow approval, line 4"
    assert lines[1] == "    Go on?"
    assert [line.split() for line in lines[2:]] == [
        ["tag", "go-on"],
        ["plan", "First", "this."],
        ["Then", "that."],
        ["choices", "1", "approve", "2", "reject"],
        ["answer", "clia", "decide", "scout", "--request", "1.2"],
        ["or", "at", "once:", "clia", "decide", "scout", "approve", "--request", "1.2", "-m", "WHY"],
        [],
        ["1", "question"],
    ]
    (request,) = cli.json("inbox", "scout")
    assert (request["question"], request["choices"], request["for_people"]) == ("Go on?", ["approve", "reject"], True)


def test_the_inbox_is_oldest_first_and_all_includes_requests_for_workers(cli: SessionCli) -> None:
    with cli.space() as space:
        space.spawn("lead", library.Briefing("Lead"))
        space.start("lead", "question", {"payload": {"question": "First?"}})
        space.start("scout", "question", {"kind": "llm", "payload": {"prompt": "Think"}})
        space.ask("scout", {"question": "Second?"})
    assert [request["question"] for request in cli.json("inbox")] == ["First?", "Second?"]
    assert [request["id"] for request in cli.json("inbox", "scout")] == ["ask-1.1"]
    everything = cli("inbox", "--all").out
    assert "scout waits for llm  1.1" in everything
    assert everything.endswith("3 requests wait\n")
    assert cli.refused("inbox", "nobody")["code"] == "no-such-agent"


def test_the_inbox_shows_the_attempts_of_workers(cli: SessionCli) -> None:
    cli.start("question", {"kind": "llm", "payload": {"prompt": "Think"}})
    config = cli.file("llm.toml", '[effects.llm]\nurl = "http://127.0.0.1:9/v1"\nmodel = "m"\n[worker]\nbackoff_seconds = 3600\n')
    assert cli.json("inbox", "--all")[0]["tried"] is None
    cli("worker", "--once", "--config", config)
    (request,) = cli.json("inbox", "--all")
    assert list(request["tried"]) == ["attempts", "worker", "until", "next_at", "error"]
    assert (request["tried"]["attempts"], request["tried"]["worker"]) == (1, None)
    assert request["tried"]["error"]
    output = cli("inbox", "--all").out
    assert "tried  1 attempt; again at " in output
    assert f"last: {request['tried']['error']}"[:40] in output


def test_rules_and_choices_are_shown_unchanged(cli: SessionCli) -> None:
    for rule, expected_row in (
        ({"choices": [3, 2, 1]}, ["choices", "a", "3", "b", "2", "c", "1"]),
        ({"choices": ["true", True]}, ["choices", "1", '"true"', "2", "true"]),
        ({"choices": ["", "no"]}, ["choices", "1", '""', "2", '"no"']),
        ({"schema": {"type": "integer"}}, ["must", "be", '{"type":', '"integer"}']),
    ):
        session = cli.ask({"question": "Which?", **rule}).partition(".")[0]
        assert expected_row in rows(cli("inbox")), rule
        assert rule.get("schema", {"enum": rule.get("choices")}) == cli.json("inbox")[0]["schema"]
        cli.json("session", "cancel", "scout", "--session", session)


def test_a_long_context_is_truncated_with_a_hint_and_complete_in_session_show(cli: SessionCli) -> None:
    cli.start("question", {"payload": {"question": "Go?", "plan": "word " * 1000 + "end"}})
    cut = cli("inbox").out
    assert "more characters)" in cut
    assert "in full  clia session show scout --session 1" in cut
    assert " end" not in cut
    assert " end" in cli("session", "show", "scout").out


def test_text_of_a_flow_cannot_control_the_terminal(cli: SessionCli) -> None:
    payload = {"question": f"Go {RED}?\nscout asks  9.9", "plan": f"{RED}\r", f"key {RED}": 1, "choices": [f"yes {RED}"]}
    cli.start("question", {"payload": payload})
    for words in (["inbox"], ["session", "show", "scout", "--journal"], ["session", "list"], ["show", "scout"]):
        with cli.terminal(*words) as terminal:
            assert terminal.ends() == 0
            assert "\x1b[31mred" not in terminal.shown, words
            assert "\r\r" not in terminal.shown, words
            assert "\nscout asks  9.9" not in terminal.plain, words
    assert HARMLESS in cli("inbox").out


# Decisions


def test_a_decision_is_a_commit_and_the_session_continues(cli: SessionCli) -> None:
    cli.start("approval", {"goal": "x"})
    cli.json("session", "resume", "scout", "plan")
    before = cli.head()
    decision = cli.json("decide", "scout", "approve", "-m", "It is sound.", "--by", "Ann <ann@example.org>")
    assert list(decision) == ["cid", "agent", "request", "value", "by", "session", "redacted"]
    assert (decision["cid"], decision["request"], decision["value"]) == (cli.head(), "1.2", "approve")
    assert decision["session"]["result"] == {"status": "done", "plan": "plan"}
    assert git("log", "-1", "--format=%P %s", "agents/scout", cwd=cli.root).split() == [before, "It", "is", "sound."]
    commit_rows = rows(cli("show", decision["cid"]))
    for row in (["request", "1.2"], ["tag", "go-on"], ["value", '"approve"'], ["by", "Ann", "<ann@example.org>"]):
        assert row in commit_rows
    error = cli.refused("decide", "scout", "reject", "--request", "1.2", code=1)
    assert (error["code"], error["fields"]["answered_by"]) == ("stale-request", "Ann <ann@example.org>")
    assert error["fields"]["decision"] == cli.head()


def test_the_answer_is_the_text_of_a_choice_or_json_or_text(cli: SessionCli) -> None:
    for choices, words, value in (
        (["1", "2"], ["1"], "1"),
        ([1, True], ["true"], True),
        (None, ['{"a": 1}'], {"a": 1}),
        (None, ["5", "--text"], "5"),
        (None, ["fine by me"], "fine by me"),
        ([3, 2, 1], ["1"], 1),
        ([1, 2], ["1.0"], 1),
        (["true", True], ["true"], "true"),
    ):
        cli.ask({"question": "Which?", **({"choices": choices} if choices else {})})
        assert cli.json("decide", "scout", *words)["value"] == value, words
    cli.ask({"question": "Which?"})
    ran = cli.fed("a text\n", "decide", "scout", "-")
    assert (ran.code, '"a text"' in ran.out) == (0, True)


def test_an_invalid_answer_is_refused_with_the_reason_and_changes_nothing(cli: SessionCli) -> None:
    cli.ask({"question": "Go?", "choices": ["yes", "no"]})
    before = cli.head()
    error = cli.refused("decide", "scout", "maybe")
    assert (error["code"], error["hints"]) == ("invalid-answer", ['choices: "yes", "no"'])
    assert cli.refused("decide", "scout")["code"] == "usage"
    assert cli.refused("decide", "scout", "-", "-m", "-")["code"] == "invalid-option"
    assert cli.refused("decide", "scout", "yes", "--by", " ")["code"] == "invalid-by"
    cli.ask({"question": "And?"})
    assert cli.refused("decide", "scout", "yes")["code"] == "several-requests"
    assert cli.refused("decide", "nobody", "yes")["code"] == "no-such-agent"
    assert (cli.head(), len(cli.json("inbox"))) == (before, 2)


def test_decide_points_to_resume_for_a_request_that_is_not_for_people(cli: SessionCli) -> None:
    cli.json("session", "start", "scout", "product")
    for words, code in (([], "nothing-pending"), (["--request", "1.1"], "not-a-human-request")):
        error = cli.refused("decide", "scout", "5", *words, code=2 if not words else 1)
        assert (error["code"], error["hints"]) == (code, ["clia session resume scout VALUE --request 1.1"])


def test_the_operators_configuration_decides_which_answers_are_valid(cli: SessionCli) -> None:
    config = cli.file("config.toml", '[answers.human]\nschema = {enum = ["ship", "stop"]}\n')
    cli.ask({"question": "Go?", "choices": ["yes", "no"]})
    env = {"CLIA_CONFIG": config}
    assert ["choices", "1", "ship", "2", "stop"] in rows(cli("inbox", env=env))
    assert cli("decide", "scout", "yes", env=env, code=2).err.startswith("error: invalid-answer: ")
    assert '"ship" on ask-1.1' in cli("decide", "scout", "ship", env=env).out
    missing = {"CLIA_CONFIG": str(cli.root / "none.toml")}
    assert "error: no-such-config: " in cli("inbox", env=missing, code=2).err
    broken = {"CLIA_CONFIG": cli.file("broken.toml", "[answers")}
    assert "error: invalid-config: " in cli("inbox", env=broken, code=2).err


def test_at_a_terminal_decide_shows_the_question_and_asks(cli: SessionCli) -> None:
    cli.start("approval", {"goal": "x"})
    cli.json("session", "resume", "scout", "the plan")
    with cli.terminal("decide", "scout") as terminal:
        screen = terminal.sees("answer (1 to 2): ")
        assert "    Go on?" in screen
        assert "the plan" in screen
        assert "clia decide" not in screen  # they are in progress
        terminal.types("")
        terminal.sees("answer (1 to 2): ")
        terminal.types("2")
        terminal.sees("why (may be empty): ")
        terminal.types("too risky")
        assert terminal.ends() == 0
    assert git("log", "-1", "--format=%s", "agents/scout", cwd=cli.root) == "too risky\n"
    assert f'{cli.head()[:10]} decision by Tess <tess@example.org>: "reject" on 1.2' in terminal.plain
    with cli.space() as space:
        assert space.session("scout").result == {"status": "rejected"}


def test_at_a_terminal_an_invalid_answer_is_followed_by_another_prompt(cli: SessionCli) -> None:
    cli.ask({"question": "How many?", "schema": {"type": "integer"}})
    with cli.terminal("decide", "scout", "-m", "counted") as terminal:
        terminal.sees("answer: ")
        terminal.types("many")
        assert 'error: invalid-answer: "many" does not answer ask-1.1' in terminal.sees("\nanswer: ")
        terminal.types("5")
        assert terminal.ends() == 0
    with cli.space() as space:
        assert space.session("scout", "ask-1").result == 5


def test_at_a_terminal_the_reason_is_asked_only_after_a_valid_answer(cli: SessionCli) -> None:
    cli.ask({"question": "How many?", "choices": [3, 2, 1]})
    with cli.terminal("decide", "scout") as terminal:
        terminal.sees("answer (a to c): ")
        terminal.types("4")
        refused = terminal.sees("answer (a to c): ")
        assert "error: invalid-answer: 4 does not answer ask-1.1" in refused
        assert "why" not in refused
        terminal.types("1")
        terminal.sees("why (may be empty): ")
        terminal.types("")
        assert terminal.ends() == 0
    with cli.space() as space:
        assert space.session("scout", "ask-1").result == 1


def test_at_a_terminal_one_of_several_questions_can_be_chosen(cli: SessionCli) -> None:
    cli.ask({"question": "First?"})
    cli.ask({"question": "Second?"})
    with cli.terminal("decide", "scout", "-m", "so") as terminal:
        listed = terminal.sees("which of these 2 requests: ").splitlines()
        assert listed[:2] == ["1  ask-1.1  First?", "2  ask-2.1  Second?"]
        terminal.types("9")
        terminal.sees("which of these 2 requests: ")
        terminal.types("2")
        terminal.sees("answer: ")
        terminal.types("yes")
        assert terminal.ends() == 0
    assert [request["question"] for request in cli.json("inbox")] == ["First?"]


def test_leaving_without_an_answer_decides_nothing(cli: SessionCli) -> None:
    cli.ask({"question": "Go?"})
    before = cli.head()
    with cli.terminal("decide", "scout") as terminal:
        terminal.sees("answer: ")
        terminal.closes_input()
        assert terminal.ends() == 1
    assert "error: not-decided: nothing was decided" in terminal.plain
    with cli.terminal("decide", "scout", "--request", "7.7") as terminal:
        assert terminal.ends() == 2
    assert "agent 'scout' has no pending request '7.7'" in terminal.plain
    assert (cli.head(), len(cli.json("inbox"))) == (before, 1)


# Asking


def test_an_agent_without_a_flow_asks(cli: SessionCli) -> None:
    ran = cli("ask", "scout", "Tea or coffee?", "--choices", "tea, coffee", "--context", '{"hour": 9}')
    assert ran.out == "ask-1.1  answer: clia decide scout --request ask-1.1\n"
    (request,) = cli.json("inbox")
    assert request["payload"] == {"question": "Tea or coffee?", "choices": ["tea", "coffee"], "hour": 9}
    assert cli.fed("A long\nquestion\n", "ask", "scout", "-", "--json").json()["question"] == "A long\nquestion"
    assert cli.json("session", "list") == []
    assert ["asks", "ask-1.1"] in rows(cli("show", "scout"))


def test_waiting_prints_only_the_answer(cli: SessionCli) -> None:
    for words, answer, out in ((["--wait"], "go on", "go on\n"), (["--wait", "600"], '{"a": 1}', '{"a": 1}\n')):
        with cli.beside("ask", "scout", "Go?", *words) as asking:
            request = asking.line("stderr").partition(":")[0]
            cli.json("decide", "scout", answer, "--request", request)
            assert asking.ends() == (0, out, "")


def test_waiting_with_json_prints_the_decision_too(cli: SessionCli) -> None:
    with cli.beside("ask", "scout", "Go?", "--wait", "--json") as asking:
        with cli.space() as space:
            while not space.pending("scout"):
                assert asking.process.poll() is None
        decision = cli.json("decide", "scout", "yes")
        answered = asking.ends().json()
    assert answered == {"agent": "scout", "request": "ask-1.1", "value": "yes", "decision": decision["cid"]}


def test_a_question_without_an_answer_in_time_exits_3_and_stays_open(cli: SessionCli) -> None:
    ran = cli("ask", "scout", "Go?", "--wait", "0", code=3)
    assert ran.out == ""
    assert "error: not-answered: no answer in time: ask-1.1\n  hint: it stays open: clia decide" in ran.err
    assert len(cli.json("inbox")) == 1


def test_a_question_that_is_cancelled_exits_3(cli: SessionCli) -> None:
    with cli.beside("ask", "scout", "Go?", "--wait") as asking:
        session = asking.line("stderr").partition(".")[0]
        cli.json("session", "cancel", "scout", "--session", session)
        assert asking.ends() == (3, "", "error: not-answered: the question was cancelled: ask-1.1\n")


def test_an_invalid_question_is_refused(cli: SessionCli) -> None:
    assert cli.refused("ask", "scout", " ")["code"] == "empty-question"
    assert cli.refused("ask", "scout", "Go?", "--choices", "a,,b")["fields"] == {"field": "choices"}
    assert cli.refused("ask", "scout", "Go?", "--context", "{")["code"] == "invalid-json"
    for context in ("[1]", '{"question": "another"}', '{"choices": []}'):
        assert cli.refused("ask", "scout", "Go?", "--context", context)["fields"] == {"field": "context"}
    assert cli.refused("ask", "nobody", "Go?")["code"] == "no-such-agent"
    assert cli("ask", "scout", "Go?", "--wait", "soon", code=2).err.startswith("error: usage: ")
    assert cli.json("inbox") == []


# The worker


def test_a_worker_answers_its_requests_and_ends(cli: SessionCli) -> None:
    cli.start("nap", 0.01)
    ran = cli("worker", "--until-idle", "--name", "bee")
    assert ran.out.splitlines()[-3:] == ["scout 1.1 timer", "1 answered", "ended: 1 answered"]
    assert [request["question"] for request in cli.json("inbox")] == ["Rested?"]
    with cli.space() as space:
        assert space.journal("scout")[1]["resume"][5] == "worker bee"


def test_a_worker_reports_in_json_lines(cli: SessionCli) -> None:
    cli.start("nap", 0.01)
    lines = [json.loads(line) for line in cli("worker", "--until-idle", "--json").out.splitlines()]
    assert (lines[-1]["answered"], lines[-1]["running"]) == (1, [])
    assert any(line["running"] and line["running"][0]["kind"] == "timer" for line in lines)
    assert [problem["kind"] for problem in lines[-1]["problems"]] == ["llm"]  # the llm effect is not configured


def test_once_leaves_requests_that_are_not_due(cli: SessionCli) -> None:
    cli.start("nap", 3600)
    assert cli("worker", "--once").out.splitlines()[-1] == "ended: nothing answered"
    assert cli.json("inbox", "--all")[0]["kind"] == "timer"


def test_a_worker_answers_only_its_kinds_and_refuses_unknown_ones(cli: SessionCli) -> None:
    cli.start("nap", 0.01)
    assert cli("worker", "--until-idle", "--kinds", "merge,commit").out.splitlines()[-1] == "ended: nothing answered"
    error = cli.refused("worker", "--once", "--kinds", "timer,frobnicate")
    assert (error["code"], error["fields"]["kind"]) == ("unknown-effect", "frobnicate")
    assert cli.refused("worker", "--kinds", "timer,")["code"] == "invalid-option"
    for name in (" ", "two\nlines"):
        assert cli.refused("worker", "--once", "--name", name)["fields"] == {"field": "name"}
    for words in (["--once", "--until-idle"], ["--concurrency", "0"]):
        assert cli("worker", *words, code=2).err.startswith("error: usage: ")


def test_a_worker_continues_after_its_output_is_closed(cli: SessionCli) -> None:
    cli.start("nap", 0.01)
    with cli.beside("worker", "--until-idle") as working:
        assert working.process.stdout is not None
        working.process.stdout.close()
        assert working.process.wait(60) == 0
    assert [request["question"] for request in cli.json("inbox")] == ["Rested?"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_worker_ends_in_order_after_a_signal(cli: SessionCli, number: signal.Signals) -> None:
    cli.start("nap", 0.01)
    with cli.beside("worker", "--json") as working:
        while json.loads(working.line())["answered"] == 0:
            pass
        working.process.send_signal(number)
        working.process.wait(60)
        assert working.ends().code == 0


def test_at_a_terminal_a_worker_shows_what_it_does(cli: SessionCli) -> None:
    cli.start("nap", 3600)
    with cli.terminal("worker") as terminal:
        terminal.sees("1 waiting")
        os.kill(terminal.process.pid, signal.SIGINT)
        assert terminal.ends() == 0
    assert "ended: nothing answered" in terminal.plain


# Doctor, show


def test_doctor_finds_a_session_that_the_store_lost_and_repairs_it(cli: SessionCli) -> None:
    cli.start("product")
    with cli.space() as space:
        space.commit("scout", "finding", {"a": b"a"})
    assert cli.json("doctor")["space"]["ailments"] == []
    for path in (cli.root / ".git/clia").glob("space.db*"):
        path.unlink()
    ailments = cli.json("doctor", code=1)["space"]["ailments"]
    assert [(ailment["code"], ailment["agent"], ailment["session"], ailment["repaired"]) for ailment in ailments] == [
        ("store-lost", "", "", False),
        ("lost-session", "scout", "1", False),
    ]
    ran = cli("doctor", code=1)
    assert "✗ wrong  store: store-lost: " in ran.out
    assert "✗ wrong  scout, session 1: lost-session: " in ran.out
    assert "repair what can be repaired with: clia doctor --repair" in ran.out
    assert "✓ repaired  scout, session 1: lost-session: " in cli("doctor", "--repair").out
    assert cli.json("doctor")["space"]["ailments"] == []
    assert cli.json("session", "resume", "scout", "2")["pending"][0]["id"] == "1.2"


def test_doctor_checks_the_given_store(postgres_address: str, cli: SessionCli) -> None:
    address = postgres_url(postgres_address)
    with library.open(cli.root, settings=QUICK._replace(store=address)) as space:
        space.start("scout", "product")
        with space.local.store.writing() as transaction:
            transaction.values.put("live/scout/1", 5)
    assert [ailment["code"] for ailment in cli.json("doctor", code=1)["space"]["ailments"]] == ["store-lost"]
    ailments = cli.json("doctor", "--store", address, code=1)["space"]["ailments"]
    assert [(ailment["agent"], ailment["code"]) for ailment in ailments] == [("scout", "row-differs")]
    assert "✓ repaired  scout, session 1: row-differs" in cli("doctor", "--store", address, "--repair").out
    assert cli.json("doctor", "--store", address)["space"]["ailments"] == []


def test_show_has_the_state_of_an_agents_session(cli: SessionCli) -> None:
    assert cli.json("show", "scout")["session"] is None
    cli.start("product")
    assert ["session", "1", "(product):", "suspended,", "waits", "for", "number", "(1.1)"] in rows(cli("show", "scout"))
    assert cli.json("show", "scout")["session"]["pending"][0]["kind"] == "number"


EVERY = (
    *(["flow", "list"], ["flow", "show", "x"], ["flow", "define", "x", os.devnull]),
    *(["session", "start", "a", "x"], ["session", "show", "a"], ["session", "resume", "a", "1"], ["session", "fork", "a", "b"]),
    *(["session", "cancel", "a"], ["session", "list"], ["inbox"], ["decide", "a", "1"], ["ask", "a", "x"], ["worker", "--once"]),
)


def test_every_command_fails_outside_a_space(tmp_path: Path) -> None:
    outside = SessionCli(tmp_path)
    for words in EVERY:
        assert outside.refused(*words)["code"] == "no-such-repository", words
    assert outside("flow", "check", outside.file("flow.py", PRODUCT)).out.endswith("flow.py: nothing found\n")  # needs no space


def test_errors_name_the_unknown_agent(cli: SessionCli) -> None:
    for words in (
        ["session", "start", "nobody", "product"],
        ["session", "show", "nobody"],
        ["session", "resume", "nobody", "1"],
        ["session", "fork", "nobody", "other"],
        ["session", "cancel", "nobody"],
    ):
        error = cli.refused(*words)
        assert (error["code"], error["fields"]["agent"]) == ("no-such-agent", "nobody"), words
    assert cli.refused("session", "show", "scout")["code"] == "no-such-session"
    assert cli.refused("session", "show", "scout", "--session", "9")["code"] == "no-such-session"


def test_a_redacted_answer_is_reported(cli: SessionCli) -> None:
    secret = FAKES[0].text
    cli.inside("session", "start", "scout", "question", "--input", json.dumps({"payload": {"question": secret}}))
    decided = cli.inside("decide", "scout", "--text", f"use {secret}")
    assert "redacted 1 secret in the answer: the flow gets it as shown" in decided.out
    assert "2 secrets in its input, answers or result" in decided.out
    assert secret not in decided.out

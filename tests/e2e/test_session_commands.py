"""Flows, sessions, questions, decisions and workers through the installed program, as people and programs use it."""

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
        """The next line that it writes."""
        text = getattr(self.process, stream).readline()
        assert text, self.process.poll()
        return str(text)

    def ends(self) -> Ran:
        out, err = self.process.communicate()
        return Ran(self.process.returncode, out, err)


class Here(NamedTuple):
    """A space with the agent ``scout`` and some flows; commands run there."""

    root: Path

    def __call__(self, *words: str, code: int = 0, env: dict[str, str] | None = None) -> Ran:
        ran = clia(*words, cwd=self.root, env={"COLUMNS": "200"} | (env or {}))
        assert ran.code == code, ran
        return ran

    def inside(self, *words: str) -> Ran:
        """Run in this process: there are many commands, and starting takes long."""
        out, err = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            needs_no_space = words[:2] == ("flow", "check")
            done = main([*words, *(() if needs_no_space else ("--path", str(self.root)))])
        return Ran(done, out.getvalue(), err.getvalue())

    def json(self, *words: str, code: int = 0) -> Any:
        ran = self.inside(*words, "--json")
        assert (ran.code, ran.err) == (code, ""), ran
        return ran.json()

    def refused(self, *words: str, code: int = 2) -> dict[str, Any]:
        """The error; there is no answer beside it."""
        ran = self.inside(*words, "--json")
        assert (ran.code, ran.out) == (code, ""), ran
        error: dict[str, Any] = json.loads(ran.err)["error"]
        return error

    def fed(self, text: str | bytes, *words: str) -> Ran:
        """Run with something on standard input."""
        data = text.encode() if isinstance(text, str) else text
        done = subprocess.run([warm.program(), *words], cwd=self.root, input=data, capture_output=True, check=False)
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    @contextmanager
    def beside(self, *words: str) -> Iterator[Running]:
        """A program that runs beside the test, and not longer than it."""
        with subprocess.Popen(
            [warm.program(), *words], cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            watchdog = threading.Timer(PATIENCE, process.kill)  # else a test that fails would wait for ever
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
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    for key in [key for key in os.environ if key.startswith(("GIT_", "CLIA_"))]:
        monkeypatch.delenv(key)
    root = tmp_path.resolve() / "w"
    with library.init(root, settings=QUICK) as space:
        space.spawn("scout", library.Briefing("Look around"))
        for name, source in FLOWS.items():
            space.define(name, source)
    for key, value in (("user.name", "Tess"), ("user.email", "tess@example.org"), ("clia.durable", "false")):
        git("config", key, value, cwd=root)
    return Here(root)


def rows(ran: Ran) -> list[list[str]]:
    """The words of each line."""
    return [line.split() for line in ran.out.splitlines()]


# Flows


def test_a_flow_is_defined_once_for_each_source_and_keeps_its_versions(here: Here) -> None:
    file = here.file("plan.py", PRODUCT)
    first = here.json("flow", "define", "plan", file, "-m", "Two numbers")
    assert list(first) == ["name", "cid", "versions", "by", "at", "why", "changed"]
    assert (first["changed"], first["versions"], first["why"]) == (True, [first["cid"]], "Two numbers")
    again = here("flow", "define", "plan", file)
    assert again.out == f"plan {first['cid'][:10]}  unchanged; nothing was written\n"
    assert here.json("flow", "define", "plan", file) == {**first, "changed": False}
    ran = here.fed(PRODUCT + "\n", "flow", "define", "plan", "-")
    assert (ran.code, ran.out.split()[2:]) == (0, ["version", "2"])
    second = here.json("flow", "show", "plan")
    assert (second["versions"], second["source"]) == ([first["cid"], second["cid"]], PRODUCT + "\n")
    assert here.json("flow", "show", first["cid"])["source"] == PRODUCT


def test_flows_are_listed_and_shown_with_numbered_lines(here: Here) -> None:
    assert [each["name"] for each in here.json("flow", "list")] == sorted(FLOWS)
    assert [line[0] for line in rows(here("flow", "list"))] == ["flow", *sorted(FLOWS)]
    shown = here("flow", "show", "product").out
    assert "  2 │     one = request(" in shown
    assert here("flow", "show", "product", "--source").out == PRODUCT
    with library.init(here.root.parent / "empty"):
        assert (
            clia("flow", "list", cwd=here.root.parent / "empty").out
            == "no flows yet; define one with: clia flow define NAME FILE\n"
        )


def test_what_cannot_be_a_flow_is_refused_and_nothing_is_defined(here: Here) -> None:
    before = here.json("flow", "list")
    file = here.file("plan.py", PRODUCT)
    assert here.refused("flow", "define", "No Name", file)["code"] == "invalid-name"
    assert here.refused("flow", "define", "ask", file, code=1)["code"] == "already-exists"
    assert here.refused("flow", "define", "plan", str(here.root / "none"), code=1)["code"] == "file-error"
    assert here.refused("flow", "define", "plan", "-", "-m", "-")["code"] == "invalid-option"
    assert here.refused("flow", "show", "nothing")["code"] == "no-such-flow"
    binary = here.root / "binary"
    binary.write_bytes(b"\xff")
    assert here.refused("flow", "define", "plan", str(binary))["code"] == "invalid-text"
    assert here.json("flow", "list") == before


BROKEN = "def main(input):\n    x = 5\n    return x +\n"


def test_check_tells_in_the_flows_own_lines_what_cannot_work(here: Here) -> None:
    file = here.file("broken.py", BROKEN)
    found = here.json("flow", "check", file, code=1)
    assert (found["file"], found["works"]) == (file, False)
    first = found["problems"][0]
    assert list(first) == ["code", "message", "line", "column", "severity"]
    assert (first["code"], first["line"]) == ("syntax", 3)
    lines = here("flow", "check", file, code=1).out.splitlines()
    assert lines[0].startswith(f"{file}:3:{first['column']}: error: ")
    assert lines[1] == "    3 │     return x +"
    assert lines[2].rstrip().endswith("^")
    assert lines[-1].startswith(f"{file}: ")
    assert " error" in lines[-1]


def test_define_shows_the_same_and_defines_nothing(here: Here) -> None:
    ran = here("flow", "define", "plan", here.file("broken.py", BROKEN), code=2)
    assert ran.out == ""
    assert "    3 │     return x +\n" in ran.err
    assert "error: invalid-flow: plan:3:" in ran.err
    error = here.refused("flow", "define", "plan", here.file("broken.py", BROKEN))
    assert (error["code"], error["fields"]["problems"][0]["line"]) == ("invalid-flow", 3)
    assert here.refused("flow", "show", "plan")["code"] == "no-such-flow"


def test_a_flow_that_works_checks_clean(here: Here) -> None:
    for name, source in FLOWS.items():
        file = here.file(f"{name}.py", source)
        assert here.inside("flow", "check", file) == (0, f"{file}: nothing found\n", ""), name
    assert here.fed(PRODUCT, "flow", "check", "-", "--no-types").out == "-: nothing found\n"


def test_a_flow_is_checked_outside_any_repository_also_as_some_editors_save_it(tmp_path: Path) -> None:
    outside = Here(tmp_path / "nowhere")
    outside.root.mkdir()
    file = tmp_path / "flow.py"
    file.write_bytes(b"\xef\xbb\xbf" + PRODUCT.encode())
    assert outside("flow", "check", str(file)).out == f"{file}: nothing found\n"
    assert outside.fed(file.read_bytes(), "flow", "check", "-").out == "-: nothing found\n"
    assert list(outside.root.iterdir()) == []


def test_an_awaitable_that_is_used_without_await_is_told_by_the_types(here: Here) -> None:
    source = "def main(input):\n    asked = request('n')\n    return asked + 1\n"
    found = here.json("flow", "check", here.file("forgotten.py", f"async {source}"), code=1)
    assert [(each["code"], each["line"]) for each in found["problems"]] == [("type", 3)]
    assert here.json("flow", "check", here.file("plain.py", source))["works"]


# Sessions


def test_a_session_is_started_resumed_and_shown_to_its_end(here: Here) -> None:
    started = here.json("session", "start", "scout", "product")
    assert (started["status"], [each["id"] for each in started["pending"]]) == ("suspended", ["1.1"])
    ran = here("session", "resume", "scout", "15")
    assert ran.out.splitlines()[0] == "scout  session 1  suspended"
    assert "waits for  number (1.2): number" in ran.out
    done = here.json("session", "resume", "scout", "3", "--request", "1.2")
    assert (done["status"], done["result"]) == ("finished", 45)
    shown = here.json("session", "show", "scout", "--journal")
    assert (shown["resumes"], shown["decisions"], shown["input"]) == ([15, 3], [], None)
    assert [each["event"] for each in shown["journal"]] == ["started", "resumed", "resumed", "ended"]
    lines = rows(here("session", "show", "scout", "--journal"))
    assert ["result", "45"] in lines
    assert ["2", "resumed", "call", "1:", "15", "Tess", "<tess@example.org>"] in [line[:7] for line in lines]
    assert "journal" not in here.json("session", "show", "scout", "--session", "1")


def test_the_input_comes_as_json_from_an_option_a_file_or_standard_input(here: Here) -> None:
    value = {"kind": "number", "payload": {"n": 1}}
    for words, text in (
        (["--input", json.dumps(value)], ""),
        (["--input-file", here.file("input.json", json.dumps(value))], ""),
        (["--input-file", "-"], json.dumps(value)),
    ):
        ran = here.fed(text, "session", "start", "scout", "question", "--json", *words)
        assert ran.json()["pending"][0]["payload"] == {"n": 1}, words
        with here.space() as space:
            assert space.cancel("scout").input == value
    for words, field in ((["--input", "{"], "--input"), (["--input-file", here.file("bad.json", "x")], "--input-file")):
        error = here.refused("session", "start", "scout", "question", *words)
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
def test_an_answer_is_json_or_else_text(here: Here, words: Sequence[str], text: str, value: Any) -> None:
    here.start("careful", {"find": "it"})
    ran = here.fed(text, "session", "resume", "scout", *words, "--json")
    assert ran.code == 0, ran
    assert ran.json()["pending"][0]["payload"] == value


def test_a_request_takes_one_answer_and_a_question_takes_a_decision(here: Here) -> None:
    here.start("product")
    assert here.refused("session", "resume", "scout")["code"] == "usage"
    assert here.refused("session", "resume", "scout", "1", "--error", "x")["code"] == "usage"
    assert here.refused("session", "resume", "scout", "1", "--request", "1.9")["code"] == "no-such-request"
    here.json("session", "resume", "scout", "1")
    stale = here.refused("session", "resume", "scout", "2", "--request", "1.1", code=1)
    assert (stale["code"], stale["fields"]["value"]) == ("stale-request", 1)
    question = here.ask({"question": "Go?"})
    error = here.refused("session", "resume", "scout", "yes", "--request", question, code=1)
    assert (error["code"], error["hints"]) == ("human-request", [f"clia decide scout VALUE --request {question} -m WHY"])


def test_a_fork_goes_its_own_way_from_now_or_from_a_commit(here: Here) -> None:
    here.start("product")
    with here.space() as space:
        start = space.commit("scout", "finding", {"a": b"a"})
    here.json("session", "resume", "scout", "15")
    assert here.json("session", "fork", "scout", "other")["forked"]["agent"] == "scout"
    ran = here("session", "fork", "scout", "early", "--at", start[:12])
    assert ran.out.splitlines()[0] == "early  session 1  suspended"
    assert f"from scout, session 1, at {start[:10]}" in ran.out
    assert here.json("session", "resume", "scout", "3")["result"] == 45
    assert here.json("session", "resume", "other", "100")["result"] == 1500
    assert here.json("session", "show", "early")["resumes"] == []
    assert "forked" in here("show", git("rev-list", "-1", "agents/early", cwd=here.root).strip()).out
    assert here.refused("session", "fork", "scout", "scout")["code"] == "same-agent"
    assert here.refused("session", "fork", "scout", "fresh")["code"] == "no-such-session"


def test_a_session_and_an_open_question_can_be_cancelled_once(here: Here) -> None:
    here.start("product")
    question = here.ask({"question": "Go?"})
    ran = here("session", "cancel", "scout", "-m", "nobody needs it")
    assert ran.out.splitlines()[0] == "scout  session 1  cancelled"
    assert ["reason", "nobody", "needs", "it"] in rows(ran)
    assert here.json("session", "cancel", "scout", "--session", question.partition(".")[0])["status"] == "cancelled"
    assert here.refused("session", "cancel", "scout", code=1)["code"] == "session-over"


def test_sessions_are_listed_live_ones_first(here: Here) -> None:
    assert here("session", "list").out == "no sessions yet; start one with: clia session start AGENT FLOW\n"
    here.start("product")
    here.json("session", "cancel", "scout")
    here.start("approval", {"goal": "x"})
    found = here.json("session", "list")
    assert [(each["id"], each["status"]) for each in found] == [("2", "suspended"), ("1", "cancelled")]
    assert here.json("session", "list", "scout", "--live") == found[:1]
    assert [here.json("session", "show", "scout", *words)["id"] for words in ([], ["--session", "1"])] == ["2", "1"]
    assert [line[:4] for line in rows(here("session", "list"))[1:]] == [
        ["scout", "2", "approval", "suspended"],
        ["scout", "1", "product", "cancelled"],
    ]
    assert here.refused("session", "list", "nobody")["code"] == "no-such-agent"


def test_a_flow_that_fails_says_why_and_where(here: Here) -> None:
    with here.space() as space:
        space.define("fails", "def main(input):\n    return 1 / request('n', None)\n")
    here.start("fails")
    ran = here("session", "resume", "scout", "0")
    assert ran.out.splitlines()[0] == "scout  session 1  failed"
    assert "ZeroDivisionError" in ran.out
    assert "(line 2)" in ran.out
    shown = here("session", "show", "scout").out
    assert "return 1 / request('n', None)" in shown or "line 2, in main" in shown


# Inbox


def test_the_inbox_shows_the_question_its_context_its_choices_and_how_to_answer(here: Here) -> None:
    here.start("approval", {"goal": "Count the apples"})
    assert here("inbox").out == "nothing waits for you; 1 request waits for a worker (show them with --all)\n"
    here.json("session", "resume", "scout", json.dumps("First this.\nThen that."))
    lines = here("inbox").out.splitlines()
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
    (found,) = here.json("inbox", "scout")
    assert (found["question"], found["choices"], found["for_people"]) == ("Go on?", ["approve", "reject"], True)


def test_the_inbox_is_oldest_first_and_all_shows_what_a_worker_answers(here: Here) -> None:
    with here.space() as space:
        space.spawn("lead", library.Briefing("Lead"))
        space.start("lead", "question", {"payload": {"question": "First?"}})
        space.start("scout", "question", {"kind": "llm", "payload": {"prompt": "Think"}})
        space.ask("scout", {"question": "Second?"})
    assert [each["question"] for each in here.json("inbox")] == ["First?", "Second?"]
    assert [each["id"] for each in here.json("inbox", "scout")] == ["ask-1.1"]
    everything = here("inbox", "--all").out
    assert "scout waits for llm  1.1" in everything
    assert everything.endswith("3 requests wait\n")
    assert here.refused("inbox", "nobody")["code"] == "no-such-agent"


def test_the_inbox_shows_what_workers_tried(here: Here) -> None:
    here.start("question", {"kind": "llm", "payload": {"prompt": "Think"}})
    config = here.file("llm.toml", '[effects.llm]\nurl = "http://127.0.0.1:9/v1"\nmodel = "m"\n[worker]\nbackoff_seconds = 3600\n')
    assert here.json("inbox", "--all")[0]["tried"] is None
    here("worker", "--once", "--config", config)
    (found,) = here.json("inbox", "--all")
    assert list(found["tried"]) == ["attempts", "worker", "until", "next_at", "error"]
    assert (found["tried"]["attempts"], found["tried"]["worker"]) == (1, None)
    assert found["tried"]["error"]
    shown = here("inbox", "--all").out
    assert "tried  1 attempt; again at " in shown
    assert f"last: {found['tried']['error']}"[:40] in shown


def test_a_rule_and_every_choice_are_shown_as_they_are(here: Here) -> None:
    for rule, shown in (
        ({"choices": [3, 2, 1]}, ["choices", "a", "3", "b", "2", "c", "1"]),
        ({"choices": ["true", True]}, ["choices", "1", '"true"', "2", "true"]),
        ({"choices": ["", "no"]}, ["choices", "1", '""', "2", '"no"']),
        ({"schema": {"type": "integer"}}, ["must", "be", '{"type":', '"integer"}']),
    ):
        session = here.ask({"question": "Which?", **rule}).partition(".")[0]
        assert shown in rows(here("inbox")), rule
        assert rule.get("schema", {"enum": rule.get("choices")}) == here.json("inbox")[0]["schema"]
        here.json("session", "cancel", "scout", "--session", session)


def test_a_long_context_is_cut_with_a_hint_and_session_show_has_it_whole(here: Here) -> None:
    here.start("question", {"payload": {"question": "Go?", "plan": "word " * 1000 + "end"}})
    cut = here("inbox").out
    assert "more characters)" in cut
    assert "in full  clia session show scout --session 1" in cut
    assert " end" not in cut
    assert " end" in here("session", "show", "scout").out


def test_no_word_of_a_flow_acts_on_a_terminal(here: Here) -> None:
    payload = {"question": f"Go {RED}?\nscout asks  9.9", "plan": f"{RED}\r", f"key {RED}": 1, "choices": [f"yes {RED}"]}
    here.start("question", {"payload": payload})
    for words in (["inbox"], ["session", "show", "scout", "--journal"], ["session", "list"], ["show", "scout"]):
        with here.terminal(*words) as terminal:
            assert terminal.ends() == 0
            assert "\x1b[31mred" not in terminal.shown, words
            assert "\r\r" not in terminal.shown, words
            assert "\nscout asks  9.9" not in terminal.plain, words
    assert HARMLESS in here("inbox").out


# Decisions


def test_a_decision_is_a_commit_and_the_session_goes_on(here: Here) -> None:
    here.start("approval", {"goal": "x"})
    here.json("session", "resume", "scout", "plan")
    before = here.head()
    made = here.json("decide", "scout", "approve", "-m", "It is sound.", "--by", "Ann <ann@example.org>")
    assert list(made) == ["cid", "agent", "request", "value", "by", "session"]
    assert (made["cid"], made["request"], made["value"]) == (here.head(), "1.2", "approve")
    assert made["session"]["result"] == {"status": "done", "plan": "plan"}
    assert git("log", "-1", "--format=%P %s", "agents/scout", cwd=here.root).split() == [before, "It", "is", "sound."]
    shown = rows(here("show", made["cid"]))
    for row in (["request", "1.2"], ["tag", "go-on"], ["value", '"approve"'], ["by", "Ann", "<ann@example.org>"]):
        assert row in shown
    error = here.refused("decide", "scout", "reject", "--request", "1.2", code=1)
    assert (error["code"], error["fields"]["answered_by"]) == ("stale-request", "Ann <ann@example.org>")
    assert error["fields"]["decision"] == here.head()


def test_the_answer_is_a_choice_by_its_text_else_json_else_text(here: Here) -> None:
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
        here.ask({"question": "Which?", **({"choices": choices} if choices else {})})
        assert here.json("decide", "scout", *words)["value"] == value, words
    here.ask({"question": "Which?"})
    ran = here.fed("a text\n", "decide", "scout", "-")
    assert (ran.code, '"a text"' in ran.out) == (0, True)


def test_an_invalid_answer_is_refused_with_the_reason_and_changes_nothing(here: Here) -> None:
    here.ask({"question": "Go?", "choices": ["yes", "no"]})
    before = here.head()
    error = here.refused("decide", "scout", "maybe")
    assert (error["code"], error["hints"]) == ("invalid-answer", ['choices: "yes", "no"'])
    assert here.refused("decide", "scout")["code"] == "usage"
    assert here.refused("decide", "scout", "-", "-m", "-")["code"] == "invalid-option"
    assert here.refused("decide", "scout", "yes", "--by", " ")["code"] == "invalid-by"
    here.ask({"question": "And?"})
    assert here.refused("decide", "scout", "yes")["code"] == "several-requests"
    assert here.refused("decide", "nobody", "yes")["code"] == "no-such-agent"
    assert (here.head(), len(here.json("inbox"))) == (before, 2)


def test_decide_points_to_resume_for_a_request_that_is_not_for_people(here: Here) -> None:
    here.json("session", "start", "scout", "product")
    for words, code in (([], "nothing-pending"), (["--request", "1.1"], "not-a-human-request")):
        error = here.refused("decide", "scout", "5", *words, code=2 if not words else 1)
        assert (error["code"], error["hints"]) == (code, ["clia session resume scout VALUE --request 1.1"])


def test_the_operators_configuration_decides_which_answers_are_valid(here: Here) -> None:
    config = here.file("config.toml", '[answers.human]\nschema = {enum = ["ship", "stop"]}\n')
    here.ask({"question": "Go?", "choices": ["yes", "no"]})
    env = {"CLIA_CONFIG": config}
    assert ["choices", "1", "ship", "2", "stop"] in rows(here("inbox", env=env))
    assert here("decide", "scout", "yes", env=env, code=2).err.startswith("error: invalid-answer: ")
    assert '"ship" on ask-1.1' in here("decide", "scout", "ship", env=env).out
    missing = {"CLIA_CONFIG": str(here.root / "none.toml")}
    assert "error: no-such-config: " in here("inbox", env=missing, code=2).err
    broken = {"CLIA_CONFIG": here.file("broken.toml", "[answers")}
    assert "error: invalid-config: " in here("inbox", env=broken, code=2).err


def test_at_a_terminal_decide_shows_the_question_and_asks(here: Here) -> None:
    here.start("approval", {"goal": "x"})
    here.json("session", "resume", "scout", "the plan")
    with here.terminal("decide", "scout") as terminal:
        shown = terminal.sees("answer (1 to 2): ")
        assert "    Go on?" in shown
        assert "the plan" in shown
        assert "clia decide" not in shown  # they are at it
        terminal.types("")
        terminal.sees("answer (1 to 2): ")
        terminal.types("2")
        terminal.sees("why (may be empty): ")
        terminal.types("too risky")
        assert terminal.ends() == 0
    assert git("log", "-1", "--format=%s", "agents/scout", cwd=here.root) == "too risky\n"
    assert f'{here.head()[:10]} decision by Tess <tess@example.org>: "reject" on 1.2' in terminal.plain
    with here.space() as space:
        assert space.session("scout").result == {"status": "rejected"}


def test_at_a_terminal_an_invalid_answer_is_asked_for_again(here: Here) -> None:
    here.ask({"question": "How many?", "schema": {"type": "integer"}})
    with here.terminal("decide", "scout", "-m", "counted") as terminal:
        terminal.sees("answer: ")
        terminal.types("many")
        assert 'error: invalid-answer: "many" does not answer ask-1.1' in terminal.sees("\nanswer: ")
        terminal.types("5")
        assert terminal.ends() == 0
    with here.space() as space:
        assert space.session("scout", "ask-1").result == 5


def test_at_a_terminal_why_is_asked_only_of_a_valid_answer(here: Here) -> None:
    here.ask({"question": "How many?", "choices": [3, 2, 1]})
    with here.terminal("decide", "scout") as terminal:
        terminal.sees("answer (a to c): ")
        terminal.types("4")
        refused = terminal.sees("answer (a to c): ")
        assert "error: invalid-answer: 4 does not answer ask-1.1" in refused
        assert "why" not in refused
        terminal.types("1")
        terminal.sees("why (may be empty): ")
        terminal.types("")
        assert terminal.ends() == 0
    with here.space() as space:
        assert space.session("scout", "ask-1").result == 1


def test_at_a_terminal_one_of_several_questions_can_be_chosen(here: Here) -> None:
    here.ask({"question": "First?"})
    here.ask({"question": "Second?"})
    with here.terminal("decide", "scout", "-m", "so") as terminal:
        listed = terminal.sees("which of these 2 requests: ").splitlines()
        assert listed[:2] == ["1  ask-1.1  First?", "2  ask-2.1  Second?"]
        terminal.types("9")
        terminal.sees("which of these 2 requests: ")
        terminal.types("2")
        terminal.sees("answer: ")
        terminal.types("yes")
        assert terminal.ends() == 0
    assert [each["question"] for each in here.json("inbox")] == ["First?"]


def test_whoever_leaves_without_an_answer_has_decided_nothing(here: Here) -> None:
    here.ask({"question": "Go?"})
    before = here.head()
    with here.terminal("decide", "scout") as terminal:
        terminal.sees("answer: ")
        terminal.closes_input()
        assert terminal.ends() == 1
    assert "error: not-decided: nothing was decided" in terminal.plain
    with here.terminal("decide", "scout", "--request", "7.7") as terminal:
        assert terminal.ends() == 2
    assert "agent 'scout' has no pending request '7.7'" in terminal.plain
    assert (here.head(), len(here.json("inbox"))) == (before, 1)


# Asking


def test_an_agent_without_a_flow_asks(here: Here) -> None:
    ran = here("ask", "scout", "Tea or coffee?", "--choices", "tea, coffee", "--context", '{"hour": 9}')
    assert ran.out == "ask-1.1  answer: clia decide scout --request ask-1.1\n"
    (found,) = here.json("inbox")
    assert found["payload"] == {"question": "Tea or coffee?", "choices": ["tea", "coffee"], "hour": 9}
    assert here.fed("A long\nquestion\n", "ask", "scout", "-", "--json").json()["question"] == "A long\nquestion"
    assert here.json("session", "list") == []
    assert ["asks", "ask-1.1"] in rows(here("show", "scout"))


def test_whoever_waits_gets_the_answer_and_nothing_else_on_standard_output(here: Here) -> None:
    for words, answer, out in ((["--wait"], "go on", "go on\n"), (["--wait", "600"], '{"a": 1}', '{"a": 1}\n')):
        with here.beside("ask", "scout", "Go?", *words) as asking:
            request = asking.line("stderr").partition(":")[0]
            here.json("decide", "scout", answer, "--request", request)
            assert asking.ends() == (0, out, "")


def test_a_program_that_waits_learns_the_decision_too(here: Here) -> None:
    with here.beside("ask", "scout", "Go?", "--wait", "--json") as asking:
        with here.space() as space:
            while not space.pending("scout"):
                assert asking.process.poll() is None
        made = here.json("decide", "scout", "yes")
        answered = asking.ends().json()
    assert answered == {"agent": "scout", "request": "ask-1.1", "value": "yes", "decision": made["cid"]}


def test_a_question_that_nobody_answers_in_time_exits_3_and_stays_open(here: Here) -> None:
    ran = here("ask", "scout", "Go?", "--wait", "0", code=3)
    assert ran.out == ""
    assert "error: not-answered: no answer in time: ask-1.1\n  hint: it stays open: clia decide" in ran.err
    assert len(here.json("inbox")) == 1


def test_a_question_that_is_cancelled_exits_3(here: Here) -> None:
    with here.beside("ask", "scout", "Go?", "--wait") as asking:
        session = asking.line("stderr").partition(".")[0]
        here.json("session", "cancel", "scout", "--session", session)
        assert asking.ends() == (3, "", "error: not-answered: the question was cancelled: ask-1.1\n")


def test_what_is_no_question_is_refused(here: Here) -> None:
    assert here.refused("ask", "scout", " ")["code"] == "empty-question"
    assert here.refused("ask", "scout", "Go?", "--choices", "a,,b")["fields"] == {"field": "choices"}
    assert here.refused("ask", "scout", "Go?", "--context", "{")["code"] == "invalid-json"
    for context in ("[1]", '{"question": "another"}', '{"choices": []}'):
        assert here.refused("ask", "scout", "Go?", "--context", context)["fields"] == {"field": "context"}
    assert here.refused("ask", "nobody", "Go?")["code"] == "no-such-agent"
    assert here("ask", "scout", "Go?", "--wait", "soon", code=2).err.startswith("usage: clia ask ")
    assert here.json("inbox") == []


# The worker


def test_a_worker_answers_what_it_can_and_ends_when_nothing_is_left(here: Here) -> None:
    here.start("nap", 0.01)
    ran = here("worker", "--until-idle", "--name", "bee")
    assert ran.out.splitlines()[-3:] == ["scout 1.1 timer", "1 answered", "ended: 1 answered"]
    assert [each["question"] for each in here.json("inbox")] == ["Rested?"]
    with here.space() as space:
        assert space.journal("scout")[1]["resume"][5] == "worker bee"


def test_a_worker_tells_programs_in_json_lines(here: Here) -> None:
    here.start("nap", 0.01)
    lines = [json.loads(line) for line in here("worker", "--until-idle", "--json").out.splitlines()]
    assert (lines[-1]["answered"], lines[-1]["running"]) == (1, [])
    assert any(line["running"] and line["running"][0]["kind"] == "timer" for line in lines)
    assert [each["kind"] for each in lines[-1]["problems"]] == ["llm"]  # it is not configured


def test_once_leaves_what_is_not_yet_due(here: Here) -> None:
    here.start("nap", 3600)
    assert here("worker", "--once").out.splitlines()[-1] == "ended: nothing answered"
    assert here.json("inbox", "--all")[0]["kind"] == "timer"


def test_a_worker_keeps_to_its_kinds_and_refuses_those_that_nothing_handles(here: Here) -> None:
    here.start("nap", 0.01)
    assert here("worker", "--until-idle", "--kinds", "merge,commit").out.splitlines()[-1] == "ended: nothing answered"
    error = here.refused("worker", "--once", "--kinds", "timer,frobnicate")
    assert (error["code"], error["fields"]["kind"]) == ("unknown-effect", "frobnicate")
    assert here.refused("worker", "--kinds", "timer,")["code"] == "invalid-option"
    for name in (" ", "two\nlines"):
        assert here.refused("worker", "--once", "--name", name)["fields"] == {"field": "name"}
    for words in (["--once", "--until-idle"], ["--concurrency", "0"]):
        assert here("worker", *words, code=2).err.startswith("usage: clia worker ")


def test_a_worker_whose_reader_went_away_goes_on_working(here: Here) -> None:
    here.start("nap", 0.01)
    with here.beside("worker", "--until-idle") as working:
        assert working.process.stdout is not None
        working.process.stdout.close()
        assert working.process.wait(60) == 0
    assert [each["question"] for each in here.json("inbox")] == ["Rested?"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_worker_that_is_told_to_stop_ends_in_order(here: Here, number: signal.Signals) -> None:
    here.start("nap", 0.01)
    with here.beside("worker", "--json") as working:
        while json.loads(working.line())["answered"] == 0:
            pass
        working.process.send_signal(number)
        working.process.wait(60)
        assert working.ends().code == 0


def test_at_a_terminal_a_worker_shows_what_it_does(here: Here) -> None:
    here.start("nap", 3600)
    with here.terminal("worker") as terminal:
        terminal.sees("1 waiting")
        os.kill(terminal.running.pid, signal.SIGINT)
        assert terminal.ends() == 0
    assert "ended: nothing answered" in terminal.plain


# Doctor, show


def test_doctor_finds_a_session_that_the_store_lost_and_repairs_it(here: Here) -> None:
    here.start("product")
    with here.space() as space:
        space.commit("scout", "finding", {"a": b"a"})
    assert here.json("doctor")["space"]["ailments"] == []
    for each in (here.root / ".git/clia").glob("space.db*"):
        each.unlink()
    found = here.json("doctor", code=1)["space"]["ailments"]
    assert [(each["code"], each["agent"], each["session"], each["repaired"]) for each in found] == [
        ("lost-session", "scout", "1", False)
    ]
    ran = here("doctor", code=1)
    assert "✗ wrong  scout, session 1: lost-session: " in ran.out
    assert "repair what can be repaired with: clia doctor --repair" in ran.out
    assert "✓ repaired  scout, session 1: lost-session: " in here("doctor", "--repair").out
    assert here.json("doctor")["space"]["ailments"] == []
    assert here.json("session", "resume", "scout", "2")["pending"][0]["id"] == "1.2"


def test_doctor_looks_at_the_store_that_it_is_given(postgres_address: str, here: Here) -> None:
    address = postgres_url(postgres_address)
    with library.open(here.root, settings=QUICK._replace(store=address)) as space:
        space.start("scout", "product")
        with space.core.store.writing() as transaction:
            transaction.values.put("live/scout/1", 5)
    assert here.json("doctor")["space"]["ailments"] == []
    found = here.json("doctor", "--store", address, code=1)["space"]["ailments"]
    assert [(each["agent"], each["code"]) for each in found] == [("scout", "row-differs")]
    assert "✓ repaired  scout, session 1: row-differs" in here("doctor", "--store", address, "--repair").out
    assert here.json("doctor", "--store", address)["space"]["ailments"] == []


def test_show_tells_where_an_agents_session_is(here: Here) -> None:
    assert here.json("show", "scout")["session"] is None
    here.start("product")
    assert ["session", "1", "(product):", "suspended,", "waits", "for", "number", "(1.1)"] in rows(here("show", "scout"))
    assert here.json("show", "scout")["session"]["pending"][0]["kind"] == "number"


EVERY = (
    *(["flow", "list"], ["flow", "show", "x"], ["flow", "define", "x", os.devnull]),
    *(["session", "start", "a", "x"], ["session", "show", "a"], ["session", "resume", "a", "1"], ["session", "fork", "a", "b"]),
    *(["session", "cancel", "a"], ["session", "list"], ["inbox"], ["decide", "a", "1"], ["ask", "a", "x"], ["worker", "--once"]),
)


def test_outside_a_space_every_command_says_so(tmp_path: Path) -> None:
    outside = Here(tmp_path)
    for words in EVERY:
        assert outside.refused(*words)["code"] == "no-such-repository", words
    assert outside("flow", "check", outside.file("flow.py", PRODUCT)).out.endswith("flow.py: nothing found\n")  # needs none


def test_whoever_is_unknown_is_named(here: Here) -> None:
    for words in (
        ["session", "start", "nobody", "product"],
        ["session", "show", "nobody"],
        ["session", "resume", "nobody", "1"],
        ["session", "fork", "nobody", "other"],
        ["session", "cancel", "nobody"],
    ):
        error = here.refused(*words)
        assert (error["code"], error["fields"]["agent"]) == ("no-such-agent", "nobody"), words
    assert here.refused("session", "show", "scout")["code"] == "no-such-session"
    assert here.refused("session", "show", "scout", "--session", "9")["code"] == "no-such-session"

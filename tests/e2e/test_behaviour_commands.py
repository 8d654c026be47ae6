"""The commands for behaviours: versions, evidence, adoption, and errors for bad input."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from contextlib import redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import clia as library
from clia.behaviours.model import Rate
from clia.cli.behaviours_stats import chance
from clia.cli.behaviours_versions import rate_text
from clia.cli.main import main
from support import git, program
from support.commands import Commands
from support.terminal import Terminal

if TYPE_CHECKING:
    from pathlib import Path

QUICK = library.Settings(durable=False, person=("Tess", "tess@example.org"))
ASKS = "def main(input):\n    return request('human', {'question': 'Go on?', 'of': input})\n"
STRICT = "def main(input):\n    if input == 2:\n        raise ValueError('odd')\n" + ASKS.partition("\n")[2]
CURT = "def main(input):\n    return request('human', 'Go?')\n"
PROMPT = "You are {{agent}}.\n\n{{task}}\n"
RED = "\x1b[31mred\x1b[0m"
HARMLESS = "\\u{1b}[31mred\\u{1b}[0m"
SEEN = 24
"""Outcomes of each version in the record."""


class BehaviourCli(Commands):
    """A space with the flow ``review``, the prompt ``careful`` and the agent ``scout``."""

    def __call__(self, *words: str, code: int = 0) -> str:
        out = super().__call__(*words, code=code)
        assert all(len(line) <= 80 for line in out.splitlines() if " │ " not in line), "the output must fit into 80 columns"
        return out

    def refused(self, *words: str, code: int = 2) -> dict[str, Any]:
        """The error of a command that must change nothing."""
        before = self.refs()
        error = super().refused(*words, code=code)
        assert self.refs() == before
        return error

    def refs(self) -> str:
        return git("for-each-ref", cwd=self.root)

    def file(self, name: str, text: str) -> str:
        path = self.root.parent / name
        path.write_text(text)
        return str(path)

    def space(self) -> library.Space:
        return library.open(self.root, settings=QUICK)


class BehaviourRecord(NamedTuple):
    """A space in which two versions of ``review`` ran: one is current, the other is on trial and did better."""

    cli: BehaviourCli
    current: str
    trial: str


def new_cli(root: Path) -> BehaviourCli:
    library.init(root, settings=QUICK).close()
    for key, value in (("user.name", "Tess"), ("user.email", "tess@example.org"), ("clia.durable", "false")):
        git("config", key, value, cwd=root)
    cli = BehaviourCli(root)
    with cli.space() as space:
        space.spawn("scout", library.Briefing("Look around"))
        space.behaviours.add("review", STRICT, "session-flow", why="the first")
        space.behaviours.add("careful", PROMPT, "prompt")
    return cli


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in [key for key in os.environ if key.startswith(("GIT_", "CLIA_"))]:
        monkeypatch.delenv(key)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("CLIA_DEBUG", "1")  # raise bugs instead of reporting them


@pytest.fixture
def cli(tmp_path: Path) -> BehaviourCli:
    return new_cli(tmp_path.resolve() / "w")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> BehaviourRecord:
    """Shared, so tests must not change it. The current version passes one time in four, the trial always; each has one session."""
    cli = new_cli(tmp_path_factory.mktemp("record").resolve() / "w")
    with cli.space() as space:
        current = space.behaviours.get("review").versions[0].cid
        trial = space.behaviours.propose("review", ASKS, why="raise nothing").cid
        space.behaviours.adopt("review", trial, trial=True)
        for cid, passes in ((current, 4), (trial, 1)):
            space.start("scout", cid, 1)
            for number in range(SEEN):
                outcome = "pass" if number % passes == 0 else "fail"
                space.commit("scout", "test", {"n": f"{cid}{number}".encode()}, meta={"outcome": outcome})
            space.decide("scout", "yes")
    return BehaviourRecord(cli, current, trial)


@pytest.fixture
def record(written: BehaviourRecord, tmp_path: Path) -> BehaviourRecord:
    """A copy that a test may change."""
    shutil.copytree(written.cli.root, tmp_path / "w")
    return written._replace(cli=BehaviourCli(tmp_path / "w"))


def rows(text: str) -> list[list[str]]:
    """The words of each line."""
    return [line.split() for line in text.splitlines()]


# Versions


def test_a_version_is_added_listed_and_read_back(cli: BehaviourCli) -> None:
    tone = cli.file("tone.md", f"Be kind. {RED}\n")
    version = cli.json("behaviour", "add", "tone", tone, "-m", "people asked", "--notes", "short")
    assert (version["kind"], version["state"], version["why"], version["notes"], version["changed"]) == (
        "prompt",
        "current",
        "people asked",
        "short",
        True,
    )
    assert "body" not in version
    assert cli.json("behaviour", "add", "tone", tone)["changed"] is False
    assert "unchanged; nothing was written" in cli("behaviour", "add", "tone", tone)
    assert cli.json("behaviour", "add", "hello", cli.file("hello.py", CURT))["kind"] == "session-flow"
    assert cli.json("behaviour", "add", "hello", cli.file("hello", ASKS))["kind"] == "session-flow", "the kind of its first version"
    fed = subprocess.run(
        [program(), "behaviour", "add", "plain", "-", "--kind", "prompt"], cwd=cli.root, input="Go.\n", text=True, check=False
    )
    assert (fed.returncode, cli("behaviour", "show", "plain", "--body")) == (0, "Go.\n")
    listed = {behaviour["name"]: behaviour for behaviour in cli.json("behaviour", "list")}
    assert list(listed) == ["careful", "hello", "plain", "review", "tone"]
    assert [version["state"] for version in listed["hello"]["versions"]] == ["former", "current"]
    assert ["tone", "prompt", version["cid"][:10], "1"] in [line[:4] for line in rows(cli("behaviour", "list"))]
    assert cli("behaviour", "show", "tone", "--body") == f"Be kind. {RED}\n", "unchanged in a pipe"
    assert HARMLESS in cli("behaviour", "show", version["cid"][:8])
    behaviour = cli.json("behaviour", "show", "hello")
    assert {"name", "kind", "current", "versions", "history", "body"} == set(behaviour)
    assert behaviour["body"] == ASKS
    assert [event["event"] for event in behaviour["history"]] == ["define", "define"]
    names = [flow["name"] for flow in cli.json("flow", "list")]
    assert names == ["hello", "review"], "the list of flows has no prompts"


def test_invalid_versions_are_refused(cli: BehaviourCli) -> None:
    prompt, flow = cli.file("p.md", "Go.\n"), cli.file("f.py", CURT)
    broken, empty, vague = cli.file("b.py", "def main(input:\n"), cli.file("e.md", " \n"), cli.file("v.rst", "Go.\n")
    error = cli.refused("behaviour", "add", "vague", vague)
    assert (error["code"], error["fields"]["field"]) == ("kind-needed", "kind")
    for words in (("add", "careful", flow), ("propose", "careful", "--from", flow), ("add", "review", prompt)):
        error = cli.refused("behaviour", *words, code=1)
        assert (error["code"], error["fields"]["path"]) == ("wrong-kind", words[-1]), "the kind follows from the file's name"
    assert cli.refused("behaviour", "add", "review", prompt, "--kind", "session-flow")["code"] == "invalid-flow"
    assert cli.json("behaviour", "propose", "careful", "--from", flow, "--kind", "prompt")["kind"] == "prompt", "an explicit kind"
    assert cli.refused("behaviour", "add", "review", prompt, "--kind", "prompt", code=1)["code"] == "wrong-kind"
    assert cli.refused("behaviour", "propose", "careful", "--from", flow, "--kind", "session-flow", code=1)["code"] == "wrong-kind"
    assert cli.refused("behaviour", "add", "empty", empty)["code"] == "invalid-prompt"
    assert cli.refused("behaviour", "add", "Bad Name", prompt)["code"] == "invalid-name"
    assert cli.refused("behaviour", "add", "gone", "nowhere.md", code=1)["code"] == "file-error"
    for words in (("add", "new", broken), ("propose", "review", "--from", broken)):
        assert cli.refused("behaviour", *words)["fields"]["line"] == 1
        assert "1 │ def main(input:" in cli.run("behaviour", *words).err, "the message shows the line"


@pytest.mark.parametrize(
    ("words", "exit_code", "error"),
    [
        (["show", "nobody"], 2, "no-such-behaviour"),
        (["show", "beef"], 2, "no-such-version"),
        (["show", "ann/hello"], 2, "no-such-peer"),
        (["adopt", "nobody", "beef"], 2, "no-such-behaviour"),
        (["adopt", "review", "beef"], 2, "no-such-version"),
        (["adopt", "review", "f" * 40], 2, "no-such-version"),
        (["adopt", "review"], 2, "version-needed"),
        (["adopt", "nobody"], 2, "no-such-behaviour"),
        (["adopt", "review", "beef", "--on-evidence"], 2, "invalid-option"),
        (["adopt", "review", "--measure", "kept"], 2, "invalid-option"),
        (["adopt", "review", "--on-evidence"], 1, "not-suggested"),
        (["retire", "review", "beef"], 2, "no-such-version"),
        (["diff", "review"], 2, "nothing-to-compare"),
        (["diff", "review", "careful", "careful"], 2, "another-behaviour"),
        (["diff", "a", "b", "c", "d"], 2, "too-much"),
        (["lineage", "nobody"], 2, "no-such-behaviour"),
        (["suggest", "nobody"], 2, "no-such-behaviour"),
        (["suggest", "review", "--measure", "joy"], 2, "no-such-measure"),
        (["stats", "beef"], 2, "no-such-version"),
        (["stats", "--measure", "joy"], 2, "no-such-measure"),
        (["compare", "review", "review"], 2, "same-version"),
        (["replay", "--session", "nobody", "--with", "review"], 2, "no-such-agent"),
        (["replay", "--session", "scout/7", "--with", "review"], 2, "no-such-session"),
        (["replay", "--session", "scout", "--with", "careful"], 2, "not-a-flow"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_unknown_names_and_conflicting_options_are_refused(
    written: BehaviourRecord, words: list[str], exit_code: int, error: str
) -> None:
    assert written.cli.refused("behaviour", *words, code=exit_code)["code"] == error


def test_a_proposal_is_read_tried_adopted_and_retired_each_by_a_person(cli: BehaviourCli) -> None:
    first = cli.json("behaviour", "show", "review")["current"]
    head = cli.json("show", "scout")["head"]
    proposal = ("behaviour", "propose", "review", "--from", cli.file("new.py", ASKS), "--agent", "scout", "-m", "raise nothing")
    version = cli.json(*proposal, "--evidence", head[:12])
    cid = version["cid"]
    assert (version["state"], version["parent"], version["evidence"], version["changed"]) == ("proposed", first, [head], True)
    assert version["by"].startswith("scout <")
    assert f"adopt review {cid[:10]} [--trial]" in cli(*proposal), "the next command"
    assert cli.json(*proposal)["changed"] is False
    patch = cli.json("behaviour", "diff", "review")
    assert (patch["before"], patch["after"]) == (first, cid), "from the current version to the proposal"
    assert "-        raise ValueError('odd')\n" in cli("behaviour", "diff", "review") == patch["patch"]
    assert cli.json("behaviour", "diff", cid)["patch"] == cli.json("behaviour", "diff", "review", first[:8], cid[:8])["patch"]
    assert "the versions are identical" in cli.run("behaviour", "diff", cid, cid).err
    assert cli.refused("session", "start", "scout", cid, code=1)["code"] == "not-adopted"
    output = cli("behaviour", "adopt", "review", cid[:8], "--trial")
    command = shlex.split(output.partition("next: clia ")[2].replace("AGENT", "scout"))
    assert cli.json(*command)["flow_cid"] == cid, "the command in the hint works"
    lost = cli.refused("behaviour", "adopt", "review", cid, "--expect", cid[:8], code=1)
    assert (lost["code"], lost["fields"]["actual"]) == ("stale-behaviour", first)
    assert cli.json("behaviour", "show", cid)["state"] == "trial"
    assert "is already on trial; nothing was written" in cli("behaviour", "adopt", "review", cid, "--trial")
    assert cli.json("behaviour", "adopt", "review", cid, "--expect", first[:8], "-m", "it is kinder")["state"] == "current"
    assert "is already current; nothing was written" in cli("behaviour", "adopt", "review", cid)
    assert "was current, and may run by its id; nothing was written" in cli("behaviour", "adopt", "review", first, "--trial")
    assert cli.refused("behaviour", "retire", "review", "--expect", first, code=1)["code"] == "stale-behaviour"
    assert cli.json("behaviour", "retire", "review", "-m", "no need")["current"] is None
    assert cli.refused("behaviour", "suggest", "review")["code"] == "nothing-adopted"
    assert cli.refused("behaviour", "adopt", "review", cid, "--expect", cid, code=1)["fields"]["actual"] is None
    assert cli.json("behaviour", "adopt", "review", cid, "--expect", "none")["state"] == "current", "no version was current"
    cli.json("behaviour", "retire", "review")
    output = cli("behaviour", "show", "review")
    assert [line[2] for line in rows(output) if line and line[0].startswith("20")] == [
        "retire",
        "adopt",
        "retire",
        "adopt",
        "trial",
        "propose",
        "define",
    ]
    assert f"on {head[:10]}" in output
    assert cli.run("flow", "list").out == "no flows yet; define one with: clia flow define NAME FILE\n", (
        "a behaviour without an adopted version is listed"
    )


@pytest.mark.parametrize("agent", ["scout", ""])
def test_agents_cannot_do_what_is_reserved_for_people(cli: BehaviourCli, agent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with cli.space() as space:
        space.ask("scout", {"question": "Go on?"})
    body, head = cli.file("n.py", ASKS), cli.json("behaviour", "show", "review")["current"]
    monkeypatch.setenv("CLIA_AGENT", agent)
    version = cli.json("behaviour", "propose", "review", "--from", body, "--agent", "scout")
    assert version["state"] == "proposed", "an agent may propose"
    for words in (
        ("behaviour", "adopt", "review", version["cid"]),
        ("behaviour", "add", "review", cli.file("o.py", CURT)),
        ("behaviour", "retire", "review", head),
        ("flow", "define", "other", body),
        ("decide", "scout", "yes"),
    ):
        if agent:
            error = cli.refused(*words, code=1)
            assert (error["code"], error["fields"]) == ("person-needed", {"agent": "scout"}), words
        else:
            cli.json(*words)


def test_a_program_run_by_clia_cannot_adopt(cli: BehaviourCli) -> None:
    """Even though it runs as the user who started it."""
    cid = cli.json("behaviour", "propose", "review", "--from", cli.file("n.py", ASKS), "--agent", "scout")["cid"]
    words = [program(), "run", "scout", "-q", "--", program(), "behaviour", "adopt", "review", cid, "--path", str(cli.root)]
    ran = subprocess.run(words, cwd=cli.root, capture_output=True, text=True, check=False)
    assert "person-needed: only a person may do this, and agent 'scout' acts here" in ran.stdout + ran.stderr
    assert cli.json("behaviour", "show", cid)["state"] == "proposed"


def test_the_commands_in_hints_work(cli: BehaviourCli) -> None:
    """After a first proposal, and for flows that cannot be started; long names are listed in full."""
    output = cli("behaviour", "propose", "fresh", "--from", cli.file("fresh.py", CURT))
    command = next(line for line in output.splitlines() if line.startswith("read it: clia "))
    assert "def main(input)" in cli(*command.split()[3:])
    assert cli.refused("session", "start", "scout", "nosuch")["hints"][0] == "flows here: review"
    error = cli.refused("session", "start", "scout", "careful")
    assert (error["message"], error["code"]) == ("'careful' is a prompt, not a flow", "not-a-flow")
    assert error["hints"][0].endswith("clia spawn AGENT --title TITLE --behaviour careful")
    long = "a-behaviour-with-a-name-that-says-all-there-is-to-say"
    cli.json("behaviour", "add", long, cli.file("long.md", "Go.\n"))
    listed = cli("behavior", "list")
    assert listed.splitlines()[1].split()[:2] == [long, cli.json("behaviour", "show", long)["current"][:10]]
    assert cli("rebuild") == "rebuilt the index: 0 relations, and the observations of behaviours\n"


def test_unknown_placeholders_of_a_prompt_are_noted(cli: BehaviourCli) -> None:
    body = cli.file("open.md", f"{{{{task}}}} {{{{ agent }}}} {{{{foo}}}} {{{{foo}}}} {{{{ {RED} }}}} {{}} {{{{}}}}\n")
    for words in (("add", "open", body), ("propose", "open", "--from", body)):
        ran = cli.run("behaviour", *words)
        rest = " is not a placeholder and stays as it is; placeholders are task, agent, title"
        assert ran.code == 0
        assert ran.err.splitlines() == [f"note: {{{{foo}}}}{rest}", f"note: {{{{ {HARMLESS} }}}}{rest}"]
    assert cli.run("behaviour", "add", "hello", cli.file("h.py", f"{CURT}# {{{{foo}}}}\n")).err == "", "a flow has no placeholders"


def test_a_prompt_becomes_the_briefing_of_a_spawn(cli: BehaviourCli) -> None:
    spawned = cli.json("spawn", "digger", "-t", "Dig", "-b", "Dig here.", "--behaviour", "careful", "--meta", "depth=3")
    briefing = cli.json("show", "digger")["briefing"]
    cid = cli.json("behaviour", "show", "careful")["current"]
    assert spawned["agent"] == "digger"
    assert (briefing["text"], briefing["behaviour"]) == ("You are digger.\n\nDig here.\n", cid)
    assert briefing["meta"] == {"depth": 3}
    assert cli.json("spawn", "other", "-t", "Dig", "--behaviour", cid[:8])["agent"] == "other"
    assert cli.refused("spawn", "third", "-t", "x", "--behaviour", "review")["code"] == "not-a-prompt"
    assert cli.refused("spawn", "third", "-t", "x", "--behaviour", "beef")["code"] == "no-such-version"
    candidate = cli.json("behaviour", "propose", "careful", "--from", cli.file("c.md", "Be quick.\n"))["cid"]
    assert cli.refused("spawn", "third", "-t", "x", "--behaviour", candidate, code=1)["code"] == "not-adopted"


def test_a_person_reads_and_adopts_a_behaviour_of_a_peer(tmp_path: Path) -> None:
    ann, bob = new_cli(tmp_path.resolve() / "ann"), new_cli(tmp_path.resolve() / "bob")
    ann("behaviour", "add", "hello", ann.file("hello.py", CURT))
    ann.run("peer", "add", "bob", "--key", bob.run("key", "show").out.strip())
    bob.run("peer", "add", "ann", "--key", ann.run("key", "show").out.strip(), "--url", str(ann.root))
    ann.run("peer", "share", "bob", "--behaviour", "hello")
    ann.run("announce")
    bob.run("cap", "grant", "ann", "behaviour", "behaviour")
    bob.run("sync")
    offered = bob.json("behaviour", "show", "ann/hello")
    assert (offered["name"], offered["state"], offered["body"]) == ("hello", "foreign", CURT)
    denied = bob.refused("session", "start", "scout", "ann/hello", code=1)
    assert denied["code"] == "execute-denied"
    assert any(hint.endswith("clia behaviour adopt ann/hello") for hint in denied["hints"])
    assert bob.refused("behaviour", "adopt", "ann/hello", offered["cid"])["code"] == "invalid-option"
    adopted = bob.json("behaviour", "adopt", "ann/hello", "-m", "it is good")
    assert (adopted["cid"], adopted["state"], adopted["origin"], adopted["changed"]) == (offered["cid"], "current", "ann", True)
    assert bob.json("session", "start", "scout", "hello")["status"] == "suspended"
    assert ["from", "the", "peer", "ann"] in rows(bob("behaviour", "show", "hello"))


# Observations


def test_lineage_draws_a_tree_of_versions_with_rates(written: BehaviourRecord) -> None:
    cli, current, trial = written
    lines = cli("behaviour", "lineage", "review", "--measure", "passed").splitlines()
    assert lines[0].split() == ["review", "session-flow,", "by", "passed"]
    assert lines[1].startswith(f"{current[:10]} current  25 % (12 to 45), n=24  Tess: the first")
    assert lines[2].startswith(f"└── {trial[:10]} trial  100 % (86 to 100), n=24")
    lineage = cli.json("behaviour", "lineage", "review")
    assert (lineage["measure"], lineage["gaps"]) == ("finished", 0)
    assert [(version["cid"], version["parent"], version["children"], version["rate"]["n"]) for version in lineage["versions"]] == [
        (current, None, [trial], 1),
        (trial, current, [], 1),
    ]


def test_stats_show_rates_with_intervals_counts_and_a_plot(written: BehaviourRecord) -> None:
    cli, current, trial = written
    stats = cli.json("behaviour", "stats", "review", "--over", "week")
    assert {"measure", "over", "gaps", "versions"} == set(stats)
    (first, second) = stats["versions"]
    assert (first["cid"], first["outcomes"], second["outcomes"]) == (current, {"failed": 18, "passed": 6}, {"passed": SEEN})
    assert [period["rates"] for period in first["series"]] == [first["rates"]]
    output = cli("behaviour", "stats", "review", "--over", "month", "--measure", "passed")
    drawn = [line for line in output.splitlines() if "n=24" in line]
    assert len(drawn) == 4, "each version in total and for its only month"
    assert drawn[0].split()[:7] == [current[:10], "passed", "25", "%", "(12", "to", "45),"]
    bar = drawn[0].partition("n=24")[2].rstrip()
    assert bar.strip() == "├──●────┤"
    assert drawn[1].endswith("├──●"), "at 100 % the dot is at the end of the scale"
    assert "finished" not in output
    assert "not enough data" not in output
    alone = cli("behaviour", "stats", trial[:8])
    assert ["sessions", "1", "finished"] in rows(alone)
    assert ["outcomes", "24", "passed"] in rows(alone)
    assert "not enough data" in alone, "one session is not enough"
    assert "stats CID" not in alone
    assert output.endswith("\nkinds, times, tokens and traces: clia behaviour stats CID, or --json\n")
    everything = cli("behaviour", "stats")
    assert "never observed: not enough data" in everything, "for the prompt"


def test_stats_report_sessions_and_decisions_outside_of_the_rates(cli: BehaviourCli) -> None:
    with cli.space() as space:
        for value in ("yes", "perhaps", None):
            space.start("scout", "review", 1)
            space.cancel("scout") if value is None else space.decide("scout", value)
        steps: list[tuple[int, int]] = []
        space.behaviours.stats("review", progress=lambda *at: steps.append(at))
    assert (steps[0][0], steps[-1][0]) == (0, steps[-1][1]), "the total is known before the first commit is read"
    output = cli("behaviour", "stats", "review")
    assert "in no rate: 1 cancelled session, 1 decision that said neither yes nor no\n" in output
    assert "in no rate" not in cli("behaviour", "stats", "careful")


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        (Rate("passed", 60000, 60000, 1.0, 0.99994, 1.0), "100 % (>99.9 to 100), n=60000"),
        (Rate("passed", 1, 60000, 1 / 60000, 0.000003, 0.0009), "<0.1 % (<0.1 to 0.1), n=60000"),
        (Rate("passed", 997, 1000, 0.997, 0.991, 0.9988), "99.7 % (99 to 99.9), n=1000"),
        (Rate("passed", 1, 2, 0.5, 0.095, 0.905), "50 % (10 to 90), n=2"),
        (Rate("passed", 0, 0, None, 0.0, 1.0), "never observed"),
    ],
)
def test_nothing_is_rounded_to_certainty(rate: Rate, expected: str) -> None:
    assert rate_text(rate) == expected


def test_a_probability_is_never_certain() -> None:
    assert [chance(probability) for probability in (None, 0.0, 0.5, 0.994, 1.0)] == ["", "<1 %", "50 %", "99 %", ">99 %"]


def test_compare_describes_the_difference_of_two_versions(written: BehaviourRecord) -> None:
    cli, current, trial = written
    output_rows = rows(cli("behaviour", "compare", current, trial))
    assert ["passed", ">99", "%", "+75", "(+51", "to", "+88)", "B", "is", "shown", "to", "be", "better"] in output_rows
    assert ["finished", "50", "%", "+0", "(-79", "to", "+79)", "not", "enough", "data:"] in [line[:10] for line in output_rows]
    comparison = cli.json("behaviour", "compare", "review", trial[:8])
    verdicts = {measure["measure"]: measure["verdict"] for measure in comparison["measures"]}
    assert verdicts == {"finished": "not-enough-data", "approved": "not-enough-data", "passed": "better"}
    assert cli.json("behaviour", "compare", trial, current)["measures"][-1]["verdict"] == "worse"
    assert "neither was ever observed: not enough data" not in cli("behaviour", "compare", "careful", current)


def test_a_suggestion_names_its_evidence_and_the_next_command(record: BehaviourRecord) -> None:
    cli, current, trial = record
    nothing = cli("behaviour", "suggest", "review")
    assert "nothing is suggested yet" in nothing
    assert "not enough data: 20 observations of each are needed" in nothing
    assert "next:" not in nothing
    assert cli.json("behaviour", "suggest", "review")["next"] is None
    alone = cli.json("behaviour", "suggest", "careful")["why"]
    assert alone.endswith("the current version has none, no other version")
    suggestion = cli.json("behaviour", "suggest", "review", "--measure", "passed")
    assert (suggestion["action"], suggestion["cid"], suggestion["expect"]) == ("adopt", trial, current)
    commits = git("log", "--format=%H", "agents/scout", cwd=cli.root).split()
    assert len(suggestion["evidence"]) > 20
    assert set(suggestion["evidence"]) <= set(commits)
    output = cli("behaviour", "suggest", "review", "--measure", "passed")
    assert f"adopt {trial[:10]} instead of {current[:10]}" in output
    assert ", ".join(cid[:10] for cid in suggestion["evidence"][:5]) + f" and {len(suggestion['evidence']) - 5} more" in output
    assert "the newest 20 commits of each kind; --json lists them all" in output
    command = output.partition("next: ")[2].strip()
    assert command == f"clia behaviour adopt review {trial[:10]} --expect {current[:10]}"
    assert cli.json(*shlex.split(command)[1:])["state"] == "current"
    assert cli.refused(*shlex.split(command)[1:], code=1)["code"] == "stale-behaviour", "another adoption came first"
    again = cli.json("behaviour", "suggest", "review", "--measure", "passed")
    assert (again["action"], again["next"]) == ("retire", f"clia behaviour retire review {current} --expect {trial}")


def test_adoption_on_evidence_follows_the_suggestion_or_fails(record: BehaviourRecord) -> None:
    cli, current, trial = record
    error = cli.refused("behaviour", "adopt", "review", "--on-evidence", code=1)
    assert (error["code"], error["fields"]["action"]) == ("not-suggested", "not-enough-data")
    wrong = ("behaviour", "adopt", "review", "--on-evidence", "--measure", "passed", "--expect", trial)
    assert cli.refused(*wrong, code=1)["code"] == "stale-behaviour"
    version = cli.json(*wrong[:-2])
    assert (version["cid"], version["state"], version["changed"]) == (trial, "current", True)
    (event, *_) = cli.json("behaviour", "show", "review")["history"]
    assert event["why"].startswith(f"on evidence: {trial[:12]} is proven better by passed")
    assert len(event["evidence"]) > 20
    assert cli.json("behaviour", "show", "review")["current"] == trial != current


def test_a_replay_shows_where_another_version_departs_and_writes_nothing(record: BehaviourRecord) -> None:
    cli, current, trial = record
    curt = cli.json("behaviour", "propose", "review", "--from", cli.file("curt.py", CURT))["cid"]
    before = cli.refs()
    same = cli.json("behaviour", "replay", "--session", "scout", "--with", "review")
    assert (same["flow"], same["with"], same["same"], same["result"]) == (trial, current, True, "yes")
    replay = cli.json("behaviour", "replay", "--session", "scout/1", "--with", curt[:8])
    assert (replay["session"], replay["departs_at"], replay["ended"], replay["unasked"]) == ("1", 1, False, [1])
    output_rows = rows(cli("behaviour", "replay", "--session", "scout/1", "--with", curt[:8]))
    assert ["1", "human", '"Go?"', "no,", "departs", "here"] in output_rows
    assert ["it", "ended", "finished", "with", '"yes"'] in output_rows
    assert ["it", "stops", "it", "waits", "for", "an", "answer", "that", "was", "never", "given"] in output_rows
    assert cli.refs() == before


def test_a_replay_reports_a_live_session_a_failure_and_a_lost_record(cli: BehaviourCli) -> None:
    body = cli.file("f.py", "def main(input):\n    return input[0]\n")
    fails = cli.json("behaviour", "propose", "review", "--from", body)["cid"]
    with cli.space() as space:
        space.start("scout", "review", 1)
        space.commit("scout", "finding", {"n": b"1"})
    replay = ("behaviour", "replay", "--session", "scout", "--with")
    output = cli(*replay, "review")
    assert ["so", "far", "it", "waits", "for", "an", "answer"] in rows(output)
    assert [line[-2:] for line in rows(output) if line[:2] == ["1", "human"]] == [["as", "1"]], "the request has no answer yet"
    assert "note" not in output
    assert "at request 1: the replay fails before it; recorded was human" in " ".join(cli(*replay, fails).split())
    shutil.rmtree(cli.root / ".git" / "clia")
    lost = cli(*replay, "review")
    assert "note      the store has lost this session; replayed up to its last commit in git" in lost
    ran = cli.run(*replay, "review", "--json")
    assert (ran.code, ran.json()["in_part"]) == (0, True)
    assert ran.err.startswith("warning: store-lost: ")


def test_a_partial_clone_reports_what_is_missing(written: BehaviourRecord, tmp_path: Path) -> None:
    source = f"file://{written.cli.root}"
    git("clone", "-q", "--depth", "3", "--no-single-branch", source, str(tmp_path / "part"), cwd=tmp_path)
    part = BehaviourCli(tmp_path / "part")
    with redirect_stdout(StringIO()):
        assert main(["init", str(part.root)]) == 0
    assert part.json("behaviour", "stats", "review")["gaps"] > 0
    ran = part.run("behaviour", "stats", "review")
    assert (ran.code, "only part of the record" in ran.err, ran.err.endswith("then run this again\n")) == (0, True, True)
    git("fetch", "-q", "--unshallow", cwd=part.root)
    assert part.json("behaviour", "stats", "review")["gaps"] == 0, "the fetched part is enough"


def test_a_terminal_shows_a_progress_bar_and_no_control_characters(record: BehaviourRecord) -> None:
    cli = record.cli
    cli("behaviour", "propose", "review", "--from", cli.file("curt.py", CURT), "-m", RED)
    shutil.rmtree(cli.root / ".git" / "clia")  # the index, so that everything is read again
    with Terminal(cli.root, "behaviour", "lineage", "review", "--measure", "passed") as terminal:
        assert terminal.ends() == 0
    assert "Reading the record" in terminal.plain
    assert "100 % (86 to 100), n=24" in terminal.plain, "the same numbers as before the index was removed"
    assert HARMLESS in terminal.plain
    assert RED not in terminal.shown

"""Behaviours through the commands, as people and programs use them: versions, evidence, adoption, and answers to bad input."""

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


class Here(Commands):
    """A space with the flow ``review``, the prompt ``careful`` and the agent ``scout``."""

    def __call__(self, *words: str, code: int = 0) -> str:
        out = super().__call__(*words, code=code)
        assert all(len(line) <= 80 for line in out.splitlines() if " │ " not in line), "it fits in a terminal"
        return out

    def refused(self, *words: str, code: int = 2) -> dict[str, Any]:
        """The error; nothing is changed."""
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


class Record(NamedTuple):
    """A space in which two versions of ``review`` ran: ``one`` is current, ``other`` on trial and did better."""

    here: Here
    one: str
    other: str


def made(root: Path) -> Here:
    library.init(root, settings=QUICK).close()
    for key, value in (("user.name", "Tess"), ("user.email", "tess@example.org"), ("clia.durable", "false")):
        git("config", key, value, cwd=root)
    here = Here(root)
    with here.space() as space:
        space.spawn("scout", library.Briefing("Look around"))
        space.add_behaviour("review", STRICT, "session-flow", why="the first")
        space.add_behaviour("careful", PROMPT, "prompt")
    return here


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in [key for key in os.environ if key.startswith(("GIT_", "CLIA_"))]:
        monkeypatch.delenv(key)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("CLIA_DEBUG", "1")  # a bug is raised


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return made(tmp_path.resolve() / "w")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """Made once: nobody may change it. The current version passes one time in four, the other always; one session of each."""
    here = made(tmp_path_factory.mktemp("record").resolve() / "w")
    with here.space() as space:
        one = space.behaviour("review").versions[0].cid
        other = space.propose_behaviour("review", ASKS, why="raise nothing").cid
        space.adopt_behaviour("review", other, trial=True)
        for cid, passes in ((one, 4), (other, 1)):
            space.start("scout", cid, 1)
            for number in range(SEEN):
                outcome = "pass" if number % passes == 0 else "fail"
                space.commit("scout", "test", {"n": f"{cid}{number}".encode()}, meta={"outcome": outcome})
            space.decide("scout", "yes")
    return Record(here, one, other)


@pytest.fixture
def record(written: Record, tmp_path: Path) -> Record:
    """One to write in."""
    shutil.copytree(written.here.root, tmp_path / "w")
    return written._replace(here=Here(tmp_path / "w"))


def rows(text: str) -> list[list[str]]:
    """The words of each line."""
    return [line.split() for line in text.splitlines()]


# Versions


def test_a_version_is_added_listed_and_read_back(here: Here) -> None:
    tone = here.file("tone.md", f"Be kind. {RED}\n")
    made = here.json("behaviour", "add", "tone", tone, "-m", "people asked", "--notes", "short")
    assert (made["kind"], made["state"], made["why"], made["notes"], made["changed"]) == (
        "prompt",
        "current",
        "people asked",
        "short",
        True,
    )
    assert "body" not in made
    assert here.json("behaviour", "add", "tone", tone)["changed"] is False
    assert "unchanged; nothing was written" in here("behaviour", "add", "tone", tone)
    assert here.json("behaviour", "add", "hello", here.file("hello.py", CURT))["kind"] == "session-flow"
    assert here.json("behaviour", "add", "hello", here.file("hello", ASKS))["kind"] == "session-flow", "it has one already"
    fed = subprocess.run(
        [program(), "behaviour", "add", "plain", "-", "--kind", "prompt"], cwd=here.root, input="Go.\n", text=True, check=False
    )
    assert (fed.returncode, here("behaviour", "show", "plain", "--body")) == (0, "Go.\n")
    listed = {each["name"]: each for each in here.json("behaviour", "list")}
    assert list(listed) == ["careful", "hello", "plain", "review", "tone"]
    assert [each["state"] for each in listed["hello"]["versions"]] == ["former", "current"]
    assert ["tone", "prompt", made["cid"][:10], "1"] in [line[:4] for line in rows(here("behaviour", "list"))]
    assert here("behaviour", "show", "tone", "--body") == f"Be kind. {RED}\n", "a pipe gets it as it is"
    assert HARMLESS in here("behaviour", "show", made["cid"][:8])
    shown = here.json("behaviour", "show", "hello")
    assert {"name", "kind", "current", "versions", "history", "body"} == set(shown)
    assert shown["body"] == ASKS
    assert [each["event"] for each in shown["history"]] == ["define", "define"]
    names = [each["name"] for each in here.json("flow", "list")]
    assert names == ["hello", "review"], "prompts are no flows, and break no list of them"


def test_what_cannot_be_a_version_is_refused(here: Here) -> None:
    prompt, flow = here.file("p.md", "Go.\n"), here.file("f.py", CURT)
    broken, empty, vague = here.file("b.py", "def main(input:\n"), here.file("e.md", " \n"), here.file("v.rst", "Go.\n")
    error = here.refused("behaviour", "add", "vague", vague)
    assert (error["code"], error["fields"]["field"]) == ("kind-needed", "kind")
    for words in (("add", "careful", flow), ("propose", "careful", "--from", flow), ("add", "review", prompt)):
        error = here.refused("behaviour", *words, code=1)
        assert (error["code"], error["fields"]["path"]) == ("wrong-kind", words[-1]), "by the file's name"
    assert here.refused("behaviour", "add", "review", prompt, "--kind", "session-flow")["code"] == "invalid-flow"
    assert here.json("behaviour", "propose", "careful", "--from", flow, "--kind", "prompt")["kind"] == "prompt", "it is said"
    assert here.refused("behaviour", "add", "review", prompt, "--kind", "prompt", code=1)["code"] == "wrong-kind"
    assert here.refused("behaviour", "propose", "careful", "--from", flow, "--kind", "session-flow", code=1)["code"] == "wrong-kind"
    assert here.refused("behaviour", "add", "empty", empty)["code"] == "invalid-prompt"
    assert here.refused("behaviour", "add", "Bad Name", prompt)["code"] == "invalid-name"
    assert here.refused("behaviour", "add", "gone", "nowhere.md", code=1)["code"] == "file-error"
    for words in (("add", "new", broken), ("propose", "review", "--from", broken)):
        assert here.refused("behaviour", *words)["fields"]["line"] == 1
        assert "1 │ def main(input:" in here.run("behaviour", *words).err, "a person sees where"


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
def test_what_is_not_there_or_does_not_go_together_is_said(written: Record, words: list[str], exit_code: int, error: str) -> None:
    assert written.here.refused("behaviour", *words, code=exit_code)["code"] == error


def test_a_proposal_is_read_tried_adopted_and_retired_each_by_a_person(here: Here) -> None:
    first = here.json("behaviour", "show", "review")["current"]
    head = here.json("show", "scout")["head"]
    proposal = ("behaviour", "propose", "review", "--from", here.file("new.py", ASKS), "--agent", "scout", "-m", "raise nothing")
    made = here.json(*proposal, "--evidence", head[:12])
    cid = made["cid"]
    assert (made["state"], made["parent"], made["evidence"], made["changed"]) == ("proposed", first, [head], True)
    assert made["by"].startswith("scout <")
    assert f"adopt review {cid[:10]} [--trial]" in here(*proposal), "what to do next"
    assert here.json(*proposal)["changed"] is False
    patch = here.json("behaviour", "diff", "review")
    assert (patch["before"], patch["after"]) == (first, cid), "what is proposed against what is current"
    assert "-        raise ValueError('odd')\n" in here("behaviour", "diff", "review") == patch["patch"]
    assert here.json("behaviour", "diff", cid)["patch"] == here.json("behaviour", "diff", "review", first[:8], cid[:8])["patch"]
    assert "the versions are identical" in here.run("behaviour", "diff", cid, cid).err
    assert here.refused("session", "start", "scout", cid, code=1)["code"] == "not-adopted"
    said = here("behaviour", "adopt", "review", cid[:8], "--trial")
    command = shlex.split(said.partition("next: clia ")[2].replace("AGENT", "scout"))
    assert here.json(*command)["flow_cid"] == cid, "the command that it names works"
    lost = here.refused("behaviour", "adopt", "review", cid, "--expect", cid[:8], code=1)
    assert (lost["code"], lost["fields"]["actual"]) == ("stale-behaviour", first)
    assert here.json("behaviour", "show", cid)["state"] == "trial"
    assert "is already on trial; nothing was written" in here("behaviour", "adopt", "review", cid, "--trial")
    assert here.json("behaviour", "adopt", "review", cid, "--expect", first[:8], "-m", "it is kinder")["state"] == "current"
    assert "is already current; nothing was written" in here("behaviour", "adopt", "review", cid)
    assert "was current, and may run by its id; nothing was written" in here("behaviour", "adopt", "review", first, "--trial")
    assert here.refused("behaviour", "retire", "review", "--expect", first, code=1)["code"] == "stale-behaviour"
    assert here.json("behaviour", "retire", "review", "-m", "no need")["current"] is None
    assert here.refused("behaviour", "suggest", "review")["code"] == "nothing-adopted"
    assert here.refused("behaviour", "adopt", "review", cid, "--expect", cid, code=1)["fields"]["actual"] is None
    assert here.json("behaviour", "adopt", "review", cid, "--expect", "none")["state"] == "current", "nothing was"
    here.json("behaviour", "retire", "review")
    shown = here("behaviour", "show", "review")
    assert [line[2] for line in rows(shown) if line and line[0].startswith("20")] == [
        "retire",
        "adopt",
        "retire",
        "adopt",
        "trial",
        "propose",
        "define",
    ]
    assert f"on {head[:10]}" in shown
    assert here.run("flow", "list").out == "no flows yet; define one with: clia flow define NAME FILE\n", (
        "nothing adopted breaks no list"
    )


@pytest.mark.parametrize("agent", ["scout", ""])
def test_what_is_a_persons_to_do_is_refused_to_an_agent(here: Here, agent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with here.space() as space:
        space.ask("scout", {"question": "Go on?"})
    body, head = here.file("n.py", ASKS), here.json("behaviour", "show", "review")["current"]
    monkeypatch.setenv("CLIA_AGENT", agent)
    made = here.json("behaviour", "propose", "review", "--from", body, "--agent", "scout")
    assert made["state"] == "proposed", "this is what an agent can do"
    for words in (
        ("behaviour", "adopt", "review", made["cid"]),
        ("behaviour", "add", "review", here.file("o.py", CURT)),
        ("behaviour", "retire", "review", head),
        ("flow", "define", "other", body),
        ("decide", "scout", "yes"),
    ):
        if agent:
            error = here.refused(*words, code=1)
            assert (error["code"], error["fields"]) == ("person-needed", {"agent": "scout"}), words
        else:
            here.json(*words)


def test_a_program_that_clia_runs_adopts_nothing(here: Here) -> None:
    """What it says is refused, though it runs as the person who started it."""
    made = here.json("behaviour", "propose", "review", "--from", here.file("n.py", ASKS), "--agent", "scout")["cid"]
    words = [program(), "run", "scout", "-q", "--", program(), "behaviour", "adopt", "review", made, "--path", str(here.root)]
    ran = subprocess.run(words, cwd=here.root, capture_output=True, text=True, check=False)
    assert (
        "person-needed: only a person may do this; CLIA_AGENT says that agent 'scout' is running this command"
        in ran.stdout + ran.stderr
    )
    assert here.json("behaviour", "show", made)["state"] == "proposed"


def test_hints_lead_on(here: Here) -> None:
    """The command that is named after a first proposal works; what cannot be run is no flow to start; names can be copied."""
    said = here("behaviour", "propose", "fresh", "--from", here.file("fresh.py", CURT))
    command = next(line for line in said.splitlines() if line.startswith("read it: clia "))
    assert "def main(input)" in here(*command.split()[3:])
    assert here.refused("session", "start", "scout", "nosuch")["hints"][0] == "flows here: review"
    error = here.refused("session", "start", "scout", "careful")
    assert (error["message"], error["code"]) == ("'careful' is a prompt, not a flow", "not-a-flow")
    assert error["hints"][0].endswith("clia spawn AGENT --title TITLE --behaviour careful")
    long = "a-behaviour-with-a-name-that-says-all-there-is-to-say"
    here.json("behaviour", "add", long, here.file("long.md", "Go.\n"))
    listed = here("behavior", "list")
    assert listed.splitlines()[1].split()[:2] == [long, here.json("behaviour", "show", long)["current"][:10]]
    assert here("rebuild") == "rebuilt the index: 0 relations, and the observations of behaviours\n"


def test_what_a_prompt_does_not_fill_is_noted(here: Here) -> None:
    body = here.file("open.md", f"{{{{task}}}} {{{{ agent }}}} {{{{foo}}}} {{{{foo}}}} {{{{ {RED} }}}} {{}} {{{{}}}}\n")
    for words in (("add", "open", body), ("propose", "open", "--from", body)):
        ran = here.run("behaviour", *words)
        rest = " is not a placeholder and stays as it is; placeholders are task, agent, title"
        assert ran.code == 0
        assert ran.err.splitlines() == [f"note: {{{{foo}}}}{rest}", f"note: {{{{ {HARMLESS} }}}}{rest}"]
    assert here.run("behaviour", "add", "hello", here.file("h.py", f"{CURT}# {{{{foo}}}}\n")).err == "", "a flow has no places"


def test_a_prompt_makes_the_briefing_of_a_spawn(here: Here) -> None:
    made = here.json("spawn", "digger", "-t", "Dig", "-b", "Dig here.", "--behaviour", "careful", "--meta", "depth=3")
    briefing = here.json("show", "digger")["briefing"]
    cid = here.json("behaviour", "show", "careful")["current"]
    assert made["agent"] == "digger"
    assert (briefing["text"], briefing["behaviour"]) == ("You are digger.\n\nDig here.\n", cid)
    assert briefing["meta"] == {"depth": 3}
    assert here.json("spawn", "other", "-t", "Dig", "--behaviour", cid[:8])["agent"] == "other"
    assert here.refused("spawn", "third", "-t", "x", "--behaviour", "review")["code"] == "not-a-prompt"
    assert here.refused("spawn", "third", "-t", "x", "--behaviour", "beef")["code"] == "no-such-version"
    candidate = here.json("behaviour", "propose", "careful", "--from", here.file("c.md", "Be quick.\n"))["cid"]
    assert here.refused("spawn", "third", "-t", "x", "--behaviour", candidate, code=1)["code"] == "not-adopted"


def test_a_peers_behaviour_is_read_then_taken_over_by_a_person(tmp_path: Path) -> None:
    ann, bob = made(tmp_path.resolve() / "ann"), made(tmp_path.resolve() / "bob")
    ann("behaviour", "add", "hello", ann.file("hello.py", CURT))
    ann.run("peer", "add", "bob", "--key", bob.run("key", "show").out.strip())
    bob.run("peer", "add", "ann", "--key", ann.run("key", "show").out.strip(), "--url", str(ann.root))
    ann.run("peer", "share", "bob", "--behaviour", "hello")
    ann.run("announce")
    bob.run("cap", "grant", "ann", "behaviour", "behaviour")
    bob.run("sync")
    found = bob.json("behaviour", "show", "ann/hello")
    assert (found["name"], found["state"], found["body"]) == ("hello", "foreign", CURT)
    denied = bob.refused("session", "start", "scout", "ann/hello", code=1)
    assert denied["code"] == "execute-denied"
    assert any(hint.endswith("clia behaviour adopt ann/hello") for hint in denied["hints"])
    assert bob.refused("behaviour", "adopt", "ann/hello", found["cid"])["code"] == "invalid-option"
    taken = bob.json("behaviour", "adopt", "ann/hello", "-m", "it is good")
    assert (taken["cid"], taken["state"], taken["origin"], taken["changed"]) == (found["cid"], "current", "ann", True)
    assert bob.json("session", "start", "scout", "hello")["status"] == "suspended"
    assert ["from", "the", "peer", "ann"] in rows(bob("behaviour", "show", "hello"))


# What was observed


def test_lineage_draws_what_came_from_what_with_its_rate(written: Record) -> None:
    here, one, other = written
    said = here("behaviour", "lineage", "review", "--measure", "passed").splitlines()
    assert said[0].split() == ["review", "session-flow,", "by", "passed"]
    assert said[1].startswith(f"{one[:10]} current  25 % (12 to 45), n=24  Tess: the first")
    assert said[2].startswith(f"└── {other[:10]} trial  100 % (86 to 100), n=24")
    found = here.json("behaviour", "lineage", "review")
    assert (found["measure"], found["gaps"]) == ("finished", 0)
    assert [(each["cid"], each["parent"], each["children"], each["rate"]["n"]) for each in found["versions"]] == [
        (one, None, [other], 1),
        (other, one, [], 1),
    ]


def test_stats_tell_rates_with_intervals_counts_and_a_plot(written: Record) -> None:
    here, one, other = written
    found = here.json("behaviour", "stats", "review", "--over", "week")
    assert {"measure", "over", "gaps", "versions"} == set(found)
    (first, second) = found["versions"]
    assert (first["cid"], first["outcomes"], second["outcomes"]) == (one, {"failed": 18, "passed": 6}, {"passed": SEEN})
    assert [each["rates"] for each in first["series"]] == [first["rates"]]
    said = here("behaviour", "stats", "review", "--over", "month", "--measure", "passed")
    drawn = [line for line in said.splitlines() if "n=24" in line]
    assert len(drawn) == 4, "each version in all, and in its one month"
    assert drawn[0].split()[:7] == [one[:10], "passed", "25", "%", "(12", "to", "45),"]
    bar = drawn[0].partition("n=24")[2].rstrip()
    assert bar.strip() == "├──●────┤"
    assert drawn[1].endswith("├──●"), "all of them: the dot is at the end of the scale"
    assert "finished" not in said
    assert "not enough data" not in said
    alone = here("behaviour", "stats", other[:8])
    assert ["sessions", "1", "finished"] in rows(alone)
    assert ["outcomes", "24", "passed"] in rows(alone)
    assert "not enough data" in alone, "one session says next to nothing"
    assert "stats CID" not in alone
    assert said.endswith("\nkinds, times, tokens and traces: clia behaviour stats CID, or --json\n")
    everything = here("behaviour", "stats")
    assert "never observed: not enough data" in everything, "of the prompt"


def test_what_counts_for_no_rate_is_told_beside_them(here: Here) -> None:
    with here.space() as space:
        for value in ("yes", "perhaps", None):
            space.start("scout", "review", 1)
            space.cancel("scout") if value is None else space.decide("scout", value)
        seen: list[tuple[int, int]] = []
        space.behaviour_stats("review", progress=lambda *at: seen.append(at))
    assert (seen[0][0], seen[-1][0]) == (0, seen[-1][1]), "one can see how much there is before the first is read"
    said = here("behaviour", "stats", "review")
    assert "in no rate: 1 cancelled session, 1 decision that said neither yes nor no\n" in said
    assert "in no rate" not in here("behaviour", "stats", "careful")


@pytest.mark.parametrize(
    ("rate", "told"),
    [
        (Rate("passed", 60000, 60000, 1.0, 0.99994, 1.0), "100 % (>99.9 to 100), n=60000"),
        (Rate("passed", 1, 60000, 1 / 60000, 0.000003, 0.0009), "<0.1 % (<0.1 to 0.1), n=60000"),
        (Rate("passed", 997, 1000, 0.997, 0.991, 0.9988), "99.7 % (99 to 99.9), n=1000"),
        (Rate("passed", 1, 2, 0.5, 0.095, 0.905), "50 % (10 to 90), n=2"),
        (Rate("passed", 0, 0, None, 0.0, 1.0), "never observed"),
    ],
)
def test_nothing_is_rounded_to_certainty(rate: Rate, told: str) -> None:
    assert rate_text(rate) == told


def test_a_probability_is_never_certain() -> None:
    assert [chance(each) for each in (None, 0.0, 0.5, 0.994, 1.0)] == ["", "<1 %", "50 %", "99 %", ">99 %"]


def test_two_versions_are_compared_in_words(written: Record) -> None:
    here, one, other = written
    said = rows(here("behaviour", "compare", one, other))
    assert ["passed", ">99", "%", "+75", "(+51", "to", "+88)", "B", "is", "shown", "to", "be", "better"] in said
    assert ["finished", "50", "%", "+0", "(-79", "to", "+79)", "not", "enough", "data:"] in [line[:10] for line in said]
    found = here.json("behaviour", "compare", "review", other[:8])
    verdicts = {each["measure"]: each["verdict"] for each in found["measures"]}
    assert verdicts == {"finished": "not-enough-data", "approved": "not-enough-data", "passed": "better"}
    assert here.json("behaviour", "compare", other, one)["measures"][-1]["verdict"] == "worse"
    assert "neither was ever observed: not enough data" not in here("behaviour", "compare", "careful", one)


def test_a_suggestion_says_what_it_rests_on_and_what_to_type_next(record: Record) -> None:
    here, one, other = record
    nothing = here("behaviour", "suggest", "review")
    assert "nothing is suggested yet" in nothing
    assert "not enough data: 20 observations of each are needed" in nothing
    assert "next:" not in nothing
    assert here.json("behaviour", "suggest", "review")["next"] is None
    alone = here.json("behaviour", "suggest", "careful")["why"]
    assert alone.endswith("the current version has none, no other version")
    found = here.json("behaviour", "suggest", "review", "--measure", "passed")
    assert (found["action"], found["cid"], found["expect"]) == ("adopt", other, one)
    commits = git("log", "--format=%H", "agents/scout", cwd=here.root).split()
    assert len(found["evidence"]) > 20
    assert set(found["evidence"]) <= set(commits)
    said = here("behaviour", "suggest", "review", "--measure", "passed")
    assert f"adopt {other[:10]} instead of {one[:10]}" in said
    assert ", ".join(each[:10] for each in found["evidence"][:5]) + f" and {len(found['evidence']) - 5} more" in said
    assert "the newest 20 commits of each kind; --json lists them all" in said
    command = said.partition("next: ")[2].strip()
    assert command == f"clia behaviour adopt review {other[:10]} --expect {one[:10]}"
    assert here.json(*shlex.split(command)[1:])["state"] == "current"
    assert here.refused(*shlex.split(command)[1:], code=1)["code"] == "stale-behaviour", "somebody was quicker"
    again = here.json("behaviour", "suggest", "review", "--measure", "passed")
    assert (again["action"], again["next"]) == ("retire", f"clia behaviour retire review {one} --expect {other}")


def test_adoption_on_evidence_takes_what_is_suggested_or_nothing(record: Record) -> None:
    here, one, other = record
    error = here.refused("behaviour", "adopt", "review", "--on-evidence", code=1)
    assert (error["code"], error["fields"]["action"]) == ("not-suggested", "not-enough-data")
    wrong = ("behaviour", "adopt", "review", "--on-evidence", "--measure", "passed", "--expect", other)
    assert here.refused(*wrong, code=1)["code"] == "stale-behaviour"
    made = here.json(*wrong[:-2])
    assert (made["cid"], made["state"], made["changed"]) == (other, "current", True)
    (event, *_) = here.json("behaviour", "show", "review")["history"]
    assert event["why"].startswith(f"on evidence: {other[:12]} is proven better by passed")
    assert len(event["evidence"]) > 20
    assert here.json("behaviour", "show", "review")["current"] == other != one


def test_a_replay_shows_where_another_version_departs_and_writes_nothing(record: Record) -> None:
    here, one, other = record
    curt = here.json("behaviour", "propose", "review", "--from", here.file("curt.py", CURT))["cid"]
    before = here.refs()
    same = here.json("behaviour", "replay", "--session", "scout", "--with", "review")
    assert (same["flow"], same["with"], same["same"], same["result"]) == (other, one, True, "yes")
    found = here.json("behaviour", "replay", "--session", "scout/1", "--with", curt[:8])
    assert (found["session"], found["departs_at"], found["ended"], found["unasked"]) == ("1", 1, False, [1])
    said = rows(here("behaviour", "replay", "--session", "scout/1", "--with", curt[:8]))
    assert ["1", "human", '"Go?"', "no,", "departs", "here"] in said
    assert ["it", "ended", "finished", "with", '"yes"'] in said
    assert ["it", "stops", "it", "waits", "for", "an", "answer", "that", "was", "never", "given"] in said
    assert here.refs() == before


def test_a_replay_tells_a_live_session_a_failure_and_what_is_lost(here: Here) -> None:
    body = here.file("f.py", "def main(input):\n    return input[0]\n")
    fails = here.json("behaviour", "propose", "review", "--from", body)["cid"]
    with here.space() as space:
        space.start("scout", "review", 1)
        space.commit("scout", "finding", {"n": b"1"})
    replay = ("behaviour", "replay", "--session", "scout", "--with")
    said = here(*replay, "review")
    assert ["so", "far", "it", "waits", "for", "an", "answer"] in rows(said)
    assert [line[-2:] for line in rows(said) if line[:2] == ["1", "human"]] == [["as", "1"]], "it was asked, and not answered"
    assert "note" not in said
    assert "at request 1: it fails before it; recorded was human" in " ".join(here(*replay, fails).split())
    shutil.rmtree(here.root / ".git" / "clia")
    lost = here(*replay, "review")
    assert "note      the store has lost this session; replayed up to its last commit in git" in lost
    assert here.json(*replay, "review")["in_part"] is True


def test_a_clone_that_has_only_part_of_the_record_says_so(written: Record, tmp_path: Path) -> None:
    source = f"file://{written.here.root}"
    git("clone", "-q", "--depth", "3", "--no-single-branch", source, str(tmp_path / "part"), cwd=tmp_path)
    part = Here(tmp_path / "part")
    with redirect_stdout(StringIO()):
        assert main(["init", str(part.root)]) == 0
    assert part.json("behaviour", "stats", "review")["gaps"] > 0
    ran = part.run("behaviour", "stats", "review")
    assert (ran.code, "only part of the record" in ran.err, ran.err.endswith("then run this again\n")) == (0, True, True)
    git("fetch", "-q", "--unshallow", cwd=part.root)
    assert part.json("behaviour", "stats", "review")["gaps"] == 0, "no more than that is needed"


def test_a_person_at_a_terminal_sees_a_bar_and_nothing_that_acts(record: Record) -> None:
    here = record.here
    here("behaviour", "propose", "review", "--from", here.file("curt.py", CURT), "-m", RED)
    shutil.rmtree(here.root / ".git" / "clia")  # the index: all is read again
    with Terminal(here.root, "behaviour", "lineage", "review", "--measure", "passed") as terminal:
        assert terminal.ends() == 0
    assert "Reading the record" in terminal.plain
    assert "100 % (86 to 100), n=24" in terminal.plain, "as before the index was lost"
    assert HARMLESS in terminal.plain
    assert RED not in terminal.shown

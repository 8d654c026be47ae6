"""``make demo`` leaves two sessions and some questions waiting for the person at the keyboard, and says how to answer them.

On the way a behaviour is improved on evidence, and of another too little is known.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import clia
from clia.forge.rendering.forms import form_of
from support import warm

DEMO = Path(__file__).resolve().parents[2] / "tools" / "demo.py"
RUN = """
import sys
sys.path.insert(0, sys.argv[1])
import demo
demo.PROGRAM = sys.argv[2]
sys.exit(demo.main(["--no-serve"]))
"""
CLOSING = "Two sessions and some other questions wait for you"


def test_the_demo_leaves_two_sessions_and_every_kind_of_question_and_its_last_lines_answer_one(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path), "COLUMNS": "100", "NO_COLOR": "1"}
    warm.stand_in(tmp_path, cold=())  # 80 commands: what they show is the same, and what they load is shown elsewhere
    words = [sys.executable, "-c", RUN, str(DEMO.parent), str(tmp_path / "clia")]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, "error: bug" in done.stdout + done.stderr) == (0, False), done.stdout + done.stderr

    for promise in ("Never commit secrets.", "Payments explorer", "submodule-root", "appended to", "nothing found"):
        assert promise in done.stdout
    assert done.stderr == ""

    with clia.open(re.findall(r"cd (\S+/space/shop)$", done.stdout, re.MULTILINE)[0]) as space:
        adopted = space.behaviour("restock").history[0]
        better, asked = space.behaviour("restock").versions[-1], space.suggest_behaviour("tidy")
    assert (adopted.event, adopted.cid, better.state, better.by) == (
        "adopt",
        better.cid,
        "current",
        "clerk <clerk@agents.clia.invalid>",
    )
    assert len(adopted.evidence) > asked.least, "it was adopted on what suggest named"
    assert (asked.action, asked.candidates[0].state) == ("not-enough-data", "proposed")

    said = done.stdout.partition(CLOSING)[2].splitlines()[1:]
    (_, place), *answers = (shlex.split(line, comments=True) for line in said)
    with clia.open(place) as space:
        waiting = space.pending()
        kinds = sorted((each.agent, form_of(space.rule(each)).kind) for each in waiting if each.session.startswith("ask-"))
    sessions = {each.agent: each.payload for each in waiting if not each.session.startswith("ask-")}
    assert sorted(sessions) == ["lead", "reviewer"]
    assert sessions["lead"]["choices"] == ["approve", "later", "reject"]
    assert sessions["reviewer"]["schema"] == {"type": "boolean"}
    assert kinds == [("reviewer", "choices"), ("scout", "choices"), ("scout", "fields"), ("scout", "raw")]
    alike = [each.agent for each in waiting if each.payload.get("choices") == ["yes", "no"]]
    assert sorted(alike) == ["reviewer", "scout"], "they can be answered together"

    given = [each for each in answers if "-m" in each]
    assert len(given) == 1
    subprocess.run(given[0], cwd=place, check=True, capture_output=True)
    with clia.open(place) as space:
        assert space.session("reviewer").result == {"round": True}
        assert [each.agent for each in space.pending() if not each.session.startswith("ask-")] == ["lead"]


def test_the_demo_refuses_what_it_does_not_know_and_makes_nothing(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, str(DEMO), "--no-server"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--no-server" in done.stderr
    assert list(tmp_path.iterdir()) == []

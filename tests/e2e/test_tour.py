"""``make tour`` leaves two sessions and several questions for the user, and prints how to answer them.

It also improves one behaviour on evidence; another one has too little evidence.
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

TOUR = Path(__file__).resolve().parents[2] / "tools" / "tour.py"
RUN = """
import sys
sys.path.insert(0, sys.argv[1])
import tour
tour.PROGRAM = sys.argv[2]
sys.exit(tour.main(["--no-serve"]))
"""
CLOSING = "Two sessions and some other questions wait for you"


def test_the_tour_leaves_sessions_and_questions_and_its_last_lines_answer_one(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path), "COLUMNS": "100", "NO_COLOR": "1"}
    warm.stand_in(tmp_path, cold=())  # 80 commands: warm ones print the same, and other tests cover cold starts
    words = [sys.executable, "-c", RUN, str(TOUR.parent), str(tmp_path / "clia")]
    result = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert (result.returncode, "error: bug" in result.stdout + result.stderr) == (0, False), result.stdout + result.stderr

    for promise in ("Never commit secrets.", "Payments explorer", "submodule-root", "appended to", "nothing found"):
        assert promise in result.stdout
    assert result.stderr == ""

    with clia.open(re.findall(r"cd (\S+/space/shop)$", result.stdout, re.MULTILINE)[0]) as space:
        adopted = space.behaviours.get("restock").history[0]
        better, suggestion = space.behaviours.get("restock").versions[-1], space.behaviours.suggest("tidy")
    assert (adopted.event, adopted.cid, better.state, better.by) == (
        "adopt",
        better.cid,
        "current",
        "clerk <clerk@agents.clia.invalid>",
    )
    assert len(adopted.evidence) > suggestion.least, "the adoption cites the suggested evidence"
    assert (suggestion.action, suggestion.candidates[0].state) == ("not-enough-data", "proposed")

    commands = result.stdout.partition(CLOSING)[2].splitlines()[1:]
    (_, place), *answers = (shlex.split(line, comments=True) for line in commands)
    with clia.open(place) as space:
        waiting = space.pending()
        kinds = sorted(
            (request.agent, form_of(space.sessions.rule(request)).kind) for request in waiting if request.session.startswith("ask-")
        )
    sessions = {request.agent: request.payload for request in waiting if not request.session.startswith("ask-")}
    assert sorted(sessions) == ["lead", "reviewer"]
    assert sessions["lead"]["choices"] == ["approve", "later", "reject"]
    assert sessions["reviewer"]["schema"] == {"type": "boolean"}
    assert kinds == [("reviewer", "choices"), ("scout", "choices"), ("scout", "fields"), ("scout", "raw")]
    alike = [request.agent for request in waiting if request.payload.get("choices") == ["yes", "no"]]
    assert sorted(alike) == ["reviewer", "scout"], "questions of the same form can be answered together"

    prepared = [answer for answer in answers if "-m" in answer]
    assert len(prepared) == 1
    subprocess.run(prepared[0], cwd=place, check=True, capture_output=True)
    with clia.open(place) as space:
        assert space.session("reviewer").result == {"round": True}
        assert [request.agent for request in space.pending() if not request.session.startswith("ask-")] == ["lead"]


def test_the_tour_refuses_unknown_options_and_creates_nothing(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    result = subprocess.run(
        [sys.executable, str(TOUR), "--no-server"], env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert "--no-server" in result.stderr
    assert list(tmp_path.iterdir()) == []

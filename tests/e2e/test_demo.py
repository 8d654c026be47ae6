"""``make demo`` leaves two sessions waiting for the person at the keyboard, and says how to answer them."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import clia

DEMO = Path(__file__).resolve().parents[2] / "tools" / "demo.py"
CLOSING = "Two agents wait for you."


def test_the_demo_leaves_two_questions_and_its_last_lines_answer_one(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path), "COLUMNS": "100", "NO_COLOR": "1"}
    done = subprocess.run([sys.executable, str(DEMO), "--no-serve"], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, "error: bug" in done.stdout + done.stderr) == (0, False), done.stdout + done.stderr

    for promise in ("Never commit secrets.", "Payments explorer", "submodule-root", "appended to", "nothing found"):
        assert promise in done.stdout
    assert done.stderr == ""

    said = done.stdout.partition(CLOSING)[2].splitlines()[1:]
    (_, place), *answers = (shlex.split(line, comments=True) for line in said)
    with clia.open(place) as space:
        waiting = {each.agent: each.payload for each in space.pending()}
    assert sorted(waiting) == ["lead", "reviewer"]
    assert waiting["lead"]["choices"] == ["approve", "later", "reject"]
    assert waiting["reviewer"]["schema"] == {"type": "boolean"}

    given = [each for each in answers if "-m" in each]
    assert len(given) == 1
    subprocess.run(given[0], cwd=place, check=True, capture_output=True)
    with clia.open(place) as space:
        assert space.session("reviewer").result == {"round": True}
        assert [each.agent for each in space.pending()] == ["lead"]

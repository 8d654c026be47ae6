"""``make walk``: everyday journeys import only what they need."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMIT_MODULES, CLIENT_MODULES = 74, 30  # 70 after the restructuring; the log of moves has added four
SOURCE_FILES = 540  # 350 after the restructuring; features since then have added files


def test_journeys_stay_within_their_budgets_of_modules() -> None:
    run = subprocess.run([sys.executable, ROOT / "tools/walk.py", "--json"], capture_output=True, text=True, check=True)
    walk = json.loads(run.stdout)
    journeys = {journey["name"]: journey for journey in walk["journeys"]}
    assert list(journeys) == ["commit", "API commit", "ingest", "decide", "profile", "sync"]
    assert all(journey["executed"] == len(journey["path"]) > 10 for journey in journeys.values())
    assert journeys["commit"]["imported"] <= COMMIT_MODULES, journeys["commit"]["path"]
    assert walk["client"] <= CLIENT_MODULES
    assert walk["files"] <= SOURCE_FILES

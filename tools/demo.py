"""``make demo``: makes a demo tree and shows what clia says about it. The tree stays for you to play with."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from demo_tree import plant

PROGRAM = Path(sys.executable).parent / "clia"
TOUR = (
    ("Who is here?", "agents list"),
    ("Who is scout, in the payments submodule? Guardrails come first.", "agents profile --slug scout"),
    ("Which directories made it so, and why?", "agents context --slug scout --explain"),
    ("Where does one value come from?", "agents explain /role --slug scout"),
    ("What did it do?", "agents agency --slug scout"),
    (
        "It writes something down; the entry goes to the nearest repository.",
        "agents journal --slug scout --note 'Refunds retry twice.'",
    ),
    ("Is everything in order?", "agents lint"),
)


def main() -> int:
    # Not below this repository: lineage would climb into it, and a write to the workspace would land in it.
    here = plant(Path(tempfile.mkdtemp(prefix="clia-demo-")).resolve())
    environment = os.environ | ({"FORCE_COLOR": "1"} if sys.stdout.isatty() else {})
    for title, words in TOUR:
        print(f"\n# {title}\n$ clia {words}", flush=True)
        subprocess.run([PROGRAM, *shlex.split(words)], cwd=here, env=environment, check=False)
    program = shlex.quote(str(PROGRAM))
    print(f"\nThe tree is yours to try things on:\n  cd {shlex.quote(str(here))}\n  {program} agents --help")
    return 0


if __name__ == "__main__":
    sys.exit(main())

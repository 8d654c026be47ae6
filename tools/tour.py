"""``make tour``: build a demo tree and a demo space, show what clia says about them, and serve the space.

When the forge starts, two sessions wait for an answer, the inbox has every kind of form, and no page is empty. The demo is kept
for you to explore. ``--no-serve`` stops before the forge.
"""

from __future__ import annotations

import argparse
import os
import shlex
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent))

import demo_agents
import demo_behaviours
import demo_federation
import demo_forge
import demo_sessions
import demo_space
from demo_tree import plant

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PROGRAM = Path(sys.executable).parent / "clia"
PORT = 8337
TOUR = (
    ("Who is here?", "agents list"),
    ("Who is scout, in the payments submodule? Guardrails come first.", "agents profile --slug scout"),
    ("Which directories made it so, and why?", "agents context --slug scout --explain"),
    ("Where does one value come from?", "agents explain /role --slug scout"),
    ("What did it do?", "agents agency --slug scout"),
    (
        "It adds a journal entry, which goes to the nearest repository.",
        "agents journal --slug scout -m 'Refunds retry twice.'",
    ),
    ("Is everything in order?", "agents lint"),
)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Build a demo tree and a demo space, and serve the space.", allow_abbrev=False)
    parser.add_argument("--no-serve", action="store_true", help="stop before the forge")
    wants_forge = not parser.parse_args(arguments).no_serve
    # Not below this repository: lineage would climb into it, and a write to the workspace would land in it.
    top = Path(tempfile.mkdtemp(prefix="clia-demo-")).resolve()
    tree = plant(top / "tree")
    show("Who is this agent, here? (lineage)", tree, TOUR)
    repository = top / "space" / "shop"
    names = demo_space.plant(repository)
    show("What did it do, and why? (space)", repository, filled(demo_space.TOUR, names))
    show("The agents that people already use (hooks, run)", repository, demo_agents.TOUR)
    flows = demo_sessions.plant(repository)
    show("What does it wait for? (sessions)", repository, filled(demo_sessions.TOUR, flows))
    friends = demo_federation.plant(repository)
    show("Whom does it work with? (federation)", repository, filled(demo_federation.TOUR, friends))
    versions = demo_behaviours.plant(repository)
    show("What works, and what should it do next time? (behaviours)", repository, filled(demo_behaviours.TOUR, versions))
    demo_forge.plant(repository)
    show("See it and decide in the browser (forge)", repository, demo_forge.TOUR)
    program = shlex.quote(str(PROGRAM))
    for place, words in ((tree, "agents --help"), (repository, "--help")):
        print(f"\nTry it yourself:\n  cd {shlex.quote(str(place))}\n  {program} {words}")
    print(f"\nWhat was suggested for a behaviour, and why? Also on the page Behaviours:\n  cd {shlex.quote(str(repository))}")
    for title, words in filled(demo_behaviours.LOOK, versions):
        print(f"  {program} {words}    # {title}")
    print(f"\nTwo sessions and some other questions wait for you. Answer:\n  cd {shlex.quote(str(repository))}")
    for title, words in demo_sessions.ANSWERS:
        print(f"  {program} {words}    # {title}")
    return serve(repository) if wants_forge else 0


def serve(repository: Path) -> int:
    """Run the forge until Ctrl-C, on a free port if the default one is in use."""
    print("\nOr in the browser, with the link below:\n", flush=True)
    with socket.socket() as tried:
        port = 0 if tried.connect_ex(("127.0.0.1", PORT)) == 0 else PORT
    os.execv(PROGRAM, [str(PROGRAM), "serve", "--port", str(port), "--path", str(repository), "--quiet"])  # noqa: S606  # our own program


def filled(tour: Sequence[tuple[str, str]], names: Mapping[str, str]) -> list[tuple[str, str]]:
    """A tour with the names of its files filled in."""
    return [(title, words.format(**names)) for title, words in tour]


def show(heading: str, directory: Path, tour: Sequence[tuple[str, str]]) -> None:
    """Run the commands of a tour, each below its title."""
    environment = os.environ | ({"FORCE_COLOR": "1"} if sys.stdout.isatty() else {})
    print(f"\n{'=' * len(heading)}\n{heading}\n{'=' * len(heading)}")
    for title, words in tour:
        print(f"\n# {title}\n$ clia {words}", flush=True)
        subprocess.run([PROGRAM, *shlex.split(words)], cwd=directory, env=environment, check=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Demo of a space: a repository with three agents, driven by the command line."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from demo_tree import documents

if TYPE_CHECKING:
    from pathlib import Path

PRICES = """\
def total(items):
    result = 0
    for item in items:
        result = result + item.price * item.count
    return result
"""
QUICK = PRICES.replace("result = result + item.price * item.count", "result += item.price * item.count")
ROUNDED = PRICES.replace("return result", "return round(result, 2)").replace("result = result +", "result = round(result, 2) +")
BOTH = ROUNDED.replace("result = round(result, 2) + item", "result += item")

TOUR: tuple[tuple[str, str], ...] = (
    ("A repository becomes a space.", "init"),
    ("Agents are branches, spawned from briefings. They start from the code as it is.", "spawn lead -t 'Lead the price work'"),
    ("A sub-agent of lead.", "spawn scout --from lead -t 'Find slow code' -b 'Look at prices.py first.'"),
    ("And another.", "spawn reviewer --from lead -t 'Check rounding'"),
    (
        "Output goes to scout's trace. Secrets do not.",
        "trace add scout 'profiling prices.py; export GITHUB_TOKEN=ghp_{secret}'",
    ),
    (
        "It commits its work with the trace.",
        "commit scout refactor --set prices.py={quick} --trace -m 'Add in place'",
    ),
    ("The reviewer changes the same line.", "commit reviewer finding --set prices.py={rounded} -m 'Round at each step'"),
    ("lead merges scout's work: a commit with two parents.", "merge lead scout"),
    ("The reviewer's work conflicts: nothing is committed, and the conflict is shown.", "merge lead reviewer"),
    ("lead resolves the conflict.", "resolve lead reviewer --file prices.py={both} -m 'Add in place, round at the end'"),
    ("The work lands on main.", "land lead --onto main --squash -m 'Prices: quicker, and rounded'"),
    ("Who wrote what, and why?", "blame lead prices.py"),
    ("What did scout see when it did that?", "trace show scout"),
    ("Which agents are active, and what has landed?", "list"),
    ("Who spawned whom?", "tree"),
    ("The commit graph.", "graph"),
    ("Is the record complete?", "verify"),
)


def plant(directory: Path) -> dict[str, str]:
    """Create a small repository and the files that the tour's commands use."""
    directory.mkdir(parents=True)
    drafts = directory.parent / "drafts"
    drafts.mkdir()
    for name, text in (("quick", QUICK), ("rounded", ROUNDED), ("both", BOTH)):
        (drafts / f"{name}.py").write_text(text, encoding="utf-8")
    (directory / "prices.py").write_text(PRICES, encoding="utf-8")
    documents(directory)  # identities of the agents
    person = {"GIT_AUTHOR_NAME": "Ada", "GIT_AUTHOR_EMAIL": "ada@example.org"}
    identity = person | {key.replace("AUTHOR", "COMMITTER"): value for key, value in person.items()}
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")} | identity
    for words in (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-qm", "Prices")):
        subprocess.run(["git", *words], cwd=directory, env=environment, check=True)
    names = {name: os.path.relpath(drafts / f"{name}.py", directory) for name in ("quick", "rounded", "both")}
    return names | {"secret": "Zx9" * 12}

"""The gate of a server: a push of ten commits to a bare repository with it, and to one without."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.measure import Row, fastest_in_turns
from benchmarks.places import place

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COMMITS, IDENTITIES, FILES = 10, 5, 200
_WHO = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")


def rows(rounds: int) -> Iterator[Row]:
    with place() as top:
        work, base, head = _history(top)
        pushes = []
        for name in ("plain", "gated"):
            bare = top / f"{name}.git"
            _git(top, "clone", "--quiet", "--bare", str(work), str(bare))
            pushes.append(partial(_push, work, bare, base, head))
        hook = top / "gated.git" / "hooks" / "pre-receive"
        hook.write_text(f"#!/bin/sh\nexec {sys.executable} -P -m clia.gate.hook\n")
        hook.chmod(0o755)
        plain, gated = fastest_in_turns(pushes, rounds)
        yield Row("gate-push", gated - plain, plain, note=f"{IDENTITIES} identities; a push takes {gated:.0f} ms with the gate")


def _history(top: Path) -> tuple[Path, str, str]:
    """A repository with identities, rules and a policy; and ten commits of work."""
    work = top / "work"
    _git(top, "init", "--quiet", "--initial-branch=main", str(work))
    rules = [{"on": "push", "match": {"paths": ["infra/**"]}, "do": "require", "need": ["decision"]}]
    for slug in ("root", *(f"agent-{number}" for number in range(IDENTITIES))):
        home = work / ".clia/agents" / slug
        home.mkdir(parents=True)
        body = {"slug": slug, "guardrails": [{"text": f"Rule of {slug}.", **({"rules": rules} if slug == "root" else {})}]}
        (home / f"{slug}.agent.triad.json").write_text(json.dumps(body))
    (work / ".clia/gate.toml").write_text('[[require]]\npaths = ["secret/**"]\nneed = ["decision"]\n')
    for number in range(FILES):
        path = work / f"src/{number % 10}/{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"value = {number}\n")
    base = _commit(work, "base")
    head = base
    for number in range(COMMITS):
        (work / f"src/{number}/{number}.py").write_text(f"value = {number + 1000}\n")
        head = _commit(work, f"work {number}")
    return work, base, head


def _commit(work: Path, message: str) -> str:
    _git(work, "add", "--all")
    _git(work, *_WHO, "commit", "--quiet", "--message", message)
    return _git(work, "rev-parse", "HEAD").strip()


def _push(work: Path, bare: Path, base: str, head: str) -> None:
    _git(bare, "update-ref", "refs/heads/main", base)
    _git(work, "push", "--quiet", str(bare), f"{head}:refs/heads/main")


def _git(directory: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=directory, check=True, capture_output=True, text=True).stdout

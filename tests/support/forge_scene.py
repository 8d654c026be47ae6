"""Spaces to view in a browser: one with every kind of content, and one with hostile text of agents."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pygit2

import clia
from clia.space.model import AGENT, TYPE
from clia.users.service import users_of
from clia.values import commit_messages as messages
from clia.values import refs
from support import git

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

PERSON = ("Ada Lovelace", "ada@example.org")
ATTACK = (
    "<script>window.pwned=1</script>\"'><img src=x onerror=window.pwned=1><svg onload=window.pwned=1></textarea></title></pre>"
    "<a href=javascript:window.pwned=1>x</a>{{7*7}}"
)
"""Text that tries to run a script in a reader's browser."""
PRICES = b"""\
def total(items):
    result = 0
    for item in items:
        result = result + item.price * item.count
    return result
"""
QUICK = PRICES.replace(b"result = result +", b"result +=")
ROUNDED = PRICES.replace(b"result = result + item.price", b"result = round(result, 2) + item.price")
RELEASE = """\
def main(input):
    version = input["version"]
    notes = request("draft", {"version": version, "changes": input["changes"]})
    verdict = request("human", {
        "question": f"Release {version}?",
        "changes": input["changes"],
        "notes": notes,
        "choices": ["approve", "reject"],
    }, tag="release")
    when = request("human", {
        "question": f"{version} is built. How is it to be rolled out?",
        "schema": {
            "type": "object",
            "properties": {
                "percent": {"type": "integer", "minimum": 1, "maximum": 100, "description": "of the customers, at first"},
                "region": {"enum": ["north", "south"], "title": "Region"},
                "note": {"type": "string"},
            },
            "required": ["percent", "region"],
        },
    })
    return {"version": version, "verdict": verdict, "rollout": when}
"""
SHORT = """\
def main(input):
    return request("human", {"question": input, "choices": ["yes", "no"]})
"""
BROKEN = """\
def main(input):
    found = request("lookup", input)
    return found["price"] / found["count"]
"""
NOISE = (
    "\x1b[1m$ pytest -q tests/test_prices.py\x1b[0m\n\x1b[32m........\x1b[31mF\x1b[32m..\x1b[0m [100%]\n"
    "\x1b[31mFAILED\x1b[0m test_prices.py::\x1b[1mtest_cents\x1b[0m - assert 0.30000000000000004 == 0.3\n"
    "\x1b[33m1 failed\x1b[0m, 10 passed in 0.12s"
)
SECRET = "ghp_" + "Zx9" * 12


class Scene(NamedTuple):
    """A space to view, and the names in it."""

    root: Path
    names: Mapping[str, str]


def settings(hours: float = 5) -> clia.Settings:
    """No waits for the disk; the clock starts some hours ago and advances by three minutes at each reading."""
    now, steps = datetime.now(UTC), itertools.count()
    start = now - timedelta(hours=hours)
    return clia.Settings(durable=False, person=PERSON, clock=lambda: min(now, start + timedelta(minutes=3 * next(steps))))


def people(root: Path, users: Mapping[str, tuple[str, str, str]]) -> None:
    """Add users (by name: role, display name, e-mail), and configure the space not to wait for the disk."""
    with clia.open(root, settings=clia.Settings(durable=False, person=PERSON)) as space:
        for name, fields in users.items():
            users_of(space).add(name, *fields)
    git("config", "clia.durable", "false", cwd=root)


# A shop with work in progress


def shop(root: Path) -> Scene:
    """Content for every page: work, merges, a conflict, traces, sessions in every state, questions of every form."""
    _user_commits(root)
    with clia.init(root, settings=settings()) as space:
        space.spawn_at(
            "lead", clia.Briefing("Lead the price work", "Totals are slow, and cents do not add up.\n\nStart small."), "main"
        )
        for name, title in (("scout", "Find slow code"), ("reviewer", "Check rounding"), ("clerk", "Answer for the archive")):
            space.spawn_from(name, clia.Briefing(title, "Look at prices.py first."), "lead")
        names = _work(space) | _sessions(space)
        space.relations.add_review("reviewer", "scout")
        space.agents.archive("clerk")
    return Scene(root, names)


def _user_commits(root: Path) -> None:
    root.mkdir(parents=True)
    (root / "prices.py").write_bytes(PRICES)
    for place, documents in ((root.parent, _OUTER), (root, _INNER)):
        for (slug, kind), content in documents.items():
            _document(place, slug, kind, content)
    repo = pygit2.init_repository(str(root), initial_head="main")
    repo.index.add_all()
    repo.index.write()
    by = pygit2.Signature(*PERSON, int(datetime.now(UTC).timestamp()) - 86_400, 0)
    repo.create_commit("HEAD", by, by, "Prices\n", repo.index.write_tree(), [])


def _work(space: clia.Space) -> dict[str, str]:
    space.trace("scout", "stdout", NOISE)
    space.trace("scout", "tool-call", f"export GITHUB_TOKEN={SECRET}", data={"tool": "shell", "exit": 0})
    space.trace("scout", "stdout", "\n".join(f"line {number} of a long output" for number in range(80)))
    quick = space.commit_with_trace(
        "scout",
        "refactor",
        changes={"prices.py": QUICK},
        message="Add in place\n\nOne object less for each item.",
        meta={"tries": 2},
    )
    space.commit("reviewer", "finding", changes={"prices.py": ROUNDED}, message="Round at each step")
    space.merge("lead", "scout", message="Take in what scout found")
    assert isinstance(space.merge("lead", "reviewer"), clia.Conflicts)
    space.spawn_from("tester", clia.Briefing("Try what scout found"), "scout")
    space.commit("scout", "test", changes={"tests/test_prices.py": b"def test_cents(): ...\n"}, message="Cents are tried")
    space.commit("tester", "finding", changes={"FINDINGS.md": b"- 0.1 + 0.2 is not 0.3\n"}, message="0.1 + 0.2 is not 0.3")
    space.trace("tester", "stdout", NOISE)
    space.commit_with_trace("tester", "test", changes={"tests/test_sum.py": b"def test_sum(): ...\n"}, message="Try sums of cents")
    space.merge("lead", "tester", message="Take in what tester tried")
    space.land("lead", onto="main", squash=True, message="Prices: quicker, and tried")
    space.commit("lead", "refactor", changes={"NEWS.md": b"# 2.1\n"}, message="News of 2.1")
    space.trace("scout", "stdout", "\x1b[32mall green\x1b[0m")
    return {"traced": quick}


def _sessions(space: clia.Space) -> dict[str, str]:
    for name, source in (("release", RELEASE), ("short", SHORT), ("broken", BROKEN)):
        space.sessions.define(name, source)
    branch = {"question": "May scout push to the shared branch?", "choices": ["yes", "no"], "branch": "main", "ahead by": 2}
    space.ask("scout", branch)
    space.start("lead", "release", {"version": "2.1", "changes": ["Prices add up more quickly", "Totals are rounded"]})
    space.resume("lead", "Quicker prices.", by="a worker")
    decided = space.decide("lead", "approve", "The tests are green.", by="Grace Hopper <grace@example.org>")
    space.start("reviewer", "broken", {"sku": 7})
    space.resume("reviewer", {"price": 3, "count": 0}, by="a worker")
    space.start("reviewer", "short", "Round at the end instead?")
    space.decide("reviewer", "yes", "Nobody pays a hundredth of a cent", by="Ada Lovelace <ada@example.org>")
    space.start("reviewer", "short", "Is the changelog complete?")
    space.start("scout", "release", {"version": "3.0", "changes": []})
    space.ask(
        "scout", {"question": "What should the release be called?\nIt is shown to customers.", "seen": {"before": ["Ada", "Bo"]}}
    )
    return {"decision": decided.cid, "waits": "lead/1.3", "answered": "reviewer/2.1"}


_OUTER: dict[tuple[str, str], dict[str, Any]] = {
    ("scout", "agent"): {
        "title": "Scout",
        "role": "Explorer",
        "status": "active",
        "guardrails": ["Deploys need a person's approval."],
    },
    ("reviewer", "agent"): {"title": "Reviewer", "role": "Code reviewer", "status": "active"},
}
_INNER: dict[tuple[str, str], dict[str, Any]] = {
    ("scout", "agent"): {"role": "Explorer of the shop", "guardrails": ["Say what you read."], "tags": ["explorer", "prices"]},
    ("scout", "agenda"): {"title": "Scout's plan", "milestones": [{"title": "Map every service", "due": "2027-01-31"}]},
}
"""The identities of the agents, in documents around the shop and in it."""


def _document(place: Path, slug: str, kind: str, content: Mapping[str, Any]) -> None:
    home = place / ".clia" / "agents" / slug
    home.mkdir(parents=True, exist_ok=True)
    body = {"schemaVersion": "0.4.0", "slug": slug, **content}
    (home / f"{slug}@{place.name}.{kind}.triad.json").write_text(json.dumps(body, indent=2, ensure_ascii=False) + "\n")


# A space with hostile agents

_EVIL = """\
def main(attack):
    request("work", attack)
    request("human", {"question": attack, "context": {attack: attack}, "choices": [attack, "no"]}, tag=attack[:100])
    text = {"type": "string", "title": attack, "description": attack, "default": attack}
    fields = {"type": "object", "title": attack, "description": attack, "properties": {"a": text, "b": {"enum": [attack, "x"]}}}
    request("human", {"question": attack, "schema": fields})
    raise ValueError(attack)
"""


def hostile(root: Path) -> Scene:
    """The attack in every field that an agent or its input controls."""
    _document(root, "villain", "agent", {"title": ATTACK, "role": ATTACK, "guardrails": [ATTACK], "extensions": {ATTACK: ATTACK}})
    _document(root, "villain", "agenda", {"title": ATTACK, "backlog": [ATTACK]})
    git("init", "-q", "-b", "main", cwd=root)
    with clia.init(root, settings=settings()) as space:
        for name in ("villain", "victim", "failed"):
            space.spawn(name, clia.Briefing(ATTACK, f"{ATTACK}\n{ATTACK}"), slug="villain")
        path = f"{ATTACK.replace('/', '')[:80]}.txt"
        space.trace("villain", "stdout", f"\x1b[31m{ATTACK}\x1b[0m", data={ATTACK: ATTACK})
        cid = space.commit_with_trace(
            "villain", "finding", {path: ATTACK.encode()}, message=f"{ATTACK}\n\n{ATTACK}", meta={"m": ATTACK}
        )
        space.commit("victim", "finding", {path: b"other"}, message=ATTACK)
        space.merge("villain", "victim", message=ATTACK)
        space.trace("villain", "stdout", ATTACK)
        space.sessions.define("evil", _EVIL)
        for name in ("villain", "victim", "failed"):
            space.start(name, "evil", ATTACK)
            space.resume(name, ATTACK, by=ATTACK)
        space.decide("victim", ATTACK, ATTACK, by=ATTACK)
        space.decide("failed", ATTACK, ATTACK, by=ATTACK)
        space.decide("failed", {"a": ATTACK, "b": "x"}, ATTACK, by=ATTACK)
        space.ask("villain", {"question": ATTACK, "html": ATTACK})
        names = {"cid": cid, "path": path, "decision": space.head("victim")}
    return Scene(root, names)


# Large spaces


def long_trace(root: Path, entries: int) -> str:
    """A commit with this number of trace entries."""
    with clia.open(root, settings=clia.Settings(durable=False, person=PERSON)) as space:
        space.spawn("scout", clia.Briefing("Run for long"))
        cid = space.commit("scout", "test", {"log.txt": b"long"}, message="A long day")
        texts = ("needle in it" if number == entries - 100 else f"entry {number} \x1b[32mok\x1b[0m" for number in range(entries))
        space.traces.attach(cid, [{"kind": "stdout", "text": text} for text in texts])
        return cid


def many_commits(root: Path, commits: int, agents: int = 40) -> None:
    """Commits of agents in turn; one in twelve is a merge. Written by libgit2 directly, because only the page is tested."""
    chance = random.Random(5)  # noqa: S311  # the same history every time
    repo = pygit2.Repository(str(root))
    tree = pygit2.Index().write_tree(repo)
    heads: dict[str, pygit2.Oid] = {}
    for number in range(commits):
        name = f"agent-{number if number < agents else chance.randrange(agents)}"
        parents: Sequence[pygit2.Oid] = [heads[name]] if name in heads else []
        other_names = sorted(heads.keys() - {name})
        kind = "finding" if parents else "spawn"
        if not parents and other_names:
            parents = [heads[chance.choice(other_names)]]
        elif parents and number % 12 == 0:
            kind, parents = "session-merge", [*parents, heads[chance.choice(other_names)]]
        text = messages.compose(f"step {number} of {name}", [(AGENT, name), (TYPE, kind)], kind)
        by = pygit2.Signature("bench", "bench@example.org", 1_790_000_000 + number, 0)
        heads[name] = repo.create_commit(None, by, by, text, tree, list(parents))
    for name, head in heads.items():
        repo.references.create(refs.head(name), head)
    subprocess.run(["git", "-C", str(root), "repack", "-adq"], check=True)

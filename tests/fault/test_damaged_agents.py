"""Damage of one agent stays with it: no read about others fails, and ``verify`` names the agent."""

from __future__ import annotations

import re
from contextlib import ExitStack, nullcontext, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import clia
from clia.api.derivation import all_verbs
from clia.errors import CliaError, GitError
from clia.facade.config import ForgeOptions
from clia.forge.app import create_app
from clia.forge.forge import forge_of
from support import git
from support.commands import Commands
from support.forge import OpenForge
from support.space_driver import settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from clia.api.derivation import Verb

READS = {verb.name: verb for verb in all_verbs() if verb.method == "GET"}
FLOW = 'def main(input):\n    return request("human", {"question": "go on?"})\n'
PARTS = {
    "head": "{head}",
    "middle": "{head}~2",
    "genesis": "{head}~3^{{commit}}",
    "tree": "{head}^{{tree}}",
    "folder": "{head}:d",
    "file": "{head}:d/0",
    "events": "refs/clia/events/{name}",
    "first-event": "refs/clia/events/{name}~1",
    "notes": "refs/notes/clia/trace/{name}",
    "notes-tree": "refs/notes/clia/trace/{name}^{{tree}}",
    "note": "",
    "record": "refs/clia/agents/{name}",
    "record-tree": "refs/clia/agents/{name}^{{tree}}",
    "briefing": "refs/clia/agents/{name}:briefing.json",
}
"""What is unreadable of an agent, as a revision. There is an agent for each, once with the object missing and once damaged."""
MISSING, DAMAGED = "missing", "damaged"
FAULTY = [f"bad-{part}-{damage}" for part in PARTS for damage in (MISSING, DAMAGED)]
USUAL = {"name": "fine", "agent": "fine", "text": "fine", "commit": "fine", "into": "fine", "from_": "helper"}
NAMED: dict[str, dict[str, Any]] = {
    "is_a": {"name": "finding", "ancestor": "agent-commit"},
    "blame": {"text": "main", "path": "a"},
    "why": {"path": "a", "line": 1, "commit": "main"},
    "authorship": {"text": "main"},
    "fork_point": {"one": "fine", "other": "done"},
    "conflicts": {"into": "fine", "from_": "done"},
    "flow": {"text": "flow"},
    "behaviour": {"name": "flow"},
    "suggest_behaviour": {"name": "flow"},
    "behaviour_version": {"text": "flow"},
    "behaviour_diff": {"one": "flow", "other": "flow"},
    "compare_behaviours": {"before": "flow", "after": "flow"},
    "trace_search": {"text": "fine 1"},
}
CHANGING = {"verify", "verify_trust", "fleet", "observation_gaps", "doctor"}
"""Verbs whose answer the damage changes, for good reason."""


def populate(root: Path) -> None:
    """Agents, each with commits, traces, relations and a live session; one landed, one clashes with others."""
    with clia.init(root, settings=settings()) as space:
        (root / "a").write_text("1\n")
        git("add", "a", cwd=root)
        git("commit", "-qm", "start", cwd=root)
        space.define("flow", FLOW)
        for name in ("fine", *FAULTY):
            space.spawn_at(name, clia.Briefing(title=name), "main")
            for number in range(3):
                space.trace(name, "console", f"{name} {number}")
                space.commit_with_trace(name, "finding", changes={f"d/{number}": f"{name} {number}\n".encode()})
            space.relate(name, "advises", "fine")
            space.relate(name, "reviews", "fine")
        space.trace("fine", "console", "fine pending")
        space.spawn_from("helper", clia.Briefing(title="helper"), "fine")
        space.commit("helper", "finding", changes={"h": b"h\n"})
        space.merge("fine", "helper")
        space.start("fine", "flow")
        space.spawn_at("rival", clia.Briefing(title="rival"), "main")
        space.commit("rival", "finding", changes={"d/0": b"rival\n"})
        space.peers.key()  # created when it is read first
        space.spawn_at("done", clia.Briefing(title="done"), "main")
        space.commit("done", "finding", changes={"l": b"1\n2\n"})
        space.land("done", "main")


def damage(root: Path) -> None:
    """Remove or overwrite one object of each faulty agent."""
    for name in FAULTY:
        part, kind = name.removeprefix("bad-").rsplit("-", 1)
        if part == "note":
            revision = git("ls-tree", "-r", "--object-only", f"refs/notes/clia/trace/{name}", cwd=root).split()[0]
        else:
            revision = PARTS[part].format(head=f"agents/{name}", name=name)
        cid = git("rev-parse", revision, cwd=root).strip()
        path = root / ".git/objects" / cid[:2] / cid[2:]
        path.chmod(0o644)
        if kind == MISSING:
            path.unlink()
        else:
            path.write_bytes(b"x" * 100)


class Damaged(NamedTuple):
    root: Path
    space: clia.Space
    before: Mapping[str, Any]  # the answer of each verb before the damage


def mentioned(texts: Iterable[str]) -> set[str]:
    together = " ".join(texts)
    return {name for name in FAULTY if name in together}


def ask(space: clia.Space, verb: Verb) -> Any:
    """The answer of a verb about a sound agent or about all; the error's code if it is refused."""
    arguments = NAMED.get(verb.name, USUAL)
    wanted = {param.name: arguments[param.name] for param in verb.params if param.name in arguments}
    missing = {param.name: "fine" for param in verb.params if param.required and param.name not in wanted}
    try:
        answer = verb.call(space, wanted | missing)
        return list(map(repr, answer)) if isinstance(answer, list) else repr(answer)
    except CliaError as err:
        return f"refused: {err.code}"


@pytest.fixture(scope="module", params=["read before", "never read"])
def damaged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Damaged]:
    """The space after the damage; its indexes were complete before, or are empty."""
    root = tmp_path_factory.mktemp("damaged") / "space"
    populate(root)
    with clia.open(root, settings=settings()) as space:
        before = {name: ask(space, verb) for name, verb in READS.items()}
    damage(root)
    with clia.open(root, settings=settings()) as space:
        if request.param == "never read":
            space.rebuild()
        yield Damaged(root, space, before)


def about_others(answer: list[Any]) -> list[Any]:
    return [item for item in answer if "bad-" not in item]


@pytest.mark.parametrize("name", READS)
def test_every_read_about_others_answers_as_before(damaged: Damaged, name: str) -> None:
    before, after = damaged.before[name], ask(damaged.space, READS[name])
    if name in CHANGING:
        assert not str(after).startswith("refused")
    elif isinstance(before, list):
        assert about_others(before) == about_others(after)
        assert about_others(before) or not before, "the answer says something about others"
    else:
        assert after == before


def test_verify_names_each_damaged_agent(damaged: Damaged) -> None:
    report = damaged.space.verify()
    assert mentioned(finding.ref or "" for finding in report.findings) == set(FAULTY)
    assert not any("fine" in (finding.ref or "") or "done" in (finding.ref or "") for finding in report.findings)
    assert report.agents == len(FAULTY) + 4


def test_the_list_shows_why_a_state_cannot_be_read(damaged: Damaged) -> None:
    states = {state.agent: state for state in damaged.space.states()}
    assert {name for name, state in states.items() if state.problem} == {
        f"bad-{part}-{kind}" for part in ("head", "events", "first-event") for kind in (MISSING, DAMAGED)
    }
    assert states["bad-head-missing"].kind is None
    assert states["bad-events-missing"].kind == "finding"
    assert "not found" in Commands(damaged.root)("list")


@pytest.mark.parametrize("branch_moved", [False, True], ids=["forward", "merge"])
def test_a_change_whose_file_cannot_be_read_is_listed_with_its_problem_beside_others(tmp_path: Path, branch_moved: bool) -> None:
    root = tmp_path / "space"
    with clia.init(root, settings=settings()) as space:
        (root / "a").write_text("1\n")
        git("add", "a", cwd=root)
        git("commit", "-qm", "start", cwd=root)
        for name in ("one", "two", "bad"):
            space.spawn_at(name, clia.Briefing(title=name), "main")
            space.commit(name, "finding", changes={"a": f"{name}\n".encode()})
        if branch_moved:
            (root / "b").write_text("1\n")
            git("add", "b", cwd=root)
            git("commit", "-qm", "more", cwd=root)
    cid = git("rev-parse", "agents/bad:a", cwd=root).strip()
    (root / ".git/objects" / cid[:2] / cid[2:]).unlink()
    with clia.open(root, settings=settings()) as space:
        problems = {change.agent: change.problem for change in space.changes()}
        assert (problems["one"], problems["two"]) == (None, None)
        assert problems["bad"]
        assert [clash[:2] for clash in space.changes.clashes()] == [("one", "two")]
        assert space.changes.get("one").forecast.outcome == "lands"
        with pytest.raises(GitError):
            space.changes.get("bad")


COMMANDS = (
    ("list",),
    ("tree",),
    ("graph",),
    ("log", "fine"),
    ("show", "fine"),
    ("diff", "fine"),
    ("blame", "main", "a"),
    ("relations",),
    ("trace", "search", "fine 1"),
    ("session", "list"),
    ("behaviour", "stats"),
    ("inbox",),
    ("authorship",),
)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_commands_about_others_work(damaged: Damaged, words: tuple[str, ...]) -> None:
    ran = Commands(damaged.root).run(*words)
    assert ran.code == 0, ran


def test_verify_as_a_command_reports_findings(damaged: Damaged) -> None:
    findings = Commands(damaged.root).json("verify", code=1)["findings"]
    assert mentioned(finding["ref"] or "" for finding in findings) == set(FAULTY)


PAGES = (
    *("", "graph", "inbox", "waiting", "fleet", "health", "branches", "authorship", "behaviours", "behaviours/flow", "peers"),
    *("sessions", "sessions/fine/1", "agents/fine", "agents/fine/files", "agents/fine/merges/done", "commits/{head}", "lineage"),
)


def test_pages_about_others_work(damaged: Damaged) -> None:
    forge = forge_of([(str(damaged.root), clia.open(damaged.root, settings=settings()))], ForgeOptions())
    with OpenForge(forge, create_app(forge), ExitStack()) as opened:
        opened.stack.callback(forge.close)
        browser, head = opened.browser(), damaged.space.head("fine")
        answers = {path: browser.get(f"{opened.base}/{path.format(head=head)}") for path in PAGES}
        assert {path: answer.status_code for path, answer in answers.items()} == dict.fromkeys(PAGES, 200)
        assert mentioned([answers[""].text]) == set(FAULTY)
        of_faulty = {name: browser.get(f"{opened.base}/agents/{name}") for name in FAULTY}
        refused = {name: answer.text for name, answer in of_faulty.items() if answer.status_code != 200}
        assert [name for name, text in refused.items() if not re.search(r"cannot read object|not found", text)] == []


def test_everyone_can_still_work(damaged: Damaged) -> None:
    """Except on the faulty agents, if what they need is unreadable; nothing is lost by trying."""
    space = damaged.space
    for number, name in enumerate(("fine", *FAULTY)):
        with suppress(CliaError) if name != "fine" else nullcontext():
            space.trace(name, "console", f"{number}")
            space.commit_with_trace(name, "finding", changes={"after": b"1\n"})
    space.spawn_from("new", clia.Briefing(title="new"), "fine")
    space.land("fine", "main")
    space.agents.archive("done")
    assert space.relations.tree("fine") == ["helper", "new"]

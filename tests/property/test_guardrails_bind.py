"""No path leads to an agent with fewer guardrails than its place gives, without a decision that names the loss.

Random trees of documents, places of spawn, worktrees and edits, against a model that knows only which rule is written where.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path  # noqa: TC003  # Hypothesis reads the annotation at run time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clia
from clia.errors import CliaError
from clia.identities.merge_rules import projected_text
from support import git
from support.spaces import BRIEFING
from support.spaces import settings as space_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from clia.space.model import AgentCommit

DIRECTORIES = ("", "services", "services/payments", "services/payments/api", "services/payments/api/v1", "tools")
SLUGS = ("root", "scout", "reviewer")
INNER = "services/payments"
"""The directory of the repository with the space; the others are in the repository around it."""
PLACES = ("", "api", "api/v1")
EXAMPLES = max(4, (settings.default.max_examples if settings.default else 50) // 10)
STEPS = 14


class Org:
    """A tree with agents, and what each of them must be bound by."""

    def __init__(self, top: Path, choice: random.Random) -> None:
        self.top = top
        self.choice = choice
        self.rules: dict[tuple[str, str], list[str]] = {}  # (directory, slug) -> guardrails
        self.bound: dict[str, set[str]] = {}
        self.places: dict[str, tuple[str, str | None]] = {}
        self.worktrees: dict[str, list[Path]] = {}
        self.seen: dict[tuple[str, str], set[str]] = {}  # (identity, place) -> guardrails that agents were spawned with
        self.count = 0
        for directory in DIRECTORIES:
            (top / "acme" / directory).mkdir(parents=True, exist_ok=True)
        for repository in ("", INNER):
            git("init", "--quiet", cwd=top / "acme" / repository)
        clia.init(self.main, settings=space_settings()).close()
        for directory in DIRECTORIES:
            for slug in SLUGS:
                if choice.random() < 0.4:
                    self.write(directory, slug)

    @property
    def main(self) -> Path:
        return self.top / "acme" / INNER

    def opened(self, directory: Path | None = None) -> clia.Space:
        return clia.open(directory or self.main, settings=space_settings())

    # Edits of people

    def write(self, directory: str, slug: str) -> None:
        """Add a rule to a document, or remove one."""
        rules = self.rules.setdefault((directory, slug), [])
        if rules and self.choice.random() < 0.4:
            rules.pop(self.choice.randrange(len(rules)))
        else:
            self.count += 1
            rules.append(f"Rule {self.count} of {slug}.")
        document: dict[str, Any] = {"slug": slug, "guardrails": rules}
        if slug != "root" and self.choice.random() < 0.3:
            document["rootChain"] = {"mode": "explicit", "roots": []}
        put(self.top / "acme" / directory, slug, document)

    def edit_somewhere(self) -> None:
        self.write(self.choice.choice(DIRECTORIES), self.choice.choice(SLUGS))

    def given(self, place: str, slug: str | None) -> set[str]:
        """The guardrails that a place gives to an identity."""
        where = f"{INNER}/{place}".rstrip("/")
        above = [directory for directory in DIRECTORIES if directory in ("", where) or where.startswith(f"{directory}/")]
        return {rule for directory in above for name in ("root", slug) for rule in self.rules.get((directory, str(name)), ())}

    def has(self, place: str, slug: str) -> bool:
        where = f"{INNER}/{place}".rstrip("/")
        return any(name == slug and (not directory or f"{where}/".startswith(f"{directory}/")) for directory, name in self.rules)

    # Agents

    def spawn(self) -> None:
        parents = sorted(self.bound)
        parent = self.choice.choice(parents) if parents and self.choice.random() < 0.5 else None
        inside = [path for paths in self.worktrees.values() for path in paths if path.is_dir()]
        place = self.choice.choice(PLACES)
        start = self.main / place
        base = "" if parent is None else self.places[parent][0]
        if inside and self.choice.random() < 0.3:
            start = self.choice.choice(inside)
            owner = next(agent for agent, paths in self.worktrees.items() if start in paths)
            base, place = base if parent is not None else self.places[owner][0], ""
        if base and not f"{place}/".startswith(f"{base}/"):
            place = base
        known = [slug for slug in SLUGS[1:] if self.has(place, slug)]
        slug = self.choice.choice(known) if known and self.choice.random() < 0.6 else None
        name = f"agent-{len(self.bound)}"
        inherited = self.places[parent][1] if parent is not None and slug is None else slug
        kept = self.bound[parent] if parent is not None and slug is None else set()

        def spawn() -> None:
            with self.opened(start) as space:
                if parent is None:
                    space.spawn(name, BRIEFING, slug=slug)
                else:
                    space.spawn_from(name, BRIEFING, parent, slug=slug)

        gone = self.gone(place, inherited) - kept
        if gone:
            self.check_refused(spawn, gone)
        spawn()
        self.places[name] = (place, inherited)
        self.bound[name] = self.given(place, inherited) | kept
        for outer in above(place):
            for identity in {"root", inherited or "root"}:
                self.seen.setdefault((identity, outer), set()).update(self.given(outer, identity))

    def gone(self, place: str, slug: str | None) -> set[str]:
        """What agents at a place were bound by, and what is not there any more."""
        places = [(identity, outer) for identity in {"root", slug or "root"} for outer in above(place)]
        return {
            rule for identity, outer in places for rule in self.seen.get((identity, outer), set()) - self.given(outer, identity)
        }

    def check_refused(self, spawn: Callable[[], None], gone: set[str]) -> None:
        """A spawn is refused until a person's decision names the loss."""
        with pytest.raises(CliaError) as caught:
            spawn()
        assert caught.value.code == "guardrail-change"
        assert all(any(repr(rule) in text for text in caught.value.fields["losses"]) for rule in gone)
        with self.opened() as space:
            accepted = space.identities.accept_loss("Agreed.", by="Ada")
            assert gone <= {loss.text for loss in accepted.lost}
        message = git("log", "-20", "--format=%B", "refs/clia/guardrails", cwd=self.main)
        assert all(rule in message for rule in gone)
        for (identity, outer), rules in self.seen.items():
            if rules - self.given(outer, identity):
                self.seen[identity, outer] = self.given(outer, identity)

    def check_out(self) -> None:
        if not self.bound:
            return
        agent = self.choice.choice(sorted(self.bound))
        number = sum(map(len, self.worktrees.values()))
        where = self.choice.choice(
            (self.top / "away" / f"wt{number}", self.top / f"wt{number}", self.main / f".worktrees/wt{number}")
        )
        with self.opened() as space:
            space.checkout(agent, where)
        self.worktrees.setdefault(agent, []).append(where)

    def tamper(self) -> None:
        """Something that an agent does to the documents of its worktree."""
        trees = [path for paths in self.worktrees.values() for path in paths]
        if not trees:
            return
        tree = self.choice.choice(trees)
        directory = tree / self.choice.choice(PLACES)
        how = self.choice.choice(("thin", "remove", "branch", "nested", "chain", "link"))
        if how == "thin":
            for slug in SLUGS:
                put(directory, slug, {"slug": slug, "guardrails": []})
        elif how == "remove":
            shutil.rmtree(tree / ".clia", ignore_errors=True)
            shutil.rmtree(tree / "api", ignore_errors=True)
        elif how == "branch":
            git("checkout", "--quiet", "-B", f"own-{self.choice.randrange(1000)}", cwd=tree)
        elif how == "nested" and not (tree / "inner").exists():
            git("init", "--quiet", "inner", cwd=tree)
        elif how == "chain":
            put(directory, "scout", {"slug": "scout", "rootChain": {"mode": "explicit", "roots": []}})
        elif how == "link" and not os.path.lexists(tree / ".clia/agents/root"):
            (tree / ".clia/agents/thin").mkdir(parents=True, exist_ok=True)
            (tree / ".clia/agents/root").symlink_to("thin")

    def reprofile(self) -> None:
        if not self.bound:
            return
        agent = self.choice.choice(sorted(self.bound))
        place, slug = self.places[agent]
        lost = recorded(self, agent) - self.given(place, slug)
        with self.opened() as space:
            try:
                done = space.identities.reprofile(agent)
            except CliaError as err:
                if err.code == "incomplete-profile" or (err.code == "guardrail-change" and lost and self.choice.random() < 0.4):
                    return
                space.decide(agent, "approve", request_id=err.fields["request"], by="Ada")
                done = space.identities.reprofile(agent)
            assert set(map(projected_text, done.lost)) == lost
            if lost:
                decision = space.show(str(done.decision))
                assert lost <= {loss["guardrail"] for loss in asked(decision)}
        self.bound[agent] = self.given(place, slug)

    # The law

    def check(self) -> None:
        with self.opened() as space:
            for agent, bound in self.bound.items():
                place, slug = self.places[agent]
                must = bound | self.given(place, slug)
                identity = space.identities.of_agent(agent)
                assert texts(identity.guardrails) >= must, agent
                assert bound <= recorded(self, agent), agent
                instructions = space.identities.instructions(agent)
                assert all(rule in instructions for rule in must)
                if slug is not None and self.has(place, slug):
                    for tree in self.worktrees.get(agent, ()):
                        self.check_worktree(tree, slug, must)

    def check_worktree(self, tree: Path, slug: str, must: set[str]) -> None:
        for path in (tree, *(tree / name for name in ("api", "inner") if (tree / name).is_dir())):
            profile = clia.lineage(path, slug).profile()
            said = " ".join(item.message for item in profile.diagnostics if item.code == "guardrails-missing")
            shown = texts(profile.get("guardrails") or ())
            assert all(rule in shown or rule in said for rule in must), (path, must - shown)


def above(place: str) -> list[str]:
    return [outer for outer in PLACES if not outer or f"{place}/".startswith(f"{outer}/")]


def put(directory: Path, slug: str, document: dict[str, Any]) -> None:
    home = directory / ".clia/agents" / slug
    if not home.is_symlink():
        home.mkdir(parents=True, exist_ok=True)
        (home / f"{slug}@x.agent.triad.json").write_text(json.dumps(document))


def texts(items: Any) -> set[str]:
    return {projected_text(item) for item in items}


def recorded(org: Org, agent: str) -> set[str]:
    with org.opened() as space:
        profile = space.record_of(agent).get("profile.json") or {}
        return texts((profile.get("document") or {}).get("guardrails") or ())


def asked(decision: AgentCommit) -> Iterator[dict[str, Any]]:
    assert decision.kind == "decision"
    yield from decision.meta["asked"]["losses"]


@given(seed=st.integers(0, 2**32))
@settings(max_examples=EXAMPLES)
def test_no_path_leads_to_fewer_guardrails(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    top = tmp_path_factory.mktemp("org")
    try:
        choice = random.Random(seed)  # noqa: S311  # a test
        org = Org(top, choice)
        org.spawn()
        for _ in range(STEPS):
            step = choice.choice((org.spawn, org.spawn, org.check_out, org.tamper, org.tamper, org.reprofile, org.edit_somewhere))
            step()
            org.check()
    finally:
        shutil.rmtree(top, ignore_errors=True)

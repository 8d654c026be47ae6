"""A space behaves like a simple model under any order of verbs, reopenings and garbage collections."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import pygit2
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

import clia
from clia.errors import CliaError
from clia.space.model import Conflicts, Landed, Merged, UpToDate
from clia.values.types import BUILT_IN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    Files = dict[str, bytes]

NOW = datetime(2025, 1, 1, tzinfo=UTC)
AT = "2025-01-01T00:00:00Z"
GONE = "0123456789" * 4
# Few names and paths, so that verbs interact; one name is a file in some trees and a folder in others.
NAMES = ("ada", "bob", "cleo", "dan", "eve")
agents = st.integers(0, 9)  # an active agent; the last two numbers pick from all names, see `pick`
file_paths = st.sampled_from(["a", "b", "src/c", "src/d", "doc", "doc/e"])
path_pairs = file_paths.map(lambda path: (path, path)) | st.tuples(file_paths, file_paths)
# One line each, so that two different changes never merge; one is binary.
CONTENTS = (b"one\n", b"two\n", b"three\n", b"no\0text", b"no newline")
contents = st.sampled_from(CONTENTS)
files = st.dictionaries(file_paths, contents, max_size=4)
changes = st.dictionaries(file_paths, contents | contents | st.none(), max_size=3)
messages = st.sampled_from(["", "fix it", "\nsubject\n\nbody\n---\nClia-Type: decision\n"])
metas = st.sampled_from([None, {}, {"score": 0.5, "why": "a\nb"}])
kinds = st.sampled_from(["finding", "finding", "refactor", "test", "review"])
edge_kinds = st.sampled_from(["reviews", "advises", "merges", "sub-agent-of"])
branches = st.sampled_from(["main", "side"])


class ModelCommit(NamedTuple):
    """A commit in the model."""

    parents: tuple[str, ...]
    tree: Files
    kind: str | None = None
    message: str = ""
    meta: dict[str, Any] = {}  # noqa: RUF012  # never changed


class MergeOutcome(NamedTuple):
    """The expected result of a merge: the files without conflicts, and base, ours and theirs of each conflict."""

    tree: Files
    conflicts: dict[str, tuple[bytes | None, ...]]


class Model:
    """The expected state, in plain values."""

    def __init__(self) -> None:
        self.commits: dict[str, ModelCommit] = {}
        self.heads: dict[str, str] = {}  # of active agents
        self.archived: dict[str, str] = {}
        self.own: dict[str, list[str]] = {}  # each agent's own commits, oldest first
        self.branches: dict[str, str] = {}
        self.edges: dict[tuple[str, str, str], set[str]] = {}
        self.pending: dict[str, list[str]] = {}
        self.bound: dict[str, list[str]] = {}  # commit to the texts of its trace
        self.bindings: dict[str, int] = {}  # how often a commit's trace was bound
        self.landings: dict[str, list[tuple[str, str, str, str]]] = {}  # newest first
        self.types: dict[str, str | None] = dict(BUILT_IN)
        self.objects: dict[str, dict[str, Any]] = {}

    def past(self, cid: str) -> set[str]:
        """A commit and everything before it."""
        ancestors, todo = set(), [cid]
        while todo:
            at = todo.pop()
            if at not in ancestors:
                ancestors.add(at)
                todo.extend(self.commits[at].parents)
        return ancestors

    def bases(self, first: str, second: str) -> set[str]:
        """The best common ancestors."""
        shared = self.past(first) & self.past(second)
        older = set().union(*(self.past(parent) for cid in shared for parent in self.commits[cid].parents))
        return shared - older

    def merge(self, ours: str, theirs: str, landed: str | None = None) -> MergeOutcome | None:
        """None if only git can decide: several bases, a possible rename, a file where the other side has a folder.

        ``landed`` is the commit that was squashed before; it is the base if it is newer than the common ancestor.
        """
        bases = self.bases(ours, theirs)
        if len(bases) > 1:
            return None
        if (
            landed is not None
            and landed in self.past(theirs)
            and all(base_id != landed and base_id in self.past(landed) for base_id in bases)
        ):
            bases = {landed}
        base = self.commits[bases.pop()].tree if bases else {}
        sides = (self.commits[ours].tree, self.commits[theirs].tree)
        if any(base.keys() - side.keys() and side.keys() - base.keys() for side in sides) or clash({**sides[0], **sides[1]}):
            return None
        outcome = MergeOutcome({}, {})
        for path in sorted({*base, *sides[0], *sides[1]}):
            before, ours_value, theirs_value = (tree.get(path) for tree in (base, *sides))
            if ours_value != theirs_value and before not in (ours_value, theirs_value):
                outcome.conflicts[path] = (before, ours_value, theirs_value)
            else:
                after = theirs_value if ours_value == before else ours_value
                outcome.tree.update({} if after is None else {path: after})
        return outcome

    def add(self, name: str, cid: str, node: ModelCommit) -> None:
        """A commit of an agent's own, its new head."""
        self.commits[cid] = node
        self.heads[name] = cid
        self.own.setdefault(name, []).append(cid)

    def standing(self) -> set[tuple[str, str, str, str]]:
        return {(*edge, origin) for edge, origins in self.edges.items() for origin in origins}

    def targets(self, name: str, kind: str) -> list[str]:
        return sorted(dst for (src, edge_kind, dst), origins in self.edges.items() if (src, edge_kind) == (name, kind) and origins)

    def sources(self, name: str, kind: str) -> list[str]:
        return sorted(src for (src, edge_kind, dst), origins in self.edges.items() if (dst, edge_kind) == (name, kind) and origins)


def clash(tree: Files) -> bool:
    return any(longer.startswith(f"{path}/") for path in tree for longer in tree)


def plain(tree: Mapping[str, object]) -> Files:
    """The files of a tree, without links and modes."""
    return {path: value for path, value in tree.items() if isinstance(value, bytes)}


def message_or_default(message: str, default: str) -> str:
    return message.strip("\n") or default


class SpaceMachine(RuleBasedStateMachine):
    """Runs each verb on a real space, and updates the model with the expected result."""

    directory: Path

    def __init__(self) -> None:
        super().__init__()
        self.chosen = clia.Settings(durable=False, clock=lambda: NOW, person=("Tess", "tess@example.org"))
        self.space = clia.init(self.directory, settings=self.chosen)
        self.model = Model()
        self.numbers = count()

    def teardown(self) -> None:
        edges = self.space.relations()
        assert self.space.rebuild() == len(edges)
        assert self.space.relations() == edges
        report = self.space.verify()
        assert report.clean, report.findings
        assert (report.agents, report.edges) == (len(self.model.own), len(edges))
        assert report.traces == len(self.model.bound)
        self.space.close()
        shutil.rmtree(self.directory)

    def git(self, *words: str) -> str:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        for role in ("AUTHOR", "COMMITTER"):
            environment |= {f"GIT_{role}_NAME": "Tess", f"GIT_{role}_EMAIL": "t@example.org", f"GIT_{role}_DATE": AT}
        result = subprocess.run(["git", *words], cwd=self.directory, env=environment, capture_output=True, text=True, check=True)
        return result.stdout.strip()

    def refs(self) -> dict[str, str]:
        repo = pygit2.Repository(str(self.directory))
        return {ref: str(repo.references[ref].target) for ref in repo.references}

    @contextmanager
    def refused(self, *codes: str) -> Iterator[pytest.ExceptionInfo[CliaError]]:
        """Check that the call fails with one of these codes and moves no ref."""
        before = self.refs()
        with pytest.raises(CliaError) as caught:
            yield caught
        assert caught.value.code in codes, caught.value
        assert self.refs() == before

    def at_work(self, *names: str) -> bool:
        return all(name in self.model.heads for name in names)

    def pick(self, number: int) -> str:
        """Pick mostly an active agent, so that most verbs succeed."""
        active = sorted(self.model.heads)
        return active[number % len(active)] if active and number < 8 else NAMES[number % len(NAMES)]

    def pick_other(self, first: int, second: int) -> str:
        """Pick mostly another agent than the first."""
        active = sorted(self.model.heads.keys() - {self.pick(first)})
        return active[second % len(active)] if active and second < 8 else NAMES[second % len(NAMES)]

    # Branches of people

    @initialize()
    def people_have_two_branches(self) -> None:
        (self.directory / "a").write_bytes(b"one\n")
        self.git("add", "a")
        self.git("commit", "--quiet", "--message", "people")
        self.git("branch", "side")
        first = self.git("rev-parse", "HEAD")
        self.model.branches = {"main": first, "side": first}
        self.model.commits[first] = ModelCommit((), {"a": b"one\n"})
        self.spawn("ada", "empty", 0)
        self.spawned("bob", first, None, lambda briefing: self.space.spawn_at("bob", briefing, "main"))

    # Agents

    def spawned(self, name: str, at: str | None, parent: str | None, call: Callable[[clia.Briefing], Any]) -> None:
        title = f"task {next(self.numbers)}"
        if name in self.model.own:
            with self.refused("already-exists") as caught:
                call(clia.Briefing(title))
            assert caught.value.fields["actual"] == self.model.own[name][-1]
            return
        spawned_agent = call(clia.Briefing(title))
        tree = dict(self.model.commits[at].tree) if at else {}
        self.model.add(name, spawned_agent.genesis, ModelCommit((at,) if at else (), tree, "spawn", f"spawn: {title}"))
        self.model.pending[name] = []
        self.model.landings[name] = []
        if parent:
            self.model.edges.setdefault((parent, "sub-agent-of", name), set()).add(spawned_agent.genesis)
        assert self.space.agents.briefing(name).title == title
        assert self.space.agents.genesis(name) == spawned_agent.genesis

    @rule(index=agents, how=st.sampled_from(["empty", "from", "from", "at"]), parent=agents, data=st.data())
    def new_agent(self, index: int, how: str, parent: int, data: st.DataObject) -> None:
        free = [name for name in NAMES if name not in self.model.own]
        name = free[index % len(free)] if free and index < 8 else NAMES[index % len(NAMES)]
        if how != "at":
            self.spawn(name, how, parent)
            return
        at = data.draw(st.sampled_from(sorted(self.model.commits)))
        parent_name = data.draw(st.none() | st.just(self.pick(parent)))
        if parent_name is not None and not self.at_work(parent_name):
            with self.refused("no-such-agent"):
                self.space.spawn_at(name, clia.Briefing("x"), at, parent_name)
            return
        self.spawned(name, at, parent_name, lambda briefing: self.space.spawn_at(name, briefing, at, parent_name))

    def spawn(self, name: str, how: str, parent: int) -> None:
        parent_name = self.pick(parent)
        if how == "empty":
            self.spawned(name, None, None, lambda briefing: self.space.spawn(name, briefing))
        elif self.at_work(parent_name):
            self.spawned(
                name,
                self.model.heads[parent_name],
                parent_name,
                lambda briefing: self.space.spawn_from(name, briefing, parent_name),
            )
        else:
            with self.refused("no-such-agent"):
                self.space.spawn_from(name, clia.Briefing("x"), parent_name)

    @rule(index=agents, back=st.booleans())
    def archive_or_restore(self, index: int, back: bool) -> None:
        archived = sorted(self.model.archived)
        name = archived[index % len(archived)] if back and archived else self.pick(index)
        source, target = (self.model.archived, self.model.heads) if back else (self.model.heads, self.model.archived)
        call = self.space.agents.restore if back else self.space.agents.archive
        if name not in source:
            with self.refused("no-such-agent"):
                call(name)
            return
        call(name)
        target[name] = source.pop(name)

    # Commits

    @rule(
        index=agents,
        kind=kinds,
        content=st.tuples(st.none() | files, changes),
        words=st.tuples(messages, metas),
        base=st.booleans(),
        traced=st.none() | st.integers(0, 2),
    )
    def commit(
        self,
        index: int,
        kind: str,
        content: tuple[Files | None, dict[str, bytes | None]],
        words: tuple[str, dict[str, Any] | None],
        base: bool,
        traced: int | None,
    ) -> None:
        """``traced``: bind the trace, after adding this many entries."""
        name, (full, delta), (message, meta) = self.pick(index), content, words
        kind = kind if kind in self.model.types or index == 9 else "finding"
        self.trace(index, traced or 0)
        model = self.model
        head = model.heads.get(name)
        arguments: dict[str, Any] = {"changes": delta} if full is None else {"files": full}
        arguments["base"] = head if base else None
        verb = self.space.commit if traced is None else self.space.commit_with_trace
        tree = full if full is not None else self.changed(name, delta)
        problem = self.why_not(name, kind, tree)
        if problem:
            with self.refused(*problem):
                verb(name, kind, message=message, meta=meta, **arguments)
            return
        assert isinstance(tree, dict)
        assert head is not None
        cid = verb(name, kind, message=message, meta=meta, **arguments)
        model.add(name, cid, ModelCommit((head,), dict(tree), kind, message_or_default(message, f"{kind} by {name}"), meta or {}))
        if traced is not None and model.pending[name]:
            self.bind(cid, model.pending[name])
            model.pending[name] = []

    @rule(index=agents, full=files, traced=st.booleans())
    def commit_on_a_head_of_the_past(self, index: int, full: Files, traced: bool) -> None:
        name = self.pick(index)
        if self.at_work(name) and not clash(full):
            verb = self.space.commit_with_trace if traced else self.space.commit
            base = self.model.own[name][-2] if len(self.model.own[name]) > 1 else GONE
            with self.refused("stale-ref") as caught:
                verb(name, "finding", full, base=base, message="on a head of the past")  # it repeats no commit
            assert (caught.value.fields["expected"], caught.value.fields["actual"]) == (base, self.model.heads[name])

    def changed(self, name: str, delta: dict[str, bytes | None]) -> Files | str:
        """The files with a change applied, or the reason why it cannot be."""
        if not self.at_work(name):
            return ""
        tree = dict(self.model.commits[self.model.heads[name]].tree)
        after = {path: value for path, value in delta.items() if value is not None}
        for path in delta.keys() - after.keys():
            removed = [
                tree_path for tree_path in tree if tree_path == path or tree_path.startswith(f"{path}/")
            ]  # a folder is removed with all its files
            if not removed or (path not in tree and any(changed_path.startswith(f"{path}/") for changed_path in delta)):
                return "absent"
            for tree_path in removed:
                del tree[tree_path]
        return tree | after

    def why_not(self, name: str, kind: str, tree: Files | str) -> tuple[str, ...]:
        if kind not in self.model.types:
            return ("unknown-kind",)
        if not self.at_work(name):
            return ("no-such-agent",)
        if isinstance(tree, str):
            return ("no-such-path", "path-clash")
        return ("path-clash",) if clash(tree) else ()

    # Traces

    def bind(self, commit: str, texts: list[str]) -> None:
        self.model.bound[commit] = texts
        self.model.bindings[commit] = self.model.bindings.get(commit, 0) + 1

    @rule(index=agents, size=st.integers(1, 3))
    def only_trace(self, index: int, size: int) -> None:
        self.trace(index, size)

    def trace(self, index: int, size: int) -> None:
        name = self.pick(index)
        for _ in range(size):
            text = f"entry {next(self.numbers)}"
            if not self.at_work(name):
                with self.refused("no-such-agent"):
                    self.space.trace(name, "console", text)
                return
            self.space.trace(name, "console", text, data={"text": text})
            self.model.pending[name].append(text)

    @precondition(lambda self: self.model.own)
    @rule(data=st.data(), size=st.integers(0, 2))
    def attach_trace(self, data: st.DataObject, size: int) -> None:
        own_commits = sorted(cid for log in self.model.own.values() for cid in log)
        commit = data.draw(st.sampled_from(own_commits))
        texts = [f"attached {next(self.numbers)}" for _ in range(size)]
        unchanged = self.model.bound.get(commit) == texts
        cid = self.space.traces.attach(commit, [{"text": text} for text in texts])
        assert self.space.traces.id_of(commit) == cid
        if not unchanged:
            self.bind(commit, texts)

    # Merges

    @rule(index=agents, other_index=agents, message=messages, meta=metas)
    def merge(self, index: int, other_index: int, message: str, meta: dict[str, Any] | None) -> None:
        into, from_ = self.pick(index), self.pick_other(index, other_index)
        if into == from_ or not self.at_work(into, from_):
            with self.refused("same-agent" if into == from_ else "no-such-agent"):
                self.space.merge(into, from_)
            return
        ours, theirs = self.model.heads[into], self.model.heads[from_]
        expected = self.model.merge(ours, theirs)
        result = self.space.merge(into, from_, message=message, meta=meta)
        if theirs in self.model.past(ours):
            assert result == UpToDate(ours)
        elif isinstance(result, Merged):
            assert expected is None or not expected.conflicts
            tree = expected.tree if expected else plain(self.space.files(result.cid))
            self.merged(into, from_, result.cid, tree, message_or_default(message, f"session-merge: {from_} into {into}"), meta)
        else:
            assert isinstance(result, Conflicts)
            assert (result.into, result.from_, result.ours, result.theirs) == (into, from_, ours, theirs)
            self.same_conflicts(result, expected)
            assert self.space.history.last_refused(into, from_) == (ours, theirs)

    @rule(index=agents, other_index=agents, paths=path_pairs, texts=st.permutations(CONTENTS))
    def work_apart_and_merge(self, index: int, other_index: int, paths: tuple[str, str], texts: list[bytes]) -> None:
        """Two agents change files, often the same one, and one merges the other."""
        active = sorted(self.model.heads)
        if len(active) > 1:
            index, other_index = index % len(active), (index + 1 + other_index % (len(active) - 1)) % len(active)
            for agent_index, path, text in zip((index, other_index), paths, texts[:2], strict=True):
                self.commit(agent_index, "test", (None, {path: text}), ("", None), True, None)
            other_names = [name for name in active if name != active[index]]
            self.merge(index, other_names.index(active[other_index]), "", None)

    def same_conflicts(self, conflicts: Conflicts, expected: MergeOutcome | None) -> None:
        assert conflicts.paths
        if expected is not None:
            assert {
                conflict.path: (conflict.base, conflict.ours, conflict.theirs) for conflict in conflicts.paths
            } == expected.conflicts

    def merged(self, into: str, from_: str, cid: str, tree: Files, message: str, meta: dict[str, Any] | None) -> None:
        parents = (self.model.heads[into], self.model.heads[from_])
        self.model.add(into, cid, ModelCommit(parents, tree, "session-merge", message, meta or {}))
        self.model.edges.setdefault((into, "merges", from_), set()).add(cid)

    @rule(index=agents, other_index=agents, stale=st.sampled_from(["ours", "theirs"]))
    def resolve_with_a_head_of_the_past(self, index: int, other_index: int, stale: str) -> None:
        into, from_ = self.pick(index), self.pick_other(index, other_index)
        if into != from_ and self.at_work(into, from_):
            heads: dict[str, Any] = {"ours": self.model.heads[into], "theirs": self.model.heads[from_], stale: GONE}
            with self.refused("stale-ref"):
                self.space.resolve(into, from_, {}, **heads)

    @rule(index=agents, other_index=agents, full=files, answer=contents)
    def resolve(self, index: int, other_index: int, full: Files, answer: bytes) -> None:
        into, from_ = self.pick(index), self.pick_other(index, other_index)
        if into == from_ or not self.at_work(into, from_):
            return
        ours, theirs = self.model.heads[into], self.model.heads[from_]
        if theirs in self.model.past(ours):
            return
        heads: dict[str, Any] = {"ours": ours, "theirs": theirs}
        expected = self.model.merge(ours, theirs)
        text = f"session-merge: {from_} into {into}"
        if expected is not None and expected.conflicts:
            with self.refused("unresolved"):
                self.space.resolve(into, from_, changes={}, **heads)
            settled: dict[str, bytes | None] = dict.fromkeys(expected.conflicts, answer)
            result = self.space.resolve(into, from_, changes=settled, **heads)
            self.merged(into, from_, result.cid, {**expected.tree, **dict.fromkeys(expected.conflicts, answer)}, text, None)
        elif clash(full):
            with self.refused("path-clash"):
                self.space.resolve(into, from_, full, **heads)
        else:
            self.merged(into, from_, self.space.resolve(into, from_, full, **heads).cid, dict(full), text, None)

    # Landing

    @rule(index=agents, onto=branches, squash=st.booleans(), no_ff=st.booleans())
    def land(self, index: int, onto: str, squash: bool, no_ff: bool) -> None:
        name = self.pick(index)
        if not self.at_work(name):
            with self.refused("no-such-agent"):
                self.space.land(name, onto)
            return
        model, ref = self.model, f"refs/heads/{onto}"
        tip, head = model.branches[onto], model.heads[name]
        last_landed = next((landing[2] for landing in model.landings[name] if landing[0] == ref), None)
        squashed = (
            landing[2]
            for landing in model.landings[name]
            if landing[0] == ref and landing[3] == "squash" and landing[1] in model.past(tip)
        )
        expected = model.merge(tip, head, next(squashed, None))
        fast_forward = tip in model.past(head) and not no_ff
        how = "squash" if squash else "fast-forward" if fast_forward else "merge"
        result = self.space.land(name, onto, how=how)
        if head in model.past(tip) or last_landed == head:
            assert result == UpToDate(tip)
            return
        if isinstance(result, Conflicts):
            assert (result.into, result.from_, result.ours, result.theirs) == (onto, name, tip, head)
            self.same_conflicts(result, expected)
            return
        assert isinstance(result, Landed)
        assert expected is None or not expected.conflicts
        assert result.how == how
        if result.how == "fast-forward":
            assert result.cid == head
        else:
            tree = expected.tree if expected else plain(self.space.files(result.cid))
            model.commits[result.cid] = ModelCommit((tip,) if squash else (tip, head), tree)
            assert self.space.show(result.cid).landed == name
        model.branches[onto] = result.cid
        model.landings[name].insert(0, (ref, result.cid, head, result.how))
        assert self.git("status", "--porcelain") == "", "the worktree of people must follow"

    # Relations

    @rule(index=agents, kind=edge_kinds, other_index=agents)
    def relate(self, index: int, kind: str, other_index: int) -> None:
        src, dst = self.pick(index), self.pick(other_index)
        if not self.at_work(src, dst):
            with self.refused("no-such-agent"):
                self.space.relate(src, kind, dst)
            return
        origins = self.model.edges.setdefault((src, kind, dst), set())
        origin = self.space.relations.add_review(src, dst) if kind == "reviews" else self.space.relate(src, kind, dst)
        assert not origins or origin in origins
        origins.add(origin)

    @rule(index=agents, kind=edge_kinds, other_index=agents)
    def unrelate(self, index: int, kind: str, other_index: int) -> None:
        edges = sorted(edge for edge, origins in self.model.edges.items() if origins)
        src, kind, dst = (
            edges[other_index % len(edges)] if edges and index < 8 else (self.pick(index), kind, self.pick(other_index))
        )
        if not self.at_work(src) or not self.model.edges.get((src, kind, dst)):
            with self.refused("no-such-edge" if self.at_work(src) else "no-such-agent"):
                self.space.relations.retract(src, kind, dst)
            return
        self.space.relations.retract(src, kind, dst)
        self.model.edges[src, kind, dst] = set()

    # Types and objects

    @rule(
        name=st.sampled_from(["review", "note", "deep-review"]), parent=st.sampled_from(["finding", "review", "briefing", "none"])
    )
    def register_type(self, name: str, parent: str) -> None:
        if name in self.model.types or parent not in self.model.types:
            with self.refused("already-exists" if name in self.model.types else "no-such-type"):
                self.space.types.register(name, parent)
            return
        if name == "review" and parent == "briefing":
            return  # the machine commits reviews
        self.space.types.register(name, parent)
        self.model.types[name] = parent
        assert self.space.types.is_a(name, parent)

    @rule(value=st.integers(0, 3), kind=st.sampled_from(["capability", "note", "behaviour"]))
    def write(self, value: int, kind: str) -> None:
        value_object: dict[str, Any] = {"type": kind, "value": value}
        if kind == "behaviour":
            value_object = clia.Behaviour(f"b{value}", "prompt", "do").to_object()
        if kind not in self.model.types:
            with self.refused("unknown-kind"):
                self.space.types.write(value_object)
            return
        self.model.objects[self.space.types.write(value_object)] = value_object

    # Events from outside

    @rule(event=st.sampled_from(["reopen", "collect garbage", "rebuild"]))
    def reopen_or_collect(self, event: str) -> None:
        if event == "reopen":
            self.space.close()
            self.space = clia.open(self.directory, settings=self.chosen)
        elif event == "rebuild":
            assert self.space.rebuild() == len(self.model.standing())
        else:
            self.git("gc", "--quiet", "--prune=now")

    @rule(data=st.data())
    def bad_input(self, data: st.DataObject) -> None:
        space, name = self.space, next(iter(self.model.heads), "ada")
        calls: list[tuple[set[str], Callable[[], object]]] = [
            ({"unknown-kind"}, lambda: space.commit(name, "no-kind", {})),
            ({"reserved-kind"}, lambda: space.commit(name, "decision", {})),
            ({"no-such-agent"}, lambda: space.commit("nobody", "finding", {})),
            ({"invalid-name"}, lambda: space.commit("No Name", "finding", {})),
            ({"invalid-name"}, lambda: space.spawn("../up", clia.Briefing("x"))),
            ({"invalid-object"}, lambda: space.spawn("new", clia.Briefing(" "))),
            ({"no-such-object"}, lambda: space.spawn_at("new", clia.Briefing("x"), GONE)),
            ({"files-or-changes"}, lambda: space.commit(name, "finding")),
            ({"unsafe-path", "no-such-agent"}, lambda: space.commit(name, "finding", {"x/../y": b""})),
            ({"unsafe-path", "no-such-agent"}, lambda: space.commit(name, "finding", changes={"x": b"", ".git/x": b""})),
            ({"invalid-content", "no-such-agent"}, lambda: space.commit(name, "finding", {"x": "text"})),  # type: ignore[dict-item]
            ({"invalid-text"}, lambda: space.commit(name, "finding", {}, message="\0")),
            ({"invalid-meta"}, lambda: space.commit(name, "finding", {}, meta={"x": float("nan")})),
            ({"invalid-kind", "no-such-agent"}, lambda: space.trace(name, "No Kind", "x")),
            ({"no-such-object"}, lambda: space.traces.attach(GONE, [])),
            ({"invalid-entry", "no-agent"}, lambda: space.traces.attach("HEAD", [{"no": "text"}])),
            ({"no-such-agent"}, lambda: space.merge("nobody", "none")),
            ({"invalid-relation"}, lambda: space.relate(name, "No Kind", name)),
            ({"no-such-branch", "no-such-agent"}, lambda: space.land(name, "nowhere")),
            ({"not-a-branch-of-people"}, lambda: space.land(name, f"agents/{name}")),
            ({"invalid-type"}, lambda: space.types.register("No Type", "finding")),
            ({"unknown-kind"}, lambda: space.types.write({"type": "no-type"})),
            ({"no-such-object"}, lambda: space.types.read(GONE)),
            ({"no-such-remote"}, lambda: space.publish([name])),
        ]
        codes, call = calls[data.draw(st.integers(0, len(calls) - 1))]
        with self.refused(*codes):
            call()

    # Invariants

    @invariant()
    def agents_and_branches_are_as_the_model_says(self) -> None:
        model = self.model
        assert self.space.agents() == sorted(model.heads)
        assert self.space.agents(archived=True) == sorted(model.archived)
        for name, cid in (model.heads | model.archived).items():
            assert self.space.find(name) == cid
            assert self.space.files(name) == model.commits[cid].tree
            log = [
                (commit.cid, commit.parents, commit.kind, commit.message, commit.meta) for commit in self.space.history.own(name)
            ]
            nodes = [(cid, model.commits[cid]) for cid in reversed(model.own[name])]
            assert log == [(cid, node.parents, node.kind, node.message, node.meta) for cid, node in nodes]
        for branch, cid in model.branches.items():
            assert self.space.find(branch) == cid
            assert self.space.files(branch) == model.commits[cid].tree

    @invariant()
    def landings_are_as_the_model_says(self) -> None:
        for name, expected in self.model.landings.items():
            assert [
                (landing["onto"], landing["cid"], landing["head"], landing["how"]) for landing in self.space.history.landings(name)
            ] == expected
        for state in self.space.states():
            landed = [
                onto.removeprefix("refs/heads/") for onto, _, head, _ in self.model.landings[state.agent] if head == state.head
            ]
            assert (state.landed, state.pending) == (landed[0] if landed else None, len(self.model.pending[state.agent]))

    @invariant()
    def relations_are_as_the_model_says(self) -> None:
        model, space = self.model, self.space
        assert {(edge.src, edge.kind, edge.dst, edge.origin) for edge in space.relations()} == model.standing()
        for name in model.own:
            assert space.relations.sub_agents(name) == model.targets(name, "sub-agent-of")
            assert space.relations.parent(name) in [*model.sources(name, "sub-agent-of"), None]
            assert space.relations.reviewers(name) == model.sources(name, "reviews")
            assert space.relations.reviewing(name) == model.targets(name, "reviews")
            assert space.relations.merged(name) == model.targets(name, "merges")
            assert space.relations.merged_into(name) == model.sources(name, "merges")

    @invariant()
    def every_entry_is_pending_or_in_one_trace(self) -> None:
        model = self.model
        for name, own_commits in model.own.items():
            bound = [
                (commit_trace.trace.commit, [entry["text"] for entry in commit_trace.trace.entries])
                for commit_trace in self.space.traces.of_agent(name)
            ]
            assert bound == [(cid, model.bound[cid]) for cid in reversed(own_commits) if cid in model.bound]
            if name in model.heads:
                assert [entry["text"] for entry in self.space.traces.pending(name)] == model.pending[name]
        for commit, times in model.bindings.items():
            assert len(self.space.traces.history(commit)) == times

    @invariant()
    def types_and_objects_are_as_the_model_says(self) -> None:
        assert self.space.types() == dict(sorted(self.model.types.items()))
        for cid, expected_object in self.model.objects.items():
            value_read = self.space.types.read(cid)
            assert (value_read.to_object() if isinstance(value_read, clia.Behaviour) else value_read) == expected_object


def test_a_space_behaves_like_the_model(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    numbers = count()

    class Machine(SpaceMachine):
        def __init__(self) -> None:
            self.directory = tmp_path / str(next(numbers))
            super().__init__()

    soak = request.config.getoption("--soak")
    run_state_machine_as_test(Machine, settings=settings(max_examples=400 if soak else 15, stateful_step_count=60 if soak else 25))


def test_the_model_distinguishes_merges() -> None:
    """The model's own merge, on known cases: a model that always returns None would check nothing."""
    model = Model()
    for cid, parents, tree in (
        ("base", (), {"a": b"1", "b": b"1"}),
        ("left", ("base",), {"a": b"2", "b": b"1"}),
        ("right", ("base",), {"a": b"1", "b": b"1", "c": b"1"}),
        ("other", ("base",), {"a": b"3", "b": b"1"}),
        ("renamed", ("base",), {"a": b"1", "z": b"1"}),
    ):
        model.commits[cid] = ModelCommit(parents, tree)
    assert model.merge("left", "right") == MergeOutcome({"a": b"2", "b": b"1", "c": b"1"}, {})
    assert model.merge("left", "other") == MergeOutcome({"b": b"1"}, {"a": (b"1", b"2", b"3")})
    assert model.merge("left", "renamed") is None

"""A bare repository with the gate, and histories to push there with plain git."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from clia.git.records import FILE, LINK, SUBMODULE, Stamp, TreeEntry
from clia.git.repository import open_repository
from clia.identities.guardrails.changes import guardrail_change
from clia.space.model import Link, Submodule
from clia.values.commit_messages import compose

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ADA, BOB = Stamp("Ada", "ada@example.org", 1_790_000_000), Stamp("Bob", "bob@example.org", 1_790_000_000)
RULE, ROOT_RULE, LOCAL = "Never deploy without approval.", "Never read secrets.", "Keep it small."
ROOT, SCOUT = ".clia/agents/root/root.agent.triad.json", ".clia/agents/scout/scout.agent.triad.json"
SUB, GATE = "services/.clia/agents/scout/scout.agent.triad.json", ".clia/gate.toml"
POLICY = """\
branches = ["p/*"]
people = ["ada@example.org", "Bob"]
ignore_submodules = ["vendor/*"]
[[require]]
paths = ["infra/**"]
need = ["decision"]
[[require]]
paths = ["lib/**"]
need = ["tests"]
[[require]]
paths = ["core/**"]
need = ["trace"]
[[require]]
paths = ["legal"]
need = ["decision"]
"""


def identity(slug: str, *guardrails: Any, **fields: Any) -> str:
    return json.dumps({"slug": slug, "guardrails": list(guardrails), **fields})


RULES = [
    {"on": "push", "match": {"paths": ["deploy/**"]}, "do": "require", "need": ["decision", "tests"]},
    {"on": "push", "match": {"paths": ["frozen/**"]}, "do": "deny"},
    {"on": "land", "match": {"paths": ["asked/**"]}, "do": "ask"},
    {"on": "push", "match": {"paths": ["elsewhere/**"], "branch": ["release"]}, "do": "deny"},
    {"on": "tool", "match": {"tool": "Bash"}, "do": "deny"},
]
BASE: Mapping[str, Any] = {
    ROOT: identity("root", {"text": ROOT_RULE, "rules": RULES}),
    SCOUT: identity("scout", RULE, inherits=[ROOT]),
    SUB: identity("scout", LOCAL),
    GATE: POLICY,
    "infra/main.tf": "one\n",
    "lib/a.py": "a = 1\n",
    "core/a.py": "a = 1\n",
    "src/app.py": "print()\n",
    "services/code.py": "pass\n",
    "deploy/run": "run\n",
    "frozen/law": "law\n",
    "asked/first": "first\n",
    "dep": Submodule("d" * 40),
    "vendor/dep": Submodule("e" * 40),
}


class PushResult(NamedTuple):
    code: int
    text: str


class GateDesk:
    """A repository to work in, and the bare one to push to; every case has a protected branch ``p/CASE`` of its own."""

    def __init__(self, root: Path) -> None:
        self.work, self.bare = root / "work", root / "bare.git"
        subprocess.run(["git", "init", "--quiet", "--initial-branch=main", self.work], check=True)
        subprocess.run(["git", "init", "--quiet", "--bare", "--initial-branch=main", self.bare], check=True)
        git = open_repository(str(self.work), dict(os.environ), lambda _: None, durable=False)
        self.objects = git.objects
        self.base = self.commit({}, changes=dict(BASE))
        self.run("push", "--quiet", str(self.bare), f"{self.base}:refs/heads/main")
        hook = self.bare / "hooks" / "pre-receive"
        hook.write_text(f"#!/bin/sh\nexec {sys.executable} -P -m clia.gate.hook\n")
        hook.chmod(0o755)

    def run(self, *words: str) -> PushResult:
        ran = subprocess.run(["git", *words], cwd=self.work, capture_output=True, text=True, check=False)
        return PushResult(ran.returncode, ran.stdout + ran.stderr)

    # Histories

    def commit(
        self,
        trailers: Mapping[str, str],
        *parents: str,
        changes: Mapping[str, Any] | None = None,
        by: Stamp = ADA,
        tree: str | None = None,
    ) -> str:
        """A commit on the first parent, with changed files; None removes one."""
        base = tree or (self.objects.commit(parents[0]).tree if parents else None)
        new = self.objects.update_tree(base, {path: self._entry(content) for path, content in (changes or {}).items()})
        author = Stamp("scout", "scout@agents.clia.invalid", by.at) if trailers else by
        message = compose("work", list(trailers.items()), "work") if trailers else "work\n"
        return self.objects.write_commit(new, list(parents), author, by, message)

    def _entry(self, content: Any) -> TreeEntry | None:
        if content is None:
            return None
        if isinstance(content, Submodule):
            return TreeEntry(SUBMODULE, content.commit)
        text = content.target if isinstance(content, Link) else content
        return TreeEntry(LINK if isinstance(content, Link) else FILE, self.objects.write_blob(text.encode()))

    def work_of(self, parent: str, changes: Mapping[str, Any], kind: str = "finding", agent: str = "scout", **more: Any) -> str:
        """A commit of an agent."""
        return self.commit({"Clia-Agent": agent, "Clia-Type": kind}, parent, changes=changes, **more)

    def decision(self, parent: str, *, by: str = "Ada <ada@example.org>", value: Any = "approve", **more: Any) -> str:
        """A person's decision on a commit."""
        fields = {"request": "ask-1.1", "asked": {"question": "?"}, "committer": ADA, "changes": {}, "agent": "scout"} | more
        trailers = {"Clia-Agent": fields["agent"], "Clia-Type": "decision", "Clia-Request": fields["request"]}
        trailers |= {"Clia-Value": json.dumps(value), "Clia-By": by, "Clia-Meta": json.dumps({"asked": fields["asked"]})}
        kept = {key: text for key, text in trailers.items() if text}
        return self.commit(kept, parent, changes=fields["changes"], by=fields["committer"], tree=fields.get("tree"))

    def approval(self, parent: str, before: str | None = None, **more: Any) -> str:
        """A person's decision on the guardrails that a commit takes away."""
        trees = [self.objects.commit(cid).tree for cid in (before or self.base, parent)]
        change = guardrail_change(self.objects, trees[0], trees[1]).digest
        asked = {"kind": "guardrail-change", "change": change, "tree": trees[1]} | more.pop("asked", {})
        return self.decision(parent, asked=asked, **more)

    def squash(self, head: str, onto: str, base: str | None = None, **more: Any) -> str:
        """A squashed landing of an agent's commits."""
        trailers = {"Clia-Agent": "scout", "Clia-Landed": "scout", "Clia-Range": f"{base or self.base}..{head}"}
        trailers |= more.pop("trailers", {})
        return self.commit({key: text for key, text in trailers.items() if text}, onto, tree=self.objects.commit(head).tree, **more)

    def trace(self, *commits: str, agent: str = "scout", fan: int = 1) -> str:
        """The notes of an agent's traces, for these commits."""
        paths = ["/".join([cid[:2]] * min(fan, 1) + [cid[2:] if fan else cid]) for cid in commits]
        tree = self.objects.update_tree(None, {path: self._entry("{}") for path in paths})
        cid = self.objects.write_commit(tree, [], ADA, ADA, f"notes of {agent}\n")
        self.run("update-ref", f"refs/notes/clia/trace/{agent}", cid)
        return cid

    # Pushing

    def start(self, case: str, commit: str | None = None) -> str:
        """Create the protected branch of a case, past the gate."""
        ref = f"refs/heads/p/{case}"
        subprocess.run(["git", "fetch", "--quiet", self.work, commit or self.base], cwd=self.bare, check=True)
        subprocess.run(["git", "update-ref", ref, commit or self.base], cwd=self.bare, check=True)
        return ref

    def plant(self, ref: str, commit: str) -> None:
        """Set another ref, past the gate."""
        subprocess.run(["git", "update-ref", ref, commit], cwd=self.bare, check=True)

    def alias(self, ref: str, target: str) -> None:
        """Let a ref of the server stand for another one."""
        subprocess.run(["git", "symbolic-ref", ref, target], cwd=self.bare, check=True)

    def broken_tree(self, base: str, *entries: tuple[str, str, str]) -> str:
        """A commit whose tree has further entries (mode, name, id), as no git client writes it."""
        tree = self.objects.commit(base).tree
        data = b"".join(
            f"{mode} {name}".encode() + b"\0" + bytes.fromhex(cid)
            for mode, name, cid in [*((f"{e.mode:o}", n, e.cid) for n, e in self.objects.listing(tree)), *entries]
        )
        words = ["git", "hash-object", "-w", "-t", "tree", "--literally", "--stdin"]
        made = subprocess.run(words, cwd=self.work, input=data, capture_output=True, check=True).stdout.decode().strip()
        return self.objects.write_commit(made, [base], ADA, ADA, "work\n")

    def forget(self, ref: str) -> None:
        """Remove a ref, past the gate."""
        subprocess.run(["git", "update-ref", "-d", ref], cwd=self.bare, check=True)

    def push(self, *specs: str, force: bool = False) -> PushResult:
        return self.run("push", *(["--force"] if force else []), str(self.bare), *specs)

    def tip(self, ref: str) -> str | None:
        words = ["git", "rev-parse", "--verify", "--quiet", ref]
        return subprocess.run(words, cwd=self.bare, capture_output=True, text=True, check=False).stdout.strip() or None

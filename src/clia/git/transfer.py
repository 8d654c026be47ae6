"""Fetching from and pushing to remotes, as git is set up to reach them.

Invariant: a fetch writes the refs that its rules name and no others, prunes nothing, and moves all of them or none; a
push forces nothing. No password of an address shows in an error.
"""

from __future__ import annotations

import re

from clia.errors import Conflict, InvalidInput, NotFound, TransportError
from clia.git.command import GitPart
from clia.git.workbench_records import Pushed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from clia.git.command import Done

_CREDENTIALS = re.compile(r"(?<=://)[^/\s]*@")
_STATES = {"*": "new", " ": "moved", "=": "same", "!": "refused"}
_SUMMARY = re.compile(r"\[(?P<what>[^\]]*)\](?: \((?P<reason>.*)\))?")
_REF = re.compile(r"refs/[^\s:*?\[\\^~]+")
_FETCH = (
    *("fetch", "--no-tags", "--no-prune", "--no-auto-maintenance", "--no-recurse-submodules", "--no-write-fetch-head", "--atomic"),
    "--refmap=",  # git would also move what the remote's own rules name
)
_PUSH = ("push", "--atomic", "--porcelain", "--no-verify", "--no-follow-tags", "--no-recurse-submodules")


class GitTransfer(GitPart):
    """The calls of ``Workbench`` that are about remotes."""

    def remotes(self) -> list[str]:
        return sorted(self._command.run("remote").decode("utf-8", "replace").splitlines())

    def remote_url(self, remote: str) -> str | None:
        found = self._settings_of(remote, "url")
        return found[0] if found else None

    def add_fetch_rules(self, remote: str, rules: Sequence[str]) -> list[str]:
        if remote not in self.remotes():
            raise NotFound(f"there is no remote {remote!r}", code="no-such-remote", fields={"remote": remote})
        present = self._settings_of(remote, "fetch")
        missing = [rule for rule in dict.fromkeys(rules) if rule not in present]
        for rule in missing:
            self._command.run("config", "--add", f"remote.{remote}.fetch", rule)
        return missing

    def fetch(self, remote: str, rules: Sequence[str]) -> None:
        if not rules:
            return  # git would take the remote's own rules
        done = self._transfer(*_FETCH, "--", remote, *rules)
        if not done.code:
            return
        reason = _without_credentials(done.err)
        if "[rejected]" in reason:
            message = f"nothing was fetched from {remote}: {reason}"
            raise Conflict(message, code="fetch-refused", fields={"remote": _without_credentials(remote), "reason": reason})
        raise _unreachable("fetch from", remote, reason)

    def push(self, remote: str, refs: Sequence[str]) -> list[Pushed]:
        for ref in refs:
            if not _REF.fullmatch(ref):
                raise InvalidInput(f"{ref!r} is not the full name of a ref", code="invalid-ref", fields={"ref": ref})
        if not refs:
            return []  # git would push what it is set up to push
        done = self._transfer(*_PUSH, "--", remote, *(f"{ref}:{ref}" for ref in dict.fromkeys(refs)))
        results = {each.ref: each for each in map(_pushed, done.out.decode("utf-8", "replace").splitlines()) if each}
        if results:
            return [results[ref] for ref in dict.fromkeys(refs) if ref in results]
        reason = _without_credentials(done.err)
        if "does not match any" in reason:
            raise NotFound(f"nothing was pushed: {reason}", code="no-such-ref", fields={"refs": list(refs), "reason": reason})
        raise _unreachable("push to", remote, reason)

    def _transfer(self, *words: str) -> Done:
        # An address such as ../other.git is relative to the worktree's top.
        return self._command.attempt(*words, cwd=self._handle.work_dir, more=self._command.reaching)

    def _settings_of(self, remote: str, name: str) -> list[str]:
        done = self._command.attempt("config", "-z", "--get-all", f"remote.{remote}.{name}")
        return done.out.decode("utf-8", "replace").split("\0")[:-1]


def _pushed(line: str) -> Pushed | None:
    """One line of `git push --porcelain`; None for those that are not about a ref."""
    parts = line.split("\t", 2)
    if len(parts) != 3 or parts[0] not in _STATES:
        return None
    state = _STATES[parts[0]]
    summary = _SUMMARY.match(parts[2])
    reason = "" if summary is None or state != "refused" else summary["reason"] or summary["what"]
    return Pushed(parts[1].partition(":")[2], state, reason)


def _without_credentials(text: str) -> str:
    return _CREDENTIALS.sub("", text)


def _unreachable(doing: str, remote: str, reason: str) -> TransportError:
    name = _without_credentials(remote)
    return TransportError(f"git could not {doing} {name}: {reason}", fields={"remote": name, "reason": reason})

"""What a branch needs: its policy file, and the rules of the root directives.

Invariant: both are read from the branch as it was before the push, so a push cannot loosen what it is checked by. A policy with an
unknown key or a wrong type is not used in part.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import NamedTuple

from clia.errors import InvalidDocument
from clia.identities.guardrails.changes import no_submodules
from clia.identities.guardrails.rules import rules_at
from clia.identities.tree_files import TOP, TreeFiles
from clia.identities.working_path import survey
from clia.rules.model import ASK, DECISION, DENY, LAND, NEEDS, PUSH, REQUIRE
from clia.rules.patterns import path_may_match

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from clia.gate.repository import GateRepository

POLICY = ".clia/gate.toml"
BRANCHES = "refs/heads/"
_KEYS = ("branches", "people", "other_person", "ignore_submodules", "require")
_EVERYTHING = ("**",)


class Requirement(NamedTuple):
    """What changes of certain paths need."""

    paths: tuple[str, ...]  # patterns
    need: tuple[str, ...]  # `decision`, `tests`, `trace`, `signature`; empty: such changes are refused
    source: str  # where it is stated

    def matching(self, changed: Iterable[str]) -> list[str]:
        return [path for path in changed if any(path_may_match(pattern, path) for pattern in self.paths)]


class GatePolicy(NamedTuple):
    """The policy of a repository's branches."""

    branches: tuple[str, ...] = ()  # patterns of protected branches; empty: the one that HEAD names
    people: tuple[str, ...] = ()  # who may approve, by name or e-mail address; empty: every person
    other_person: bool = False  # who approves must not be accountable for the work
    ignore_submodules: tuple[str, ...] = ()  # submodules that hold no guardrails, by path
    require: tuple[Requirement, ...] = ()  # what changes of certain paths need

    def protects(self, ref: str, head_branch: str | None) -> bool:
        if not self.branches:
            return ref == head_branch
        return any(fnmatchcase(ref.removeprefix(BRANCHES), pattern) for pattern in self.branches) and ref.startswith(BRANCHES)


def policy_in(repository: GateRepository, tree: str | None) -> GatePolicy:
    """The policy file of a tree; the default without one. ``InvalidDocument`` if it cannot be read."""
    entry = None if tree is None else repository.entry(tree, POLICY)
    if entry is None:
        return GatePolicy()
    if entry.mode & 0o170000 != 0o100000:
        raise _invalid("must be a regular file")
    return parse_policy(repository.blob(entry.cid))


def parse_policy(data: bytes) -> GatePolicy:
    import tomllib  # only if there is a policy

    try:
        values = tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError, ValueError) as err:
        raise _invalid(f"not TOML: {err}") from None
    for key in values:
        if key not in _KEYS:
            raise _invalid(f"{key} is unknown; known keys: {', '.join(_KEYS)}")
    other = values.get("other_person", False)
    if not isinstance(other, bool):
        raise _invalid("other_person must be true or false")
    branches, people, ignored = (_texts(values.get(key, []), key) for key in ("branches", "people", "ignore_submodules"))
    required = values.get("require", [])
    if not isinstance(required, list) or not all(isinstance(table, dict) for table in required):
        raise _invalid("require must be tables: [[require]]")
    return GatePolicy(branches, people, other, ignored, tuple(_requirement(table, number) for number, table in enumerate(required)))


def _requirement(table: dict[str, Any], number: int) -> Requirement:
    at = f"require[{number}]"
    for key in table:
        if key not in ("paths", "need"):
            raise _invalid(f"{at}.{key} is unknown; known keys: paths, need")
    need = _texts(table.get("need", []), f"{at}.need")
    if not need or any(name not in NEEDS for name in need):
        raise _invalid(f"{at}.need must list some of {', '.join(NEEDS)}")
    return Requirement(_texts(table.get("paths", ["**"]), f"{at}.paths") or _EVERYTHING, need, POLICY)


def _texts(value: Any, key: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) and item.strip() for item in value):
        raise _invalid(f"{key} must be a list of texts")
    return tuple(value)


def _invalid(problem: str) -> InvalidDocument:
    return InvalidDocument(f"{POLICY}: {problem}", code="invalid-config", fields={"path": POLICY})


def rule_requirements(repository: GateRepository, tree: str, branch: str) -> Iterator[Requirement]:
    """What the rules of the root directives require of pushes to a branch. They hold for every agent."""
    files = TreeFiles(repository, tree, no_submodules)
    for rule in rules_at(files, survey(files, TOP), None):
        if not {LAND, PUSH} & set(rule.on) or (rule.match.branch and not any(fnmatchcase(branch, p) for p in rule.match.branch)):
            continue
        source = f"the guardrail {rule.text!r} in {rule.path.removeprefix(f'{TOP}/')}"
        paths = rule.match.paths or _EVERYTHING
        if rule.do == DENY:
            yield Requirement(paths, (), source)
        elif rule.do in (ASK, REQUIRE):
            yield Requirement(paths, rule.need or (DECISION,), source)

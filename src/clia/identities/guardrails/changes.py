"""What a change of a repository's tree takes away from its guardrails.

Invariant: guardrails are compared as they apply, not as they are written: every identity is resolved at every directory with
documents of it, before and after. So it does not matter how a guardrail goes away: by an edit, a rename, a link, a submodule, a
document that cannot be read any more, or a look-alike character. The answer depends on the two trees alone. A stricter wording of
the same rule is not a loss.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from clia.errors import AgentNotFound, CliaError
from clia.files import DIRECTORY
from clia.identities.contexts import AGENTS, ROOT
from clia.identities.diagnostics import ERROR
from clia.identities.guardrails.lint import RuleStatement, statements
from clia.identities.guardrails.waivers import guardrail_digest
from clia.identities.inheritance import declared_inherits
from clia.identities.lineage import Lineage
from clia.identities.merge import same
from clia.identities.merge_rules import MARKS, projected_text
from clia.identities.tree_files import SUBMODULE_MODE, TOP, TreeFiles
from clia.identities.working_path import below, survey
from clia.rules.model import ALLOW
from clia.values.canonical import digest
from clia.values.slugs import is_slug

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from clia.identities.lineage import MergedDocument
    from clia.identities.tree_files import SubmoduleTree, TreeEntryLike, TreeSource

REMOVED, WEAKENED, REWORDED, WAIVED, UNREADABLE, SUBMODULE = "removed", "weakened", "reworded", "waived", "unreadable", "submodule"
LOOSENED = "loosened"
_FOLDER = 0o040000
_UNRESOLVED = ("inherits-missing", "inherits-outside")
"""An outer repository may have what such a path names, so its removal counts as a loss."""
_SIMILAR = 0.5


class LossPlace(NamedTuple):
    """Where a guardrail no longer applies as before."""

    identity: str  # the identity; `root`: every identity
    directory: str  # a directory of the repository; "." is its top


class GuardrailLoss(NamedTuple):
    """A guardrail that a change takes away or weakens."""

    kind: str  # `removed`, `weakened`, `reworded`, `waived`, `loosened` (allows more), `unreadable` or `submodule` (not compared)
    text: str  # the guardrail
    now: str | None  # the wording that replaces it
    why: str | None  # the problem that hides it, if it is still written
    places: tuple[LossPlace, ...]  # where it is lost

    def __str__(self) -> str:
        where = ", ".join(f"{place.identity} in {place.directory}" for place in self.places[:5])
        more = f" and {len(self.places) - 5} more" if len(self.places) > 5 else ""
        text = f"{self.kind}: {self.text!r}" + (f" is now {self.now!r}" if self.now is not None else "")
        return f"{text} ({where}{more})" + (f": {self.why}" if self.why else "")


class MovedSubmodule(NamedTuple):
    """A submodule that a change moves to another commit."""

    path: str  # its directory
    before: str | None  # its commit before; null: it was added
    after: str | None  # its commit after; null: it was removed


class GuardrailChange(NamedTuple):
    """The guardrails that a change takes away. Without losses, it needs no approval."""

    losses: tuple[GuardrailLoss, ...] = ()
    submodules: tuple[MovedSubmodule, ...] = ()  # all that moved, whether they can be read here or not

    @property
    def digest(self) -> str:
        """The id of the change, by which a person approves it.

        Submodules count by their commits, so that a server that cannot read them computes the same id.
        """
        moved = [module.path for module in self.submodules]
        losses = []
        for loss in self.losses:
            places = [place for place in loss.places if not any(_is_inside(place.directory, path) for path in moved)]
            if places and loss.kind != SUBMODULE:
                losses.append([loss.kind, loss.text, loss.now, places])
        return digest({"losses": losses, "submodules": [list(module) for module in self.submodules]})


class TreeState(NamedTuple):
    """A tree with what was found in it."""

    files: TreeFiles
    domains: dict[str, list[str]]  # directory -> names in its agents directory
    submodules: dict[str, str]  # path -> commit
    unreadable: frozenset[str]  # submodules that cannot be read here


def no_submodules(path: str, commit: str) -> None:
    """A submodule that cannot be read."""
    del path, commit


def guardrail_change(
    source: TreeSource, before: str | None, after: str, submodule_tree: SubmoduleTree = no_submodules
) -> GuardrailChange:
    """What the change from one tree to another takes away. ``before`` None: there is no tree yet, so nothing can be lost."""
    if before is None or before == after:
        return GuardrailChange()
    scanned: dict[str, _Scanned] = {}
    old, new = (_state(source, tree, submodule_tree, scanned) for tree in (before, after))
    paths = sorted(old.submodules.keys() | new.submodules.keys())
    moves = (MovedSubmodule(path, old.submodules.get(path), new.submodules.get(path)) for path in paths)
    moved = tuple(move for move in moves if move.before is not None and move.before != move.after)
    losses = [*_merged_losses(_losses(old, new)), *_unreadable(moved, old, new)]
    return GuardrailChange(tuple(losses), moved)


def profile_change(slug: str, before: Sequence[Any], after: Sequence[Any]) -> GuardrailChange:
    """What is taken away from the guardrails of an agent when another profile is recorded."""
    place = LossPlace(slug, ".")
    losses = ((place, loss) for loss in _compared(ResolvedGuardrails(before), ResolvedGuardrails(after)))
    return GuardrailChange(tuple(_merged_losses(losses)))


def _unreadable(moved: Sequence[MovedSubmodule], old: TreeState, new: TreeState) -> Iterator[GuardrailLoss]:
    for path, before, after in moved:
        if path in old.unreadable or path in new.unreadable:
            text = f"guardrails in the submodule {path}"
            why = f"its commits {(before or '')[:12]} and {(after or 'none')[:12]} cannot be compared here"
            yield GuardrailLoss(SUBMODULE, text, None, why, (LossPlace(ROOT, path),))


class _Scanned(NamedTuple):
    """What a tree has, relative to it."""

    domains: tuple[str, ...]  # folders with a `.clia`
    submodules: tuple[tuple[str, str], ...]


def _state(source: TreeSource, tree: str, submodule_tree: SubmoduleTree, scanned: dict[str, _Scanned]) -> TreeState:
    folders = _scan(source, tree, scanned)
    domains, submodules = list(folders.domains), dict(folders.submodules)
    unreadable = set()
    waiting = list(folders.submodules)
    while waiting:
        path, commit = waiting.pop()
        inner = submodule_tree(path, commit)
        if inner is None:
            unreadable.add(path)
            continue
        below_it = _scan(*inner, {})
        domains += [_joined(path, name) for name in below_it.domains]
        nested = [(_joined(path, name), cid) for name, cid in below_it.submodules]
        submodules |= dict(nested)
        waiting += nested
    files = TreeFiles(source, tree, submodule_tree)
    return TreeState(files, {name: _names(files, name) for name in sorted(domains)}, submodules, frozenset(unreadable))


def _names(files: TreeFiles, directory: str) -> list[str]:
    entries = files.entries(below(_absolute(directory), AGENTS)) or ()
    return sorted(entry.name for entry in entries if is_slug(entry.name))


def _scan(source: TreeSource, tree: str, scanned: dict[str, _Scanned]) -> _Scanned:
    """The domains and submodules below a tree; ``scanned`` has the trees that were read. Not recursive: a tree may be very deep."""
    stack: list[tuple[str, list[tuple[str, TreeEntryLike]] | None]] = [(tree, None)]
    while stack:
        cid, entries = stack.pop()
        if cid in scanned:
            continue
        if entries is None:
            entries = list(source.listing(cid))
            stack.append((cid, entries))
            stack += [(entry.cid, None) for name, entry in entries if entry.mode == _FOLDER and name != ".clia"]
            continue
        domains = ["."] if any(name == ".clia" for name, _ in entries) else []
        submodules = [(name, entry.cid) for name, entry in entries if entry.mode == SUBMODULE_MODE]
        for name, entry in entries:
            if entry.mode == _FOLDER and name != ".clia":
                inner = scanned[entry.cid]
                domains += [_joined(name, path) for path in inner.domains]
                submodules += [(_joined(name, path), commit) for path, commit in inner.submodules]
        scanned[cid] = _Scanned(tuple(domains), tuple(submodules))
    return scanned[tree]


def _losses(old: TreeState, new: TreeState) -> Iterator[tuple[LossPlace, GuardrailLoss]]:
    """Each loss of each identity at each place, one by one."""
    for slug, directory in _subjects(old, new):
        before, after = (_resolved(state.files, slug, directory) for state in (old, new))
        for loss in _compared(before, after):
            yield LossPlace(slug, directory), loss


def _subjects(old: TreeState, new: TreeState) -> list[tuple[str, str]]:
    """Each identity with the directories where its guardrails can differ: those with documents of it or of ``root``."""
    domains = [*old.domains.items(), *new.domains.items()]
    slugs = {name for _, names in domains for name in names}
    return sorted({(slug, directory) for directory, names in domains for slug in slugs if slug in names or ROOT in names})


class ResolvedGuardrails(NamedTuple):
    """The guardrails of an identity at a place."""

    items: Sequence[Any] = ()
    waived: frozenset[str] = frozenset()  # digests of the guardrails that a waiver names
    unresolved: frozenset[str] = frozenset()  # inherited paths that are not in the tree
    problems: tuple[str, ...] = ()  # why documents do not count
    links: tuple[str, ...] = ()  # links in place of root directives: what they lead to can change without them


def _resolved(files: TreeFiles, slug: str, directory: str) -> ResolvedGuardrails:
    place = survey(files, _existing(files, _absolute(directory)))
    try:
        merged = Lineage(files, place, slug).profile()
    except AgentNotFound as err:
        rules = Lineage(files, place, None).profile()  # those of the root bind it wherever it appears
        return ResolvedGuardrails(_items(rules), problems=tuple(map(_shown, err.hints[:-2])), links=_links(rules))
    except CliaError as err:
        return ResolvedGuardrails(problems=(_shown(err.message),))
    problems = [_shown(item.message) for item in merged.diagnostics if item.severity == ERROR]
    return ResolvedGuardrails(_items(merged), _waived(merged), frozenset(_unresolved(merged)), tuple(problems), _links(merged))


def _links(merged: MergedDocument) -> tuple[str, ...]:
    return tuple(_shown(item.message) for item in merged.diagnostics if item.code == "root-symlink")


def _unresolved(merged: MergedDocument) -> Iterator[str]:
    """The inherited paths that are not in the tree."""
    missing = {(item.path, item.pointer) for item in merged.diagnostics if item.code in _UNRESOLVED}
    for layer in merged.layers if missing else ():
        for pointer, declared in declared_inherits(layer.document):
            if (layer.path, pointer) in missing:
                yield str(declared)


def _items(merged: MergedDocument) -> list[Any]:
    items = merged.get("guardrails")
    return items if isinstance(items, list) else []


def _waived(merged: MergedDocument) -> frozenset[str]:
    """Waivers without a valid approval count too: what makes them valid may be outside of the tree."""
    declared = [item.get("guardrail") for item in merged.get("waivers") or () if isinstance(item, dict)]
    marked = [mark.get("guardrail") for mark in merged.get(MARKS) or ()]
    return frozenset(text for text in [*declared, *marked] if isinstance(text, str))


def _existing(files: TreeFiles, path: str) -> str:
    """The path, or its nearest directory above that exists: the place of a directory that is gone."""
    while path != TOP and files.kind(files.real(path)) != DIRECTORY:
        path = path.rpartition("/")[0]
    return path


def _compared(before: ResolvedGuardrails, after: ResolvedGuardrails) -> Iterator[GuardrailLoss]:
    why = next((problem for problem in after.problems if problem not in before.problems), None)
    rules = [(item, list(statements([item], ""))) for item in after.items]
    added = [item for item in after.items if not any(same(item, old) for old in before.items)]
    for item in before.items:
        name = guardrail_digest(item)
        if name in after.waived and name not in before.waived:
            yield GuardrailLoss(WAIVED, projected_text(item), None, None, ())
        if not any(same(item, other) or _keeps(item, other, stated) for other, stated in rules):
            yield _lost(item, added, why)
    allowed = [rule for item in before.items for rule in allowances(item)]
    for item in added:
        if any(not any(same(rule, old) for old in allowed) for rule in allowances(item)):
            yield GuardrailLoss(LOOSENED, projected_text(item), None, "it allows calls without asking", ())
    digests = {guardrail_digest(item) for item in [*before.items, *after.items]}
    for name in after.waived - before.waived - digests:
        yield GuardrailLoss(WAIVED, f"the guardrail {name} of an enclosing repository", None, None, ())
    for link in after.links if before.items else ():
        if link not in before.links:
            yield GuardrailLoss(UNREADABLE, "the root directives", None, link, ())
    for declared in before.unresolved - after.unresolved:
        yield GuardrailLoss(REMOVED, f"guardrails inherited from {declared}", None, "an outer repository may have them", ())


def allowances(item: Any) -> list[Any]:
    """The rules of a guardrail that allow something: they take away the question that a tool would ask."""
    rules = item.get("rules") if isinstance(item, dict) else None
    stated = rules if isinstance(rules, list) else [rules]
    return [rule for rule in stated if isinstance(rule, dict) and rule.get("do") == ALLOW]


def _keeps(item: Any, other: Any, rules: list[RuleStatement]) -> bool:
    """Whether another guardrail says the same, at least as strictly."""
    mine = list(statements([item], ""))
    if len(mine) != len(rules) or not mine or not _fields_kept(item, other):
        return False
    return all(
        rule.words == new.words
        and len(rule.forces) == len(new.forces)
        and all(_as_strict(inner, outer) for outer, inner in zip(rule.forces, new.forces, strict=True))
        and rule.level is not None
        and new.level is not None
        and new.level >= rule.level
        for rule, new in zip(mine, rules, strict=True)
    )


def _as_strict(inner: int, outer: int) -> bool:
    """Whether a force is as strict as another, in its direction."""
    return inner == outer if outer == 0 else inner * (1 if outer > 0 else -1) >= abs(outer)


def _fields_kept(item: Any, other: Any) -> bool:
    """Whether everything that a guardrail has besides its text is still there. Rules may be added, not removed or changed."""
    if not isinstance(item, dict):
        return True
    if not isinstance(other, dict):
        return all(key in ("text", "title", "id") for key in item)
    for key, value in item.items():
        if key == "rules" and isinstance(value, list) and isinstance(other.get(key), list):
            if not all(any(same(rule, new) for new in other[key]) for rule in value):
                return False
        elif key not in ("text", "title", "label", "statement", "level", "items") and not same(value, other.get(key)):
            return False
    return True


def _lost(item: Any, added: Sequence[Any], why: str | None) -> GuardrailLoss:
    """The loss of one guardrail: weakened or reworded if an added one resembles it, else removed."""
    text, mine = projected_text(item), list(statements([item], ""))
    for other in added:
        if any(_is_weaker(new, old) for new in statements([other], "") for old in mine):
            return GuardrailLoss(WEAKENED, text, projected_text(other), None, ())
    alike = max(added, key=lambda other: _likeness(text, projected_text(other)), default=None)
    if alike is not None and _likeness(text, projected_text(alike)) >= _SIMILAR:
        kind = WEAKENED if projected_text(alike) == text else REWORDED
        return GuardrailLoss(kind, text, projected_text(alike), None, ())
    return GuardrailLoss(UNREADABLE if why else REMOVED, text, None, why, ())


def _is_weaker(new: RuleStatement, old: RuleStatement) -> bool:
    return new.is_weaker_than(old) and any(key in old.rule_keys() for key in new.rule_keys())


def _likeness(text: str, other: str) -> float:
    """The share of words that two texts have in common."""
    words, others = set(text.lower().split()), set(other.lower().split())
    return len(words & others) / max(len(words | others), 1)


def _merged_losses(losses: Iterable[tuple[LossPlace, GuardrailLoss]]) -> list[GuardrailLoss]:
    """Each loss once, with all its places."""
    places: dict[GuardrailLoss, list[LossPlace]] = {}
    for place, loss in losses:
        places.setdefault(loss, []).append(place)
    merged = [loss._replace(places=tuple(sorted(set(where)))) for loss, where in places.items()]
    return sorted(merged, key=lambda loss: (loss.kind, loss.text, loss.now or "", loss.why or ""))


def _absolute(directory: str) -> str:
    return TOP if directory == "." else f"{TOP}/{directory}"


def _joined(directory: str, path: str) -> str:
    return directory if path == "." else f"{directory}/{path}"


def _is_inside(directory: str, path: str) -> bool:
    return directory == path or directory.startswith(f"{path}/")


def _shown(message: str) -> str:
    """A message with paths of the repository."""
    return message.replace(f"{TOP}/", "")

"""What an export would change, and doing it.

Invariant: every target is looked at before any is written, and one that may not be written stops them all. What is
written stays below the root, links included.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from clia.errors import FileError, NotAllowed
from clia.identities.contexts import AGENTS
from clia.identities.diagnostics import diagnostic, in_order
from clia.identities.exports import manifest
from clia.identities.exports.blocks import Damaged, with_block
from clia.identities.exports.formats import FORMATS, chosen
from clia.identities.file_interface import DIRECTORY, FILE, LINK, MISSING
from clia.identities.places import inside, parents
from clia.values.documents import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from clia.identities.diagnostics import Diagnostic
    from clia.identities.exports.formats import Source
    from clia.identities.file_interface import Files, WritableFiles

FRESH, NEW, STALE, EDITED, REFUSED = "fresh", "missing", "stale", "edited", "refused"
TOO_LONG = 32 * 1024


class Outcome(NamedTuple):
    """How one target stands: ``fresh`` needs nothing, ``refused`` may not be written, the others would be."""

    path: str  # below the root
    format: str
    state: str
    reason: str = ""

    def to_json(self) -> dict[str, str]:
        return self._asdict()


class Target(NamedTuple):
    """A file that an export is to be; ``whole``: of clia's own, or a managed block in somebody else's."""

    path: str  # below the root
    format: str
    whole: bool
    render: Callable[[], str | bytes]


class Write(NamedTuple):
    path: str  # real
    data: bytes
    new: bool


class Plan(NamedTuple):
    slug: str
    root: str
    outcomes: tuple[Outcome, ...]
    writes: tuple[Write, ...]  # in order; the manifest is last
    diagnostics: tuple[Diagnostic, ...]

    def is_fresh(self) -> bool:
        return all(each.state == FRESH for each in self.outcomes)

    def blocked(self, *, force: bool) -> list[Outcome]:
        return [each for each in self.outcomes if each.state == REFUSED or (each.state == EDITED and not force)]

    def to_json(self) -> dict[str, Any]:
        return {
            "slug": self.slug,
            "root": self.root,
            "files": [each.to_json() for each in self.outcomes],
            "diagnostics": [each.to_json() for each in self.diagnostics],
        }


def plan(files: Files, root: str, source: Source) -> Plan:
    """Looks at every copy of a profile; changes nothing."""
    slug = source.merged["slug"]
    return plan_targets(files, root, slug, "profile", [_target(name, slug, source) for name in chosen(source.wishes)])


def _target(name: str, slug: str, source: Source) -> Target:
    wanted = FORMATS[name]
    return Target(wanted.path.format(slug=slug), name, wanted.whole, lambda: wanted.render(source))


def plan_targets(files: Files, root: str, slug: str, said_by: str, targets: Sequence[Target]) -> Plan:
    """Looks at every target of what is called ``slug``; changes nothing. ``said_by``: what they are copies of."""
    planner = _Planner(files, root, slug, said_by)
    outcomes = [planner.look(each) for each in targets]
    writes = [*planner.writes, *planner.manifest_write()]
    return Plan(slug, root, tuple(outcomes), tuple(writes), tuple(in_order(planner.diagnostics)))


def apply(files: WritableFiles, planned: Plan, *, force: bool) -> None:
    """Writes what the plan says; ``NotAllowed``, and nothing written, where a target may not be.

    The caller holds the root, so that no other export writes between looking and doing.
    """
    blocked = planned.blocked(force=force)
    if blocked:
        raise _not_allowed(planned.root, blocked)
    for each in planned.writes:
        directory = each.path.rpartition("/")[0]
        files.make_directory(directory)
        with ExitStack() as held:
            if directory != planned.root:
                held.enter_context(files.exclusive(directory))
            (files.create if each.new else files.replace)(each.path, each.data)


def _not_allowed(root: str, blocked: Sequence[Outcome]) -> NotAllowed:
    told = [f"{each.path} {each.reason}" for each in blocked]
    hints = [*told[1:], "nothing was written"]
    if any(each.state == EDITED for each in blocked):
        hints.append("to overwrite what was edited by hand: --force")
    return NotAllowed(told[0], hints=hints, fields={"root": root, "files": [each.to_json() for each in blocked]})


class _Refused(Exception):
    """A target may not be written; never leaves this module."""


class _Planner:
    def __init__(self, files: Files, root: str, slug: str, said_by: str) -> None:
        self.files = files
        self.root = root
        self.slug = slug
        self.said_by = said_by
        self.writes: list[Write] = []
        self.diagnostics: list[Diagnostic] = []
        self._manifest_path, self._known = self._read_manifest()
        self._listed = dict(self._known)
        self._planned = {self._manifest_path: (manifest.PATH, True)}  # real path -> the target that owns it, and if whole

    def look(self, wanted: Target) -> Outcome:
        path, name = wanted.path, wanted.format
        try:
            real = self._place(path)
            other, whole = self._planned.setdefault(real, (path, wanted.whole))
            if other != path and (whole or wanted.whole):
                raise _Refused(f"is the same file as {other}")
            if other != path:  # CLAUDE.md is often a link to AGENTS.md; its block says all there is to say
                return Outcome(path, name, FRESH, f"is the same file as {other}")
            current = self._current(real)
            content = wanted.render()
            if wanted.whole:
                if self.files.kind(self._absolute(path)) == LINK:
                    raise _Refused("is a link: the file it leads to is not clia's")
                data = content if isinstance(content, bytes) else content.encode("utf-8")
                return self._whole(Outcome(path, name, FRESH), real, current, data)
            return self._managed(Outcome(path, name, FRESH), real, current, str(content))
        except _Refused as err:
            return Outcome(path, name, REFUSED, str(err))
        except FileError as err:
            return Outcome(path, name, REFUSED, f"cannot be read: {err.fields.get('reason', err.message)}")

    def manifest_write(self) -> list[Write]:
        """The manifest, where it has changed."""
        if self._listed == self._known:
            return []
        return [Write(self._manifest_path, manifest.dump(self._listed), False)]

    def _whole(self, about: Outcome, real: str, current: bytes | None, data: bytes) -> Outcome:
        known = self._known.get(about.path)
        if current is not None and known is None and current != data:
            raise _Refused("exists and is not clia's: it is not listed in the manifest")
        if current is not None and known is not None and known.format != about.format:
            raise _Refused(f"is clia's copy of something else of that name ({known.format}): remove it, or use another name")
        self._listed[about.path] = manifest.Listed(about.format, manifest.sha256(data), self.slug)
        # A file that is as it should be needs no listing to stay: a crash before the manifest was written leaves just that.
        outcome = self._change(about, real, current, data)
        if outcome.state == STALE and known is not None and manifest.sha256(current or b"") != known.sha256:
            return outcome._replace(state=EDITED, reason="was edited by hand")
        return outcome

    def _managed(self, about: Outcome, real: str, current: bytes | None, body: str) -> Outcome:
        before = current or b""
        try:
            before.decode("utf-8")
            data = with_block(before, self.slug, body)
        except UnicodeDecodeError:
            raise _Refused("is not UTF-8 text") from None
        except Damaged as err:
            raise _Refused(f"has damaged markers: {err}") from None
        if len(data) > TOO_LONG:
            path = self._absolute(about.path)
            self.diagnostics.append(diagnostic("export-too-long", path, f"{path} has {len(data)} bytes, more than {TOO_LONG}"))
        return self._change(about, real, current, data)

    def _change(self, about: Outcome, real: str, current: bytes | None, data: bytes) -> Outcome:
        if current == data:
            return about
        self.writes.append(Write(real, data, current is None))
        if current is None:
            return about._replace(state=NEW, reason="does not exist")
        return about._replace(state=STALE, reason=f"is not what the {self.said_by} says")

    def _current(self, real: str) -> bytes | None:
        data = self.files.read(real, MAX_BYTES)
        if data is not None and len(data) > MAX_BYTES:
            raise _Refused(f"is larger than {MAX_BYTES} bytes")
        return data

    def _place(self, path: str) -> str:
        """Where a target really is; refused where that is not a place for a file of clia's."""
        real = self.files.real(self._absolute(path))
        if not inside(real, self.root) or real == self.root:
            raise _Refused("is a link that leaves the root")
        below = real.removeprefix(self.root).removeprefix("/")
        if any(f"/{each}/" in f"/{below}/" for each in (".git", AGENTS)):
            raise _Refused("is a link to what no export may change")
        if self.files.kind(real) not in (FILE, MISSING):
            raise _Refused("is not a file")
        for parent in parents(real)[1:]:
            if parent == self.root:
                break
            if self.files.kind(parent) not in (DIRECTORY, MISSING):
                raise _Refused(f"cannot be made: {parent.removeprefix(self.root).removeprefix('/')} is not a directory")
        return real

    def _absolute(self, path: str) -> str:
        return f"{self.root.rstrip('/')}/{path}"

    def _read_manifest(self) -> tuple[str, dict[str, manifest.Listed]]:
        try:
            real = self._place(manifest.PATH)
            data = self._current(real)
        except _Refused as err:
            raise NotAllowed(f"{manifest.PATH} {err}", hints=["nothing was written"], fields={"root": self.root}) from None
        return real, {} if data is None else manifest.parse(data, real)

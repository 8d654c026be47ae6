"""Root chains: which contexts an agent asks for, and which it gets.

Invariant: the final chain runs global to local and ends with the local context; no context of the default chain ever
loses its guardrails; a root that does not contain the working path is refused before anything is merged.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import InvalidInput
from clia.identities.contexts import AGENT, Excluded
from clia.identities.diagnostics import diagnostic
from clia.identities.file_interface import DIRECTORY
from clia.identities.layers import find_target
from clia.identities.places import depth
from clia.values.documents import type_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from clia.identities.contexts import Context, Search
    from clia.identities.diagnostics import Diagnostic
    from clia.identities.layers import Reader

MODES = DEFAULT, EXPLICIT, HYBRID = ("default", "explicit", "hybrid")


class Request(NamedTuple):
    """A document's ``rootChain``, checked."""

    source: str
    directory: str  # the domain directory it stands in
    mode: str
    roots: tuple[str, ...]
    contained: bool


class Chain(NamedTuple):
    mode: str
    contexts: tuple[Context, ...]
    injected: tuple[Context, ...]
    pinned: tuple[Context, ...]
    excluded: tuple[Excluded, ...]
    diagnostics: tuple[Diagnostic, ...]


def resolve(search: Search, reader: Reader, default: Sequence[Context], *, allow_uncontained: bool) -> Chain:
    """The final chain for the innermost agent document's wishes."""
    asked = _asked(reader, default)
    if asked is None or asked.mode == DEFAULT:
        return Chain(DEFAULT, tuple(default), (), (), (), ())
    found: list[Diagnostic] = []
    injected = _injected(search, reader, asked, found, enforce=asked.contained or not allow_uncontained)
    local = default[-1]
    wanted = {each.real_home: each for each in (default if asked.mode == HYBRID else [local])}
    for root in injected:
        known = next((each for each in default if each.real_home == root.real_home), root)
        wanted[root.real_home] = known._replace(reasons=(*known.reasons, "root-chain"))
    if asked.mode == EXPLICIT:
        wanted[local.real_home] = wanted[local.real_home]._replace(reasons=(*wanted[local.real_home].reasons, "local"))
    contexts = sorted(wanted.values(), key=lambda each: (each.real_home == local.real_home, depth(each.directory), each.directory))
    pinned = tuple(each for each in default if each.real_home not in wanted)
    for each in pinned:
        path = each.documents[AGENT]
        if path is not None:
            found.append(diagnostic("guardrails-pinned", path, f"{each.directory} is left out by the root chain of {asked.source}"))
    excluded = tuple(Excluded(each.directory, "not-in-root-chain") for each in pinned)
    return Chain(asked.mode, tuple(contexts), tuple(injected), pinned, excluded, tuple(found))


def _asked(reader: Reader, default: Sequence[Context]) -> Request | None:
    for context in reversed(default):
        path = context.documents[AGENT]
        if path is not None:
            loaded = reader.load(path)
            asked = None if loaded is None else loaded[0].get("rootChain")
            return None if asked is None else parse(path, context.directory, asked)
    return None


def parse(path: str, directory: str, value: Any) -> Request:
    """A checked root chain; ``InvalidInput`` names the file and the place."""
    body = _typed(path, "/rootChain", value, dict)
    mode = body.get("mode", DEFAULT)
    if mode not in MODES:
        raise _invalid(path, "/rootChain/mode", f"must be one of {', '.join(MODES)}, not {mode!r}")
    roots = []
    for index, root in enumerate(_typed(path, "/rootChain/roots", body.get("roots", []), list)):
        at = f"/rootChain/roots/{index}"
        _typed(path, at, root, dict)
        if root.get("kind", "path") != "path":
            raise _invalid(path, f"{at}/kind", f"must be 'path', not {root['kind']!r}")
        roots.append(_typed(path, f"{at}/path", root.get("path"), str))
    policy = _typed(path, "/rootChain/policy", body.get("policy", {}), dict)
    contained = _typed(path, "/rootChain/policy/enforceContainment", policy.get("enforceContainment", True), bool)
    return Request(path, directory, mode, tuple(roots), contained)


def _injected(search: Search, reader: Reader, asked: Request, found: list[Diagnostic], *, enforce: bool) -> list[Context]:
    files = search.files
    bases = reader.roots(reader.real(asked.source).rpartition("/")[0]) or [asked.directory]
    contexts: dict[str, Context] = {}
    for index, declared in enumerate(asked.roots):
        at = f"/rootChain/roots/{index}/path"
        directory = find_target(files, bases, declared, DIRECTORY)
        if directory is None or files.kind(directory) != DIRECTORY:
            raise _invalid(asked.source, at, f"{declared!r} is no directory below {bases[0]} or an enclosing repository")
        if enforce and directory not in search.place.ancestors:
            hint = "the operator may allow it with --allow-uncontained" if not asked.contained else "name an enclosing directory"
            raise _invalid(asked.source, at, f"{directory} does not contain the working path {search.place.path}", hint)
        context = search.at(directory, ["root-chain"])
        if context is None:
            message = f"{directory} is a root of {asked.source}, but has no directory of agent {search.slug}"
            found.append(diagnostic("root-without-agent", asked.source, message, at))
        else:
            contexts[context.real_home] = context
    return sorted(contexts.values(), key=lambda each: (depth(each.directory), each.directory))


def _typed(path: str, pointer: str, value: Any, kind: type) -> Any:
    if isinstance(value, kind):
        return value
    wanted = {dict: "an object", list: "an array", str: "a string", bool: "true or false"}[kind]
    raise _invalid(path, pointer, f"must be {wanted}, not {type_name(value)}")


def _invalid(path: str, pointer: str, problem: str, hint: str | None = None) -> InvalidInput:
    return InvalidInput(
        f"{path}: {pointer} {problem}",
        code="invalid-root-chain",
        hints=[hint] if hint else [],
        fields={"path": path, "pointer": pointer},
    )

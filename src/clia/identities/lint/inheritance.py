"""Whether every active agent of a repository inherits its root directives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clia.identities.contexts import AGENT
from clia.identities.diagnostics import diagnostic
from clia.identities.directives import root_directives
from clia.identities.layers import CONTEXT
from clia.identities.places import inside

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clia.identities.diagnostics import Diagnostic
    from clia.identities.lint.subject import Subject


def inherits_root(subject: Subject) -> Iterator[Diagnostic]:
    """An agent inherits the directives where any document of its chain does, directly or through another one."""
    directives = root_directives(subject.files, subject.place)
    if directives is None or not subject.is_active():
        return
    repository, path = directives
    real = subject.files.real(path)
    if any(layer.only is None and real in (layer.path, subject.files.real(layer.path)) for layer in subject.layers[AGENT]):
        return
    # The outermost one inside that repository: there one line mends every place that sees the agent.
    own = [each.path for each in subject.layers[AGENT] if each.origin == CONTEXT and inside(each.directory, repository)]
    if own:
        yield diagnostic("inherits-root-missing", own[0], f"{own[0]} does not inherit the root directives {path}", "/inherits")

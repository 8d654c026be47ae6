"""Where a write goes.

Invariant: exactly one agent directory is written, found without git and before anything is created; a link cannot lead
the write out of the place it was meant for.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.errors import NotFound, UnsafePath
from clia.identities.contexts import AGENTS
from clia.identities.places import below, inside
from clia.values.names import check_slug

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.identities.file_interface import Files
    from clia.identities.places import Place

SCOPES = LOCAL, SUBMODULE, WORKSPACE = ("local", "submodule", "workspace")


class Target(NamedTuple):
    directory: str  # the domain directory
    home: str  # the agent's own directory, links resolved; may not exist yet
    prefix: str  # short name of the place: what an entry's `source` says
    boundary: str  # what no link may lead out of
    used_agents_dir: bool


def write_target(files: Files, place: Place, slug: str, scope: str = SUBMODULE, agents_dir: str | None = None) -> Target:
    """The agent directory that a write from ``place`` goes to; ``agents_dir`` where no repository encloses it."""
    check_slug(slug)
    if scope == LOCAL:
        directory = place.path
    elif place.repositories:
        directory = place.repositories[-1 if scope == SUBMODULE else 0]
    elif agents_dir is not None:
        return _in_agents_dir(files, agents_dir, slug)
    else:
        raise NotFound(
            f"no repository encloses {place.path}, so there is no place to write to",
            code="no-repository",
            hints=["run it inside a git repository", "or name the directory that holds the agents: --agents-dir DIR"],
            fields={"path": place.path},
        )
    return target_at(files, place, directory, slug)


def target_at(files: Files, place: Place, directory: str, slug: str) -> Target:
    """The agent's directory below one domain directory; refused where a link leads it out of the repository."""
    home = files.real(below(directory, f"{AGENTS}/{slug}"))
    boundary = next((root for root in reversed(place.repositories) if inside(directory, root)), directory)
    if not inside(home, boundary) or "/.git/" in f"{home.removeprefix(boundary)}/":
        raise UnsafePath(
            f"{below(directory, f'{AGENTS}/{slug}')} leads to {home}, outside {boundary}",
            hints=["nothing was written: replace the link by a directory"],
            fields={"path": home, "boundary": boundary},
        )
    return Target(directory, home, name_of(directory), boundary, False)


def _in_agents_dir(files: Files, agents_dir: str, slug: str) -> Target:
    real = files.real(agents_dir)
    domain = real.removesuffix(f"/{AGENTS}") or "/"
    home = files.real(below(real, slug))
    if not inside(home, real):
        raise UnsafePath(f"{below(real, slug)} leads to {home}, outside {real}", fields={"path": home, "boundary": real})
    return Target(domain, home, name_of(domain), real, True)


def name_of(directory: str) -> str:
    """A directory's short name."""
    # A name that is no Unicode cannot stand in a document; its odd bytes are spelled out.
    return (directory.rpartition("/")[2] or "root").encode("utf-8", "backslashreplace").decode("utf-8")

"""Options that several commands share."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from clia.identities.lineage import Lineage
    from clia.identities.writing import WriteLocation


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON for a program")


def add_path(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--path", default=".", metavar="DIR", help="working path (default: the current directory)")
    parser.add_argument("--ceiling", metavar="DIR", help="read no context above this directory")


def add_slug(parser: argparse.ArgumentParser, slug: str | None, *, required: bool = True) -> None:
    parser.add_argument(
        "--slug",
        "--agent-slug",
        dest="slug",
        default=slug,
        required=required and slug is None,
        metavar="SLUG",
        help=f"the agent (default: {slug})" if slug else "the agent",
    )


def add_lineage(parser: argparse.ArgumentParser, slug: str | None) -> None:
    """What every command that reads one agent's lineage takes."""
    add_slug(parser, slug)
    add_path(parser)
    parser.add_argument(
        "--allow-uncontained",
        action="store_true",
        help="as the operator, honour a root chain with enforceContainment: false",
    )
    add_json(parser)


def lineage_of(args: argparse.Namespace) -> Lineage:
    from clia.identities.lineage import lineage

    return lineage(args.path, args.slug, ceiling=args.ceiling, allow_uncontained=args.allow_uncontained)


def add_target(parser: argparse.ArgumentParser, *, agents_dir: bool = True) -> None:
    """Where a command writes."""
    parser.add_argument("--path", default=".", metavar="DIR", help="working path (default: the current directory)")
    parser.add_argument(
        "--write-scope",
        choices=("local", "submodule", "workspace"),
        default="submodule",
        help="the working path itself, the nearest repository (default), or the outermost one",
    )
    if agents_dir:
        parser.add_argument("--agents-dir", metavar="DIR", help="directory of agents, used where no repository encloses the path")


def where(args: argparse.Namespace) -> WriteLocation:
    from clia.identities.writing import WriteLocation

    return WriteLocation(args.path, args.write_scope, getattr(args, "agents_dir", None))

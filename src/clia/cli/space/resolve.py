"""``clia resolve``: conclude a merge that had conflicts.

Invariant: what was decided about two heads is applied to those heads and to no others; a head that moved since is refused.
"""

from __future__ import annotations

import os
import stat

from clia.cli.output import emit_json, write
from clia.cli.space.common import add_message, add_meta, add_space, content_of, message_of, meta_of, pairs, space_of
from clia.cli.space.merge import resolve_hint, show_conflicts
from clia.errors import FileError, InvalidInput
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from clia.facade.space import Space
    from clia.space.model import Content


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("into", metavar="INTO", help="the agent that takes the work in")
    parser.add_argument("from_", metavar="FROM", help="the agent whose work it is; PEER/AGENT: one of a peer's")
    parser.add_argument("--file", action="append", default=[], metavar="PATH=FILE", help="what a path becomes (repeatable)")
    parser.add_argument("--remove", action="append", default=[], metavar="PATH", help="a path that goes (repeatable)")
    parser.add_argument("--take", choices=("ours", "theirs"), help="INTO's or FROM's version of every other conflict")
    parser.add_argument("--dir", metavar="DIR", help="the whole outcome: every file of a directory, also those that git ignores")
    parser.add_argument("--ours", metavar="COMMIT", help="INTO's head (default: as of the last refused merge)")
    parser.add_argument("--theirs", metavar="COMMIT", help="FROM's head (default: as of the last refused merge)")
    add_message(parser)
    add_meta(parser)
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    in_part = bool(args.file or args.remove or args.take)
    if args.dir is not None and in_part:
        raise InvalidInput("--dir says it all: give it without --file, --remove and --take", code="invalid-option")
    with space_of(args) as space:
        if args.dir is None and not in_part:
            raise _unresolved(space, args)
        ours, theirs = _heads(space, args)
        made = space.resolve(
            args.into,
            args.from_,
            None if args.dir is None else _worktree(args.dir),
            ours=ours,
            theirs=theirs,
            changes=_changes(space, args) if in_part else None,
            message=message_of(args),
            meta=meta_of(args),
        )
    if args.json:
        emit_json({"result": "merged", **as_json(made)})
    else:
        write(f"{args.into} took in {args.from_}: {made.cid}\n")
    return 0


def _unresolved(space: Space, args: argparse.Namespace) -> InvalidInput:
    """Shows what there is to settle; the error that says so."""
    found = space.conflicts(args.into, args.from_)
    if found is None:
        hints = [f"clia merge {args.into} {args.from_}"]
        return InvalidInput(f"{args.into} and {args.from_} have no conflict", code="no-conflict", hints=hints)
    if args.json:
        emit_json({"result": "conflicts", **as_json(found)})
    else:
        show_conflicts(found)
    return InvalidInput(
        "say what becomes of each conflict",
        code="unresolved",
        hints=[resolve_hint(args.into, args.from_)],
        fields={"paths": [each.path for each in found.paths]},
    )


def _heads(space: Space, args: argparse.Namespace) -> tuple[str, str]:
    """Both heads that the answer is about: as told, else as they were when the merge was refused."""
    told = [None if each is None else space.find(each) for each in (args.ours, args.theirs)]
    refused = space.last_refused(args.into, args.from_) or (None, None)
    ours, theirs = told[0] or refused[0], told[1] or refused[1]
    if ours is None or theirs is None:
        space.conflicts(args.into, args.from_)  # an unknown agent is the better complaint
        raise InvalidInput(
            f"no merge of {args.from_} into {args.into} was refused",
            code="no-refused-merge",
            hints=[f"clia merge {args.into} {args.from_} tries one; or name both heads: --ours COMMIT --theirs COMMIT"],
        )
    return ours, theirs


def _changes(space: Space, args: argparse.Namespace) -> dict[str, Content | None]:
    """What becomes of which path: as told, else as one side has it."""
    files = dict(pairs(args.file, "--file"))
    both = sorted(files.keys() & set(args.remove))
    if both:
        raise InvalidInput(f"{both[0]!r} is set by --file and taken away by --remove", code="invalid-option")
    found = space.conflicts(args.into, args.from_) if args.take else None
    changes: dict[str, Content | None] = {each.path: getattr(each, args.take) for each in found.paths} if found else {}
    changes.update({path: content_of(file) for path, file in files.items()})
    changes.update(dict.fromkeys(args.remove))
    return changes


def _worktree(top: str) -> dict[str, Content]:
    """Every file below a directory, as a value."""
    if not os.path.isdir(top):
        raise InvalidInput(f"{top} is not a directory", code="not-a-directory", fields={"path": top})
    found: dict[str, Content] = {}
    for folder, folders, names in os.walk(top, onerror=_refuse):
        links = [each for each in folders if os.path.islink(os.path.join(folder, each))]
        inner = folder != top and ".git" in (*folders, *names)
        if inner or (folder == top and ".gitmodules" in names):  # as a value, a submodule would silently go
            raise InvalidInput(
                f"{folder} holds another repository",
                code="submodules",
                hints=["say what becomes of the conflicts instead: --file, --remove, --take"],
                fields={"path": folder},
            )
        for name in (*links, *names):
            if name != ".git":
                path = os.path.join(folder, name)
                found[os.path.relpath(path, top)] = _file(path)
        folders[:] = sorted(each for each in folders if each != ".git")
    return found


def _file(path: str) -> Content:
    mode = os.lstat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):
        raise InvalidInput(f"{path} is neither a file nor a link", code="invalid-content", fields={"path": path})
    return content_of(path)


def _refuse(err: OSError) -> None:
    raise FileError(f"{err.filename}: {err.strerror}", fields={"path": err.filename, "reason": err.strerror}) from None

"""``clia behaviour propose``."""

from __future__ import annotations

from clia.behaviours.model import PROPOSED
from clia.cli.behaviours.common import (
    add_evidence,
    add_kind,
    changed_line,
    explaining,
    last_event,
    note_unfilled,
    standing,
    version_json,
    written_in,
)
from clia.cli.output import console, emit_json, one_line, write
from clia.cli.sessions.common import add_why
from clia.cli.space.common import add_space, short, space_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from clia.behaviours.model import BehaviourVersion


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("name", metavar="NAME", help="the behaviour that it may become a version of")
    parser.add_argument("--from", dest="file", required=True, metavar="FILE", help="its body ('-': standard input)")
    add_evidence(parser, "commits that prompted it")
    parser.add_argument("--parent", metavar="CID", help="the version that it came from (default: the current one)")
    parser.add_argument("--agent", metavar="AGENT", help="the agent that proposes it (default: you do)")
    add_kind(parser)
    add_why(parser)
    parser.add_argument("--notes", default="", metavar="TEXT", help="what there is to know of this version; kept with it")
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space:
        before = last_event(space, args.name)
        body, kind, why = written_in(args, args.file, space)
        with explaining(args, body, args.file):
            made = space.propose_behaviour(
                args.name,
                body,
                kind,
                parent=args.parent,
                evidence=args.evidence,
                why=why,
                notes=args.notes,
                agent=args.agent,
            )
        changed = last_event(space, args.name) != before
    if args.json:
        emit_json({**version_json(made), "changed": changed})
    else:
        _show(made, changed=changed)
    return 0


def _show(made: BehaviourVersion, *, changed: bool) -> None:
    if changed and made.state == PROPOSED:
        said = f"is proposed, on {len(made.evidence)} commits" if len(made.evidence) > 1 else "is proposed"
    else:
        said = f"{standing(made.state)}: {'more evidence for it is kept' if changed else 'nothing is written'}"
    console().print(changed_line(made, said), soft_wrap=True)
    if made.state == PROPOSED:
        name, cid = one_line(made.name), short(made.cid)
        read = "diff" if made.parent else "show"  # the first of its name changes nothing that is there
        write(f"read it: clia behaviour {read} {cid}\nlet it run: clia behaviour adopt {name} {cid} [--trial]\n")
    note_unfilled(made)

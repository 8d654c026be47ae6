"""``clia behaviour adopt``.

Invariant: ``--on-evidence`` adopts what is suggested at that moment or nothing, and only in place of what it was compared with.
"""

from __future__ import annotations

from typing import NamedTuple

from clia.behaviours.model import ADOPT
from clia.cli.behaviours.common import (
    add_evidence,
    add_expect,
    add_measure,
    changed_line,
    last_event,
    note_gaps,
    reading,
    standing,
    version_json,
)
from clia.cli.output import console, emit_json, one_line, write
from clia.cli.sessions.common import add_why
from clia.cli.space.common import add_space, message_of, require_person, short, space_of
from clia.errors import CliaError, InvalidInput
from clia.values.typed_objects import SESSION_FLOW

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from clia.behaviours.model import BehaviourVersion, Suggestion
    from clia.facade.space import Space


class Choice(NamedTuple):
    """What is to be adopted, and on what grounds."""

    version: str | None
    expect: str | None
    evidence: Sequence[str]
    why: str
    measure: str | None = None


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("name", metavar="NAME|PEER/NAME", help="which behaviour; of a peer: its current version is taken over")
    parser.add_argument("version", nargs="?", metavar="CID", help="which version, by its id or its start")
    parser.add_argument("--trial", action="store_true", help="let it run by its id only: the name goes on meaning what it means")
    add_expect(parser)
    add_evidence(parser, "commits that speak for it")
    parser.add_argument("--on-evidence", action="store_true", help="adopt what clia behaviour suggest suggests, with its evidence")
    add_measure(parser, "with --on-evidence: what it is judged by")
    add_why(parser)
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    require_person("a proposal waits for them: clia behaviour list says where there is one")
    _check_options(args)
    name = args.name.rpartition("/")[2]
    with space_of(args) as space:
        before = last_event(space, name)
        given = Choice(args.version, args.expect, args.evidence, message_of(args))
        choice = _suggested(space, args, given) if args.on_evidence else given
        if choice.version is None and "/" not in args.name:
            raise _unsaid(space.behaviour(args.name).name)
        made = space.adopt_behaviour(
            args.name,
            choice.version,
            trial=args.trial,
            expect=choice.expect,
            evidence=choice.evidence,
            measure=choice.measure,
            why=choice.why,
        )
        changed = last_event(space, name) != before
    if args.json:
        emit_json({**version_json(made), "changed": changed})
    else:
        _show(made, changed=changed, trial=args.trial)
    return 0


def _check_options(args: argparse.Namespace) -> None:
    if not args.on_evidence:
        clash = [("--measure goes with --on-evidence", args.measure)]
    else:
        clash = [
            ("--on-evidence finds the version itself: leave CID out", args.version),
            ("--on-evidence finds the evidence itself: leave --evidence out", args.evidence),
            ("--on-evidence adopts for good: a trial is how evidence comes about", args.trial),
            ("--on-evidence is about versions that ran here, not a peer's", "/" in args.name),
        ]
    if "/" in args.name:
        clash.append(("of a peer the current version is taken over: leave CID out", args.version))
    for said, given in clash:
        if given:
            raise InvalidInput(said, code="invalid-option", fields={"option": "--on-evidence"} if args.on_evidence else {})


def _suggested(space: Space, args: argparse.Namespace, given: Choice) -> Choice:
    with reading(args) as watch:
        found = space.suggest_behaviour(args.name, args.measure, progress=watch)
    if not args.json:
        note_gaps(space.observation_gaps())
    if found.action != ADOPT:
        raise _not_suggested(found)
    return Choice(found.cid, given.expect or found.expect, found.evidence, given.why or f"on evidence: {found.why}", found.measure)


def _not_suggested(found: Suggestion) -> CliaError:
    return CliaError(
        f"no version of {found.name!r} is suggested: {found.why}",
        code="not-suggested",
        hints=[f"clia behaviour suggest {found.name}"],
        fields={"behaviour": found.name, "action": found.action, "measure": found.measure},
    )


def _unsaid(name: str) -> InvalidInput:
    return InvalidInput(
        f"say which version of {name!r}",
        code="version-needed",
        hints=[
            f"clia behaviour show {name} lists them",
            f"or what the record speaks for: clia behaviour adopt {name} --on-evidence",
        ],
        fields={"field": "version", "behaviour": name},
    )


def _show(made: BehaviourVersion, *, changed: bool, trial: bool) -> None:
    if not changed:
        said = f"{standing(made.state)}: nothing is written"
    else:
        said = "is on trial: it runs by its id" if trial else "is current: new sessions and spawns use it"
    console().print(changed_line(made, said), soft_wrap=True)
    if changed and trial:
        start = "clia session start AGENT" if made.kind == SESSION_FLOW else "clia spawn AGENT --title TITLE --behaviour"
        cid = made.cid if made.kind == SESSION_FLOW else short(made.cid)  # its start may be another's too one day
        write(one_line(f"next: {start} {cid}") + "\n")

"""``clia behaviour suggest``: adopt, keep or retire, with what says so; or that there is not enough data."""

from __future__ import annotations

from clia.behaviours.measures import COMMITS_KEPT
from clia.behaviours.model import ADOPT, CURRENT, KEEP, NOT_ENOUGH, PROPOSED, RETIRE
from clia.cli.behaviours.common import add_measure, chance, note_gaps, rate_words, reading, some_ids, state_text
from clia.cli.federation.tables import show_rows
from clia.cli.output import console, emit_json, one_line, write
from clia.cli.sessions.common import show_block
from clia.cli.space.common import add_space, short, space_of
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from clia.behaviours.model import Candidate, Suggestion

_EVIDENCE = 5
_STYLES = {ADOPT: "green", KEEP: "cyan", RETIRE: "red", NOT_ENOUGH: "yellow"}


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("name", metavar="NAME", help="which behaviour")
    add_measure(
        parser, "what its versions are judged by (default: the operator's policy, else finished for a flow, merged for a prompt)"
    )
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    with space_of(args) as space, reading(args) as watch:
        found = space.suggest_behaviour(args.name, args.measure, progress=watch)
        gaps = space.observation_gaps()
    if args.json:
        emit_json({**as_json(found), "next": next_command(found, str), "gaps": gaps})
    else:
        _show(found)
        note_gaps(gaps)
    return 0


def next_command(found: Suggestion, named: Callable[[str], str]) -> str | None:
    """What a person would do now, with ids as ``named`` makes them; None where nothing is to be done."""
    if found.action in (ADOPT, RETIRE) and found.cid and found.expect:
        return f"clia behaviour {found.action} {found.name} {named(found.cid)} --expect {named(found.expect)}"
    unseen = [each for each in found.candidates if each.state == PROPOSED]
    if found.action == NOT_ENOUGH and unseen:
        return f"clia behaviour adopt {found.name} {named(unseen[-1].cid)} --trial"
    return None


def _show(found: Suggestion) -> None:
    from rich.text import Text  # only people see it

    style = _STYLES.get(found.action, "")
    head = Text.assemble((one_line(found.name), "bold"), "  ", (_words(found), style))
    console().print(head, soft_wrap=True)
    show_block(found.why, indent=2)
    console().print()
    rows: list[tuple[object, ...]] = [(short(found.expect), state_text(CURRENT), rate_words(found.current), "", "")]
    rows += [_row(found, each) for each in found.candidates]
    show_rows(("version", "state", found.measure, "better", "more needed"), rows, right=("better",), wrapped=("more needed",))
    if found.evidence:
        write(f"\nevidence: {some_ids(found.evidence, _EVIDENCE)}\n")
        write(f"          the newest {COMMITS_KEPT} commits of each kind; --json names them all\n")
    command = next_command(found, short)
    if command is not None:
        if found.action == NOT_ENOUGH:
            write("a proposal that nobody lets run is never observed\n")
        write(one_line(f"next: {command}") + "\n")


def _words(found: Suggestion) -> str:
    """The action in plain words."""
    if found.action == ADOPT:
        return f"adopt {short(found.cid)} in place of {short(found.expect)}"
    if found.action == RETIRE:
        return f"keep {short(found.expect)}, and retire {short(found.cid)}"
    return f"keep {short(found.expect)}: nothing is to be changed" if found.action == KEEP else "nothing is suggested yet"


def _row(found: Suggestion, each: Candidate) -> tuple[object, ...]:
    return (
        short(each.cid),
        state_text(each.state),
        rate_words(each.compared.after),
        chance(each.compared.better),
        _needed(found, each),
    )


def _needed(found: Suggestion, each: Candidate) -> str:
    """How many more observations it would take: as many as a suggestion takes at least, and as the difference looks now."""
    short_of = found.least - min(found.current.n, each.compared.after.n)
    if short_of > 0:
        return f"about {max(short_of, each.needed or 0):,} of each" if each.needed else f"at least {short_of:,}"
    if each.compared.proven:
        return "none: it is shown"
    return f"about {each.needed:,} of each" if each.needed else "no difference to see"

"""What the commands about behaviours share: reading a body and its kind, and telling versions and rates to people.

Invariant: a rate is never told without its interval and the count behind it, and never as certain where it is not.
"""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from typing import NamedTuple

from clia.behaviours.model import CURRENT, FOREIGN, FORMER, PROPOSED, RETIRED, TRIAL
from clia.cli.findings import progress
from clia.cli.output import one_line, write
from clia.cli.sessions.common import source_text
from clia.cli.sessions.problems import show_problems
from clia.cli.space.common import message_of, short
from clia.engine.records import Problem
from clia.errors import Conflict, InvalidFlow, InvalidInput, NotFound
from clia.space.model import as_json
from clia.values.typed_objects import PROMPT, SESSION_FLOW

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from rich.text import Text

    from clia.behaviours.model import BehaviourVersion, KnownBehaviour, Rate
    from clia.facade.space import Space

STYLES = {CURRENT: "green", TRIAL: "cyan", FORMER: "cyan", PROPOSED: "yellow", RETIRED: "bright_black", FOREIGN: "magenta"}
_KINDS = {".py": SESSION_FLOW, ".md": PROMPT, ".txt": PROMPT}
GAPS = (
    "note: this clone has only part of the record, and what it has not got is not counted; "
    "get the rest (git fetch --unshallow, and the refs of all agents), and ask again\n"
)
_STANDING = {
    CURRENT: "is current already",
    TRIAL: "is on trial already",
    FORMER: "was current, and may run by its id",
    PROPOSED: "was proposed already",
    RETIRED: "was retired",
}
_FILLED = re.compile(r"\{\{[^{}\n]{1,60}\}\}")
_CERTAIN = ("0", "100")


def add_kind(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kind",
        choices=(PROMPT, SESSION_FLOW),
        help="what a new behaviour is (default: by the file's name: .py a session-flow, .md or .txt a prompt)",
    )


def add_evidence(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--evidence", nargs="+", action="extend", default=[], metavar="COMMIT", help=text)


def add_expect(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--expect", metavar="CID", help="what must be current now (none: nothing), else nothing is changed")


def add_measure(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--measure", metavar="M", help=f"{text}: finished, approved, merged, passed or kept")


class Written(NamedTuple):
    """A body to be a version, as the command line has it."""

    body: str
    kind: str | None  # None: that of the behaviour, or it has to be said
    why: str


def written_in(args: argparse.Namespace, file: str, space: Space) -> Written:
    """What a file and the options say of a version; ``-`` is standard input, for one of them."""
    if file == args.message == "-":
        raise InvalidInput("only one of FILE and --message can be standard input", code="invalid-option")
    kind = args.kind or _kind_by_name(args.name, file, known(space, args.name))
    return Written(source_text(file, "body"), kind, message_of(args))


def _kind_by_name(name: str, file: str, there: KnownBehaviour | None) -> str | None:
    """What a file's name says; refused where that is another. A flow's source would do as a prompt, and nobody would notice."""
    kind = next((kind for end, kind in _KINDS.items() if file.lower().endswith(end)), None)
    if there is None or kind in (None, there.kind):
        return kind
    raise Conflict(
        f"the behaviour {name!r} is a {there.kind}, and {file} by its name a {kind}",
        code="wrong-kind",
        hints=[f"if it is a {there.kind}: --kind {there.kind}", "else give it a name of its own"],
        fields={"behaviour": name, "kind": there.kind, "given": kind, "path": file},
    )


def note_unfilled(version: BehaviourVersion) -> None:
    """Says of a prompt what looks as if it were filled in, and is not."""
    from clia.behaviours.prompts import placeholders

    if version.kind != PROMPT:
        return
    for text in dict.fromkeys(_FILLED.findall(version.body)):
        if not placeholders(text):
            said = f"note: {text} is no open place and stays as it is; there are task, agent, title"
            write(one_line(said) + "\n", sys.stderr)


@contextmanager
def explaining(args: argparse.Namespace, body: str, file: str) -> Iterator[None]:
    """Shows a person what is wrong in a flow that is refused, in its own lines."""
    try:
        yield
    except InvalidFlow as err:
        if not args.json:
            show_problems([Problem(**each) for each in err.fields.get("problems", ())], body, file, stderr=True)
        raise


def known(space: Space, name: str) -> KnownBehaviour | None:
    """The behaviour of a name; None where there is none."""
    try:
        return space.behaviour(name)
    except NotFound:
        return None


def last_event(space: Space, name: str) -> str | None:
    """The commit that a behaviour's chain ends in: where it is another afterwards, something was written."""
    found = known(space, name)
    return found.history[0].commit if found and found.history else None


def version_json(version: BehaviourVersion) -> dict[str, Any]:
    """A version as a program reads it, without its body."""
    made: dict[str, Any] = as_json(version)
    del made["body"]
    return made


def known_json(behaviour: KnownBehaviour) -> dict[str, Any]:
    """A behaviour as a program reads it, without the bodies of its versions."""
    made: dict[str, Any] = as_json(behaviour)
    return made | {"versions": [version_json(each) for each in behaviour.versions]}


def changed_line(version: BehaviourVersion, said: str) -> Text:
    """What became of a version, in a line."""
    from rich.text import Text  # only people see it

    return Text.assemble((one_line(version.name), "bold"), " ", (short(version.cid), "yellow"), f"  {one_line(said)}")


def state_text(state: str | None) -> Text:
    from rich.text import Text

    return Text(one_line(state or "unknown"), style=STYLES.get(state or "", ""))


def standing(state: str) -> str:
    """How a version stands, to somebody who brings it again."""
    return _STANDING.get(state, f"is {state}")


def person(by: str) -> str:
    """Who it was, without the address that takes up half a line."""
    return by.partition(" <")[0]


def chance(value: float | None) -> str:
    """A probability, which observations never make certain."""
    if value is None:
        return ""
    text = f"{100 * value:.0f}"
    return f"{text} %" if text not in _CERTAIN else ">99 %" if value > 0.5 else "<1 %"


def rate_words(rate: Rate | None) -> str:
    """``67 % (30 to 90), n=6``."""
    if rate is None or rate.rate is None:
        return "never observed"
    from clia.behaviours.suggesting import percentage

    return f"{percentage(rate.rate)} % ({percentage(rate.low)} to {percentage(rate.high)}), n={rate.n}"


def rate_by(rates: Sequence[Rate], measure: str) -> Rate | None:
    return next((each for each in rates if each.measure == measure), None)


def some_ids(cids: Sequence[str], most: int = 3) -> str:
    """The first of some ids, and how many more there are."""
    rest = len(cids) - most
    return ", ".join(short(each) for each in cids[:most]) + (f" and {rest} more" if rest > 0 else "")


def counts_words(counts: Mapping[str, int]) -> str:
    """``4 finished, 2 failed``, the most frequent first."""
    return ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items(), key=lambda each: (-each[1], each[0])))


@contextmanager
def reading(args: argparse.Namespace) -> Iterator[Callable[[int, int], None] | None]:
    """A bar for a person at a terminal while the record is read."""
    with progress("Reading the record", wanted=not args.json) as watch:
        yield None if watch is None else lambda done, total: watch(done, total, "")


def note_gaps(gaps: int) -> None:
    if gaps:
        write(GAPS, sys.stderr)

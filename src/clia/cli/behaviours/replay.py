"""``clia behaviour replay``: a past session under another version of its flow. Nothing is written.

Invariant: what comes from a flow or from an answer stands in a cell or indented, harmless: it cannot pass for a line of ours.
"""

from __future__ import annotations

from clia.cli.federation.tables import show_rows
from clia.cli.output import console, emit_json, one_line, write
from clia.cli.sessions.common import rows_of, show_block
from clia.cli.sessions.requests import json_text
from clia.cli.space.common import add_space, short, space_of
from clia.sessions.model import CANCELLED, FINISHED
from clia.space.model import as_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence
    from typing import Any

    from clia.behaviours.model import Replayed, ReplayStep

_HEADINGS = ("#", "asks for", "with", "recorded", "answer")
LOST = "the store has lost this session; as git has it, up to its last commit"


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("--session", required=True, metavar="AGENT[/ID]", help="whose session (default: the agent's last one)")
    parser.add_argument(
        "--with",
        dest="with_",
        required=True,
        metavar="CID|NAME",
        help="the version to try: its id, the start of it, or a name: its current version",
    )
    add_space(parser)


def run(args: argparse.Namespace) -> int:
    agent, _, session = args.session.partition("/")
    with space_of(args) as space:
        found = space.replay_behaviour(agent, args.with_, session or None)
    if args.json:
        emit_json(as_json(found))
    else:
        _show(found)
    return 0


def _show(found: Replayed) -> None:
    from rich.text import Text  # only people see it

    line = Text.assemble((one_line(found.agent), "bold"), f"  session {one_line(found.session)}, which ran ")
    line.append(short(found.flow), style="yellow").append(", with ").append(short(found.with_), style="yellow")
    line.append("; nothing is written", style="dim")
    console().print(line, soft_wrap=True)
    if found.steps:
        console().print()
        rows = [_row(number, each, found) for number, each in enumerate(found.steps, 1)]
        show_rows(_HEADINGS, rows, cut=("asks for", "with", "answer"), right=("#",))
    if found.printed:
        write("\nit printed:\n")
        show_block(found.printed, "dim")
    console().print()
    console().print(rows_of(_outcome(found), indent=0))


def _row(number: int, step: ReplayStep, found: Replayed) -> tuple[object, ...]:
    asked = f"{step.kind} {step.tag}" if step.tag else step.kind
    place = f"as {step.recorded}" if step.recorded else f"as {number}" if _waits_too(number, step, found) else "no"
    departs = ", departs here" if number == found.departs_at else ""
    answer = "" if not step.answered else f"error: {step.error}" if step.error is not None else json_text(step.value)
    return number, asked, json_text(step.payload), place + departs, answer


def _waits_too(number: int, step: ReplayStep, found: Replayed) -> bool:
    """Whether the session made this request too, and nobody has answered it."""
    was = found.recorded[number - 1] if number <= len(found.recorded) else None
    return was is not None and not was.answered and was[:3] == step[:3]


def _outcome(found: Replayed) -> list[tuple[str, object]]:
    """Where it departs, and how it ends against how it ended."""
    said: list[tuple[str, object]] = [("note", LOST if found.in_part else ""), ("departs", _departure(found)), _recorded_end(found)]
    if found.ended:
        said.append(("it ends", _end(found.result, found.failure)))
    else:
        said.append(("it stops", "it waits for an answer that was never given"))
    if found.unasked:
        said.append(("never asked", f"the recorded {_numbers(found.unasked)}"))
    return [*said, ("in all", "as it was" if found.same else "another course")]


def _recorded_end(found: Replayed) -> tuple[str, str]:
    if found.recorded_status == CANCELLED:
        return "it ended", "it was cancelled"
    # Where the store has lost the session, git has it up to its last commit: a request without an answer was still waiting.
    if found.recorded_status == FINISHED or all(each.answered for each in found.recorded):
        return "it ended", _end(found.recorded_result, found.recorded_failure)
    return "so far", "it waits for an answer"


def _departure(found: Replayed) -> str:
    at = found.departs_at
    if at is None:
        return "nowhere: the same requests in the same order"
    was, now = (_asked(steps, at) for steps in (found.recorded, found.steps))
    nothing = "it fails before it" if found.failure is not None else "it makes none"
    return f"at request {at}: {f'it asks for {now}' if now else nothing}; recorded was {was or 'none'}"


def _asked(steps: Sequence[ReplayStep], number: int) -> str | None:
    """A request in words; None where there was none."""
    if number > len(steps):
        return None
    each = steps[number - 1]
    return one_line(f"{each.kind} {json_text(each.payload)}")


def _end(result: Any, failure: Mapping[str, Any] | None) -> str:
    if failure is not None:
        return one_line(f"failed: {failure.get('message') or failure.get('reason')}")
    return one_line(f"finished with {json_text(result)}")


def _numbers(numbers: Sequence[int]) -> str:
    return f"request{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"

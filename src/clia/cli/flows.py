"""``clia flow``: the programs that sessions run."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import NamedTuple

from clia.cli.command import WHY, Answer, arg, command, flag
from clia.cli.inputs import invalid_option, message_text, read_source, require_person
from clia.cli.output import console, counted, one_line, plain, write
from clia.cli.rendering import facts_table, line_of, moment, short, show_line, show_source, show_table
from clia.engine.records import Problem
from clia.errors import InvalidFlow, InvalidInput, NotFound
from clia.values.records import EMBED, json_form

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.text import Text

    from clia.facade.space import Space
    from clia.sessions.model import Flow

ERROR, WARNING = "error", "warning"
_SEVERITY_STYLES = {ERROR: "bold red", WARNING: "yellow"}
_TAB = "    "


@json_form(flow=EMBED + "source")
class FlowSummary(NamedTuple):
    flow: Flow


@json_form(flow=EMBED)
class DefinedFlow(NamedTuple):
    flow: FlowSummary
    changed: bool  # false: this version was already current, and nothing was written


@json_form(flow=EMBED)
class ShownFlow(NamedTuple):
    flow: FlowSummary
    source: str  # source of the version


@command("flow define")
def flow_define(
    space: Space,
    json_output: bool,
    name: str = arg("NAME", "flow name"),
    file: str = arg("FILE", "source: Python with a main(input) ('-': standard input)"),
    message: str = WHY,
) -> Answer[DefinedFlow]:
    """Define a flow, or a new version of it."""
    require_person(f"propose it instead: clia behaviour propose {name} --from FILE --agent AGENT")
    if file == message == "-":
        raise invalid_option("only one of FILE and --message can be standard input")
    source = read_source(file, "source")
    previous = None
    with suppress(NotFound, InvalidInput):  # define refuses an invalid name
        previous = space.sessions.flow(name).cid
    with explain_problems(source, file, hidden=json_output):
        flow = space.sessions.define(name, source, why=message_text(message))
    changed = flow.cid != previous

    version = f"version {len(flow.versions)}" if changed else "unchanged; nothing was written"
    line = (one_line(flow.name), "bold"), " ", (short(flow.cid), "yellow"), f"  {version}"
    return Answer(DefinedFlow(FlowSummary(flow), changed), lambda: show_line(*line))


@command("flow list")
def flow_list(space: Space) -> Answer[list[FlowSummary]]:
    """List the flows of this space."""
    flows = space.sessions.flows()
    if not flows:
        return Answer([], "no flows yet; define one with: clia flow define NAME FILE")
    rows = [(flow.name, short(flow.cid), len(flow.versions), flow.why.split("\n")[0], flow.by, moment(flow.at)) for flow in flows]
    headings = ("flow", "id", "versions", "why", "by", "when (UTC)")
    return Answer([FlowSummary(flow) for flow in flows], lambda: show_table(headings, rows))


@command("flow show")
def flow_show(
    space: Space,
    name: str = arg("NAME|CID", "flow name, or the id of one version"),
    source: bool = flag("print only the source, unchanged"),
) -> Answer[ShownFlow]:
    """Show a flow, its versions and its source."""
    flow = space.sessions.flow(name)

    def show() -> None:
        if source:
            write(plain(flow.source) if console().is_terminal else flow.source)
        else:
            _show_flow(flow)

    return Answer(ShownFlow(FlowSummary(flow), flow.source), show)


def _show_flow(flow: Flow) -> None:
    out = console()
    show_line((one_line(flow.name), "bold"), "  ", (flow.cid, "yellow"))
    facts: list[tuple[str, object]] = [("why", flow.why), ("by", flow.by), ("when", moment(flow.at) if flow.at else "")]
    facts += [("versions", "\n".join(flow.versions))] if len(flow.versions) > 1 else []
    out.print(facts_table(facts))
    out.print()
    show_source(flow.source)


class CheckedFlow(NamedTuple):
    file: str  # file that was checked
    works: bool  # false, and exit code 1: there is an error
    problems: list[Problem]  # by line


@command("flow check")
def flow_check(
    file: str = arg("FILE", "source of a flow ('-': standard input)"), no_types: bool = flag("do not check types")
) -> Answer[CheckedFlow]:
    """Check a flow for errors.

    Exit code 1 if there is an error.
    """
    source = read_source(file, "source")
    from clia.sessions.flows import check_flow  # loads the engine: 0.1 s

    problems = check_flow(source, types=not no_types)
    works = not any(problem.severity == ERROR for problem in problems)

    def show() -> None:
        show_problems(problems, source, file)
        write(f"{one_line(file)}: {problem_count(problems)}\n")

    return Answer(CheckedFlow(file, works, problems), show, exit_code=0 if works else 1)


@contextmanager
def explain_problems(source: str, file: str, *, hidden: bool) -> Iterator[None]:
    """Show the problems of a flow that is refused, at their lines of the source."""
    try:
        yield
    except InvalidFlow as err:
        if not hidden:
            show_problems([Problem(**problem) for problem in err.fields.get("problems", ())], source, file, stderr=True)
        raise


def show_problems(problems: Sequence[Problem], source: str, name: str, *, stderr: bool = False) -> None:
    lines = source.split("\n")
    for problem in problems:
        place = f"{one_line(name)}:{problem.line}:{problem.column}: "
        severity = (problem.severity, _SEVERITY_STYLES.get(problem.severity, ""))
        message = f": {one_line(problem.message)}", (f"  [{problem.code}]", "dim")
        show_line((place, "bold"), severity, *message, stderr=stderr)
        if 1 <= problem.line <= len(lines):
            for line in excerpt(lines[problem.line - 1].rstrip("\r"), problem.line, problem.column):
                show_line(line, stderr=stderr)


def excerpt(line: str, number: int, column: int) -> list[Text]:
    """A line of the source, and a caret below the character in ``column``, counted from 1, whatever the width of characters."""
    from rich.cells import cell_len

    gutter = f"{number:>5} │ "
    before, after = line[: max(column - 1, 0)], line[max(column - 1, 0) :]
    start = one_line(before.replace("\t", _TAB))
    return [
        line_of((gutter, "dim"), start, one_line(after.replace("\t", _TAB))),
        line_of((" " * (len(gutter) - 2) + "│ ", "dim"), " " * cell_len(start), ("^", "bold red")),
    ]


def problem_count(problems: Sequence[Problem]) -> str:
    """``1 error, 2 warnings``."""
    counts = [(sum(problem.severity == severity for problem in problems), severity) for severity in (ERROR, WARNING)]
    return ", ".join(counted(*count) for count in counts if count[0]) or "nothing found"

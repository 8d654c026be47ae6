"""What the commands of sessions share: reading values, and showing sessions and requests to people.

Invariant: what comes from a flow or from an answer stands indented or in a cell, harmless, so that it cannot pass for a line
of ours.
"""

from __future__ import annotations

from datetime import UTC, datetime

from clia.cli.output import console, counted, one_line, plain
from clia.cli.sessions.requests import (
    age,
    as_words,
    choice_words,
    decide_command,
    json_text,
    labels_of,
)
from clia.cli.space.common import read_bytes, short
from clia.errors import InvalidInput
from clia.sessions.model import CANCELLED, DIVERGED, FAILED, FINISHED, RUNNING, SUSPENDED, context_of, is_for_people, question_of
from clia.sessions.records import ASK

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence
    from typing import Any

    from rich.console import RenderableType
    from rich.text import Text

    from clia.sessions.answers import Rule
    from clia.sessions.model import Request, Session
    from clia.store.interface import Waiting

STYLES = {
    RUNNING: "cyan",
    SUSPENDED: "yellow",
    FINISHED: "green",
    FAILED: "red",
    DIVERGED: "magenta",
    CANCELLED: "bright_black",
}
_CUT_LINES, _CUT_CHARACTERS = 12, 1200


def add_value(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("value", metavar="VALUE", nargs="?", help=text)
    parser.add_argument("--text", action="store_true", help="VALUE is text, also where it looks like JSON")
    parser.add_argument("--request", metavar="ID", help="which request; may be left out while only one waits")


def add_why(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-m", "--message", default="", metavar="WHY", help="why ('-': standard input)")


def given_text(word: str, field: str) -> str:
    """A word of the command line, or standard input for ``-``, without the line end that a shell puts behind it."""
    return source_text("-", field).removesuffix("\n").removesuffix("\r") if word == "-" else word


def source_text(path: str, field: str) -> str:
    """The text of a file, or of standard input for ``-``."""
    try:
        return read_bytes(path).decode("utf-8-sig")  # some editors mark the beginning
    except UnicodeDecodeError:
        raise InvalidInput(f"the {field} is not UTF-8", code="invalid-text", fields={"field": field, "path": path}) from None


def now() -> datetime:
    return datetime.now(UTC)


def when(timestamp: str | None) -> str:
    """A recorded time as people read it, in UTC."""
    return "" if timestamp is None else timestamp[:16].replace("T", " ")


def status_text(status: str) -> Text:
    from rich.text import Text

    return Text(one_line(status), style=STYLES.get(status, ""))


def rows_of(rows: Iterable[tuple[str, object]], indent: int = 2) -> RenderableType:
    """Names and values; what is not there is left out. A text of several lines keeps them, below each other."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        if isinstance(value, Text):
            table.add_row(Text(" " * indent + name, style="dim"), value)
        elif value not in (None, ""):
            table.add_row(Text(" " * indent + one_line(name), style="dim"), Text(plain(value)))
    return table


def show_block(text: str, style: str = "", indent: int = 4) -> None:
    """Text of several lines, indented."""
    from rich.padding import Padding
    from rich.text import Text

    if text.strip():
        console().print(Padding(Text(plain(text).strip("\n"), style=style), (0, 0, 0, indent), expand=False))


def show_request(
    request: Request, rule: Rule, *, whole: bool = False, path: str | None = ".", tried: Waiting | None = None
) -> None:
    """A request as a person wants to meet it: who asks, the question, what else it says.

    ``whole``: however long it is. ``path``: where the space is, to say how to answer; None: the person is asked just now.
    ``tried``: what workers have made of it so far.
    """
    from rich.text import Text  # only people see it

    who = Text.assemble((one_line(request.agent), "bold"), " asks" if is_for_people(request) else " waits for ")
    if not is_for_people(request):
        who.append(one_line(request.kind), style="cyan")
    line = f", line {request.line}" if request.line else ""
    flow = "" if request.session.startswith(ASK) else f" · flow {one_line(request.flow)}{line}"
    who.append(f"  {request.id} · {age(request.since, now())}{flow}", style="dim")
    console().print(who, soft_wrap=True)
    question = question_of(request)
    if question != request.kind:  # else there is none, and the line above says it all
        show_block(question, "bold")
    details = _details(request, rule, whole=whole, path=path)
    console().print(rows_of(details if tried is None else [*details, ("tried", _tries(tried))]))


def _tries(tried: Waiting) -> str:
    """How far workers have come with a request."""
    said = [counted(tried.attempts, "attempt", "attempts")]
    said += [f"now by {tried.worker}"] if tried.worker is not None else []
    said += [f"again at {_moment(tried.next_at)}"] if tried.worker is None and tried.next_at else []
    said += [f"last: {tried.error}"] if tried.error else []
    return one_line("; ".join(said))


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _details(request: Request, rule: Rule, *, whole: bool, path: str | None) -> list[tuple[str, object]]:
    limit = (None, None) if whole else (_CUT_LINES, _CUT_CHARACTERS)
    found: list[tuple[str, object]] = []
    was_cut = False
    for key, value in context_of(request):
        text = as_words(value)
        shown = cut(text, *limit)
        was_cut = was_cut or shown != text
        found.append((key, shown))
    if rule.choices:
        found.append(("choices", labelled(rule.choices)))
    elif rule.schema is not None:
        found.append(("must be", cut(json_text(rule.schema), *limit)))
    if was_cut:
        found.append(("in full", f"clia session show {request.agent} --session {request.session}"))
    if path is not None and is_for_people(request):
        found.append(("answer", decide_command(request, path=path)))
        example = choice_words(rule.choices)[0] if rule.choices else "VALUE"
        found.append(("", f"or at once: {one_line(decide_command(request, example, path=path))}"))
    return found


def labelled(choices: Sequence[Any]) -> str:
    labels = labels_of(choices) or [""] * len(choices)
    pairs = zip(labels, choice_words(choices), strict=True)
    return "   ".join(f"{label} {one_line(words)}".strip() for label, words in pairs)


def cut(text: str, lines: int | None, characters: int | None) -> str:
    """The beginning of a text that is too long to be read in a list."""
    if lines is None or characters is None:
        return text
    kept = "\n".join(text.split("\n")[:lines])[:characters]
    return text if kept == text else f"{kept.rstrip()} … ({len(text) - len(kept):,} more characters)"


def show_session(session: Session, *, whole: bool = False) -> None:
    """A session in a few lines; ``whole``: with its input and its answers too."""
    from rich.text import Text

    head = Text.assemble((one_line(session.agent), "bold"), f"  session {one_line(session.id)}  ", status_text(session.status))
    console().print(head, soft_wrap=True)
    facts: list[tuple[str, object]] = [("flow", f"{one_line(session.flow)} ({short(session.flow_cid)})")]
    facts += [("started", when(session.started_at)), ("ended", when(session.ended_at)), ("forked", _origin(session))]
    facts += _answers(session) if whole else []
    facts += [("result", as_words(session.result))] if session.result is not None else []
    facts += _failure(session)
    if not whole:
        facts += [("waits for", f"{each.kind} ({each.id}): {one_line(question_of(each))}") for each in session.pending]
    console().print(rows_of(facts))
    if whole and session.failure and session.failure.get("trace"):
        show_block(str(session.failure["trace"]), "dim")


def _origin(session: Session) -> str:
    made = session.forked
    return "" if made is None else f"from {made['agent']}, session {made['session']}, at {short(made['commit'])}"


def _answers(session: Session) -> list[tuple[str, object]]:
    decided = dict(session.decisions)
    found: list[tuple[str, object]] = [("input", None if session.input is None else json_text(session.input))]
    for index, value in enumerate(session.resumes):
        by = f"  decision {short(decided[index])}" if index in decided else ""
        found.append((f"answer {index + 1}", f"{one_line(json_text(value))}{by}"))
    return found


def _failure(session: Session) -> list[tuple[str, object]]:
    if session.failure is None:
        return []
    line = f" (line {session.failure['line']})" if session.failure.get("line") else ""
    return [("reason", f"{session.failure.get('message') or session.failure.get('reason')}{line}")]

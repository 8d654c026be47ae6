"""``clia status``: what is going on in this space now."""

from __future__ import annotations

import json
import os
import sys
import textwrap
import time
from contextlib import suppress
from typing import NamedTuple

from clia.cli.command import Answer, command, flag, opt
from clia.cli.inputs import positive
from clia.cli.output import console, counted, emit_json, one_line, write
from clia.cli.rendering import show_line
from clia.cli.sessions import decide_command
from clia.errors import CliaError
from clia.sessions.model import is_for_people, question_of
from clia.values.clock import timestamp_at

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated

    from clia.facade.space import Space

PROGRAM, TOOL, FLOW = "program", "tool", "flow"
_LOOKED = "looked.json"
_SHOWN = 10


class WorkingAgent(NamedTuple):
    """An agent that does something now."""

    agent: str  # its name
    kind: str  # program (`clia run`), tool (a session of a coding tool) or flow (a session that waits for a worker)
    doing: str  # the prompt, the request, or how many trace entries the program has printed


class WaitingQuestion(NamedTuple):
    """A question that waits for a person."""

    agent: str  # the agent that asks
    request: str  # request id
    question: str  # the question
    answer: str  # the command that answers it


class FinishedWork(NamedTuple):
    """An agent that has committed since the last look."""

    agent: str  # its name
    commit: str  # its newest commit
    subject: str  # first line of the message
    at: str  # time of the commit
    landed: str | None  # the branch that has all of its work


class SpaceStatus(NamedTuple):
    """What is going on in a space."""

    space: str  # id of the space
    agents: int  # active agents
    looked: str | None  # time of the last `clia status` in this clone
    working: list[WorkingAgent]  # agents that do something now
    waiting: list[WaitingQuestion]  # questions that wait for a person
    finished: list[FinishedWork]  # agents that have committed since the last look, newest first
    problems: list[str]  # what is unhealthy, each with the command that says more


@command("status")
def status(
    space: Space,
    path: str,
    json_output: bool,
    watch: bool = flag("show it again when something changes, until Ctrl-C", "--watch -w"),
    interval: int = opt("SECONDS", "with --watch: time between looks (default: 2)", type=positive, default=2),
) -> Answer[SpaceStatus] | Annotated[int, SpaceStatus]:
    """Show agents at work, what waits for you, what finished since you last looked, and problems."""
    looked = _last_look(space)
    current = status_of(space, path, looked)
    if not watch:
        _keep_look(space)
        return Answer(current, lambda: _show(current))
    while True:
        _show_again(current, json_output=json_output)
        while (new := status_of(space, path, looked)) == current:
            time.sleep(interval)
        current = new
        _keep_look(space)


def status_of(space: Space, path: str, looked: float | None) -> SpaceStatus:
    """The status of a space; ``looked``: work that finished before then is left out."""
    states = space.states()
    waiting = [
        WaitingQuestion(request.agent, request.id, question_of(request), decide_command(request, path=path))
        for request in space.sessions.pending()
        if is_for_people(request)
    ]
    finished = [
        FinishedWork(state.agent, state.head, state.subject, timestamp_at(state.at), state.landed)
        for state in sorted(states, key=lambda state: -state.at)
        if state.kind not in (None, "spawn") and (looked is None or state.at >= looked)
    ]
    problems = _problems(space, [f"{state.agent}: {state.problem}" for state in states if state.problem is not None])
    shown = None if looked is None else timestamp_at(int(looked))
    return SpaceStatus(
        space.id, len(states), shown, _working(space, [state.agent for state in states]), waiting, finished, problems
    )


def _working(space: Space, agents: list[str]) -> list[WorkingAgent]:
    pending = {state.agent: state.pending for state in space.states()}
    directories = space.local.run_directories
    programs = [name for name in agents if directories.is_running(name)]
    work = [WorkingAgent(name, PROGRAM, f"{counted(pending[name], 'trace entry', 'trace entries')} so far") for name in programs]
    open_turns = [row for row in space.captures.sessions() if row.open and row.turn == "open" and row.agent not in programs]
    work += [WorkingAgent(row.agent, TOOL, f"{row.tool}: {row.prompt}".rstrip(": ")) for row in open_turns]
    requests = [request for request in space.sessions.pending() if not is_for_people(request)]
    return work + [WorkingAgent(request.agent, FLOW, f"waits for {request.kind} ({request.id})") for request in requests]


def _problems(space: Space, problems: list[str]) -> list[str]:
    store = space.local.store_problem()
    if store is not None:
        problems.append(f"{store.message} (see: clia doctor)")
    signing = space.trust.signing()
    if signing.problem is not None:
        problems.append(f"nothing is recorded: {signing.problem} (see: clia doctor)")
    from clia.capture.ingest import has_events

    if has_events(space, os.environ):
        problems.append("events of tools wait to be recorded (run: clia ingest)")
    if space.has_hub:
        with suppress(CliaError):
            hub = space.hub.status()
            if hub.away_since:
                problems.append("the hub is unreachable (see: clia hub status)")
            if hub.forks:
                problems.append(f"{counted(len(hub.forks), 'agent')} forked on two machines (see: clia hub status)")
    return problems


def _place(space: Space) -> str:
    return os.path.join(space.home, _LOOKED)


def _last_look(space: Space) -> float | None:
    with suppress(OSError, ValueError, KeyError, TypeError), open(_place(space), encoding="utf-8") as file:
        return float(json.load(file)["at"])
    return None


def _keep_look(space: Space) -> None:
    draft = f"{_place(space)}.{os.getpid()}"
    with suppress(OSError):  # a read-only repository
        with open(draft, "w", encoding="utf-8") as file:
            json.dump({"at": int(space.local.clock().timestamp())}, file)
        os.replace(draft, _place(space))


def _show_again(current: SpaceStatus, *, json_output: bool) -> None:
    if json_output:
        emit_json(current)
        return
    if sys.stdout.isatty():
        console().clear()
    _show(current)


def _show(current: SpaceStatus) -> None:
    total = counted(current.agents, "agent")
    show_line((total, "bold"), ("" if current.agents else "; create one with: clia spawn NAME --title TITLE", "dim"))
    _section("at work", [(work.agent, f"{work.kind}: {work.doing}") for work in current.working])
    _section("waits for you", [(question.agent, f"{question.question}\n{question.answer}") for question in current.waiting])
    since = "" if current.looked is None else f" since {current.looked[:16].replace('T', ' ')}"
    done = [(work.agent, work.subject + (f"  (on {work.landed})" if work.landed else "")) for work in current.finished]
    _section(f"finished{since}", done)
    _section("problems", [("", problem) for problem in current.problems])
    if not any((current.working, current.waiting, current.finished, current.problems)):
        write("nothing is running, and nothing waits for you\n")


def _section(title: str, rows: list[tuple[str, str]]) -> None:
    if not rows:
        return
    show_line((f"\n{title}", "bold"))
    name_width = max(len(name) for name, _ in rows[:_SHOWN])
    width = max(console().width - name_width - 4, 20)
    for name, text in rows[:_SHOWN]:
        lines = [part for line in text.split("\n") for part in textwrap.wrap(one_line(line), width, break_on_hyphens=False)]
        for number, line in enumerate(lines or [""]):
            show_line((f"  {name if number == 0 else '':<{name_width}}  ", "cyan"), line)
    if len(rows) > _SHOWN:
        write(f"  and {len(rows) - _SHOWN} more\n")

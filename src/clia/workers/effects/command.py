"""``command``: a program that the operator listed, such as a coding agent, run in a worktree of the asking agent.

``{"program": NAME, "args": […], "stdin": …, "message": …, "kind": …}``. What it prints becomes the agent's trace as it
comes, what it changed becomes a commit. The value is ``{"exit_code", "output", "commit"}``.

Invariant: nothing runs that the operator has not listed, nor sees more of the environment than is listed. Nothing of an
attempt that did not end gets into a commit. What an earlier attempt committed for the request is the answer: the program
is not run again for it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import NamedTuple

from clia.errors import BackendError, Conflict, NotAllowed
from clia.programs.output import TracedOutput
from clia.programs.runner import CANCELLED, TIMED_OUT, ProgramCommand
from clia.programs.worktree import SEEN, ProgramWorktree
from clia.values.commit_messages import check_text
from clia.workers.effects.context import Payload

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from clia.facade.config import Config, ProgramRule
    from clia.space.model import AgentCommit
    from clia.workers.effects.context import Context


class Job(NamedTuple):
    """What is to be run, and how its changes are called."""

    name: str
    rule: ProgramRule
    words: Sequence[str]
    stdin: bytes
    message: str
    kind: str


def seconds(config: Config, payload: Any) -> float | None:
    """The program's own time counts from when it starts; waiting for the agent's worktree is not held against it."""
    del config, payload
    return None


def handle(context: Context, payload: Any) -> dict[str, Any]:
    job = _job(context, payload)
    place = os.path.join(context.tools.workplace, f"{context.agent}.lock")
    with context.tools.programs.alone(place, context.cancelled.is_set) as held:
        if not held:
            raise _cancelled(job)
        earlier = context.marked()
        return _recorded(context, earlier) if earlier is not None else _Run(context, job, place).carried_out()


def _job(context: Context, payload: Any) -> Job:
    said = Payload("command", payload, "program", "args", "stdin", "message", "kind")
    name = said.text("program")
    rule = context.config.programs.get(name)
    if rule is None:
        raise NotAllowed(
            f"command: the program {name!r} is not among those that the operator lists",
            code="program-not-listed",
            hints=[f'list it in the configuration: [effects.command.programs.{name}] with run = ["…"]'],
            fields={"program": name, "listed": sorted(context.config.programs)},
        )
    words = [*rule.run, *said.texts("args")]
    message, kind = said.text("message", "") or f"{name}: request {context.request.id}", said.text("kind", rule.kind)
    # What could not be committed is refused before an hour's work is done for it.
    check_text(message, "message")
    context.space.types.check_kind(kind)  # before the command runs
    return Job(name, rule, words, said.text("stdin", "").encode("utf-8"), message, kind)


def _recorded(context: Context, commit: AgentCommit) -> dict[str, Any]:
    """The outcome of an attempt whose worker died between its commit and its answer."""
    trace = context.space.trace_for(commit.cid)
    said = [each for each in (trace.entries if trace else ()) if (each.get("data") or {}).get("request") == context.request.id]
    output = TracedOutput.tail_of("".join(str(each["text"]) for each in said if each.get("kind") == "console"))
    return {"exit_code": commit.meta.get("exit_code"), "output": output, "commit": commit.cid}


class _Run:
    """One run of a program, in a place that is held."""

    def __init__(self, context: Context, job: Job, place: str) -> None:
        self._context = context
        self._job = job
        self._place = place
        self._directory = os.path.join(context.tools.workplace, context.agent)
        tools, cancelled = context.tools, context.cancelled.is_set
        self._work = ProgramWorktree(
            context.space, context.agent, self._directory, place, tools.programs, tools.environment, cancelled
        )

    def carried_out(self) -> dict[str, Any]:
        context, job = self._context, self._job
        base = self._fresh_worktree()
        output = TracedOutput(context.trace, context.tools.cleaning.chunk)
        context.progress(job.name)
        order = ProgramCommand(job.words, self._directory, self._environment(), job.stdin, job.rule.timeout_seconds)
        ended = context.tools.programs.run(order, self._place, output.add, context.cancelled.is_set)
        output.end()
        if ended.how == CANCELLED:
            raise _cancelled(job)
        if ended.how == TIMED_OUT:
            message = f"command: {job.name} was ended after {job.rule.timeout_seconds:g} s"
            raise BackendError(message, code="program-timed-out", fields={"program": job.name})
        commit = self._commit(base, ended.code) if self._work.has_changed(base) else None
        return {"exit_code": ended.code, "output": output.tail(), "commit": commit}

    def _environment(self) -> dict[str, str]:
        given = self._context.tools.environment
        return {name: given[name] for name in (*SEEN, *self._job.rule.environment) if name in given}

    def _fresh_worktree(self) -> str:
        """The agent's files as its head has them, without what an attempt that did not end left there; the head."""
        space, agent = self._context.space, self._context.agent
        found = space.checkout_at(self._directory)
        ours = found is not None and found.agent == agent and found.directory == self._directory
        # A program may have made a branch of its own there, and left it checked out.
        steps = (("checkout", "--quiet", "--force", "--detach"), ("reset", "--quiet", "--hard"), ("clean", "-ffdq"))
        if ours and all(self._work.git(*words) == 0 for words in steps):
            with suppress(Conflict):  # files that git ignores, left in the way of new ones
                return space.checkout(agent, self._directory)
        self._context.tools.programs.clear(self._directory)
        return space.checkout(agent, self._directory)

    def _commit(self, base: str, code: int) -> str:
        job = self._job
        return self._work.commit(base, job.kind, job.message, {**self._context.mark(), "program": job.name, "exit_code": code})


def _cancelled(job: Job) -> Conflict:
    return Conflict(f"command: {job.name} was cancelled", code="cancelled", fields={"program": job.name})

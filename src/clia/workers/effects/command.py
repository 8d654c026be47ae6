"""``command``: a program that the operator listed, such as a coding agent, run in a worktree of the agent.

``{"program": NAME, "args": […], "stdin": …, "message": …, "kind": …}``. Its output becomes the agent's trace, its changes a
commit. The value is ``{"exit_code", "output", "commit"}``.

Invariant: only listed programs run, with only the listed environment. An attempt that did not end leaves nothing in a commit. If
an earlier attempt committed for the request, its commit is the answer and the program does not run again.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from clia.errors import BackendError, Conflict, NotAllowed
from clia.programs.preparation import WorktreePreparation, check_setup
from clia.programs.runner import CANCELLED, TIMED_OUT, ProgramCommand
from clia.programs.worktree import SEEN, ProgramWorktree, TracedOutput
from clia.values.commit_messages import check_text
from clia.workers.effects.context import Payload
from clia.workers.effects.program_arguments import check_arguments

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from clia.facade.config import Config, ProgramRule
    from clia.space.model import AgentCommit
    from clia.workers.effects.context import Context


class CommandJob(NamedTuple):
    """A program to run, and the kind and message of its commit."""

    name: str
    rule: ProgramRule
    words: Sequence[str]
    stdin: bytes
    message: str
    kind: str


def seconds(config: Config, payload: Any) -> float | None:
    """No limit here: the program's own limit starts with it, not while waiting for the worktree."""
    del config, payload
    return None


def handle(context: Context, payload: Any) -> dict[str, Any]:
    job = _job(context, payload)
    lock_path = context.space.local.run_directories.lock(context.agent, worker=True)
    with context.tools.programs.alone(lock_path, context.cancelled.is_set) as locked:
        if not locked:
            raise _cancelled(job)
        earlier = context.marked()
        return _earlier_outcome(context, earlier) if earlier is not None else _CommandRun(context, job, lock_path).run()


def _job(context: Context, payload: Any) -> CommandJob:
    request = Payload("command", payload, "program", "args", "stdin", "message", "kind")
    name = request.text("program")
    rule = context.config.programs.get(name)
    if rule is None:
        message, fields = (
            f"command: the program {name!r} is not in the operator's list",
            {"listed": sorted(context.config.programs)},
        )
        hints = [f'add it to the configuration: [effects.command.programs.{name}] with run = ["…"]']
        raise NotAllowed(message, code="program-not-listed", hints=hints, fields={"program": name, **fields})
    arguments = request.texts("args")
    check_arguments(name, rule, arguments)
    words = [*rule.run, *arguments]
    message, kind = request.text("message", "") or f"{name}: request {context.request.id}", request.text("kind", rule.kind)
    # Validate the commit before running the program.
    check_text(message, "message")
    context.space.types.check_kind(kind)  # before the command runs
    return CommandJob(name, rule, words, request.text("stdin", "").encode("utf-8"), message, kind)


def _earlier_outcome(context: Context, commit: AgentCommit) -> dict[str, Any]:
    """Return the outcome of an attempt that committed but did not answer."""
    trace = context.space.traces.of(commit.cid)
    entries = [
        entry for entry in (trace.entries if trace else ()) if (entry.get("data") or {}).get("request") == context.request.id
    ]
    output = TracedOutput.tail_of("".join(str(entry["text"]) for entry in entries if entry.get("kind") == "console"))
    return {"exit_code": commit.meta.get("exit_code"), "output": output, "commit": commit.cid}


class _CommandRun:
    """One run of a program, under its lock."""

    def __init__(self, context: Context, job: CommandJob, lock_path: str) -> None:
        self._context = context
        self._job = job
        self._lock_path = lock_path
        self._directory = context.space.local.run_directories.directory(context.agent, worker=True)
        tools, cancelled = context.tools, context.cancelled.is_set
        self._work = ProgramWorktree(
            context.space, context.agent, self._directory, lock_path, tools.programs, tools.environment, cancelled
        )

    def run(self) -> dict[str, Any]:
        context, job = self._context, self._job
        rules = context.space.local.config.run
        check_setup(context.space, rules.setup, lambda _: False)
        base = self._fresh_worktree()
        output = TracedOutput(context.trace, context.tools.cleaning.chunk)
        context.progress(job.name)
        variables = context.tools.environment
        environment = {name: variables[name] for name in (*SEEN, *job.rule.environment) if name in variables}
        WorktreePreparation(self._work, rules, environment, context.tell).run()
        order = ProgramCommand(job.words, self._directory, environment, job.stdin, job.rule.timeout_seconds)
        context.space.captures.guard(self._directory, running=True)
        result = context.tools.programs.run(order, self._lock_path, output.add, context.cancelled.is_set)
        output.end()
        if result.how == CANCELLED:
            raise _cancelled(job)
        if result.how == TIMED_OUT:
            message = f"command: {job.name} timed out after {job.rule.timeout_seconds:g} s"
            raise BackendError(message, code="program-timed-out", fields={"program": job.name})
        commit, damage = None, self._work.repair()
        if damage:
            context.trace(damage)
        if self._work.checkout() is not None and self._work.has_changed(base):
            meta = {**context.mark(), "program": job.name, "exit_code": result.code}
            commit = self._work.commit(base, job.kind, job.message, meta)
        context.space.captures.guard(self._directory, running=False)
        return {"exit_code": result.code, "output": output.tail(), "commit": commit}

    def _fresh_worktree(self) -> str:
        """Reset the worktree to the agent's head and return it; an unfinished attempt may have left files."""
        space, agent = self._context.space, self._context.agent
        checkout = space.checkout_at(self._directory)
        ours = checkout is not None and checkout.agent == agent and checkout.directory == self._directory
        # A program may have left its own branch checked out, or commits: they are kept, and not part of the next attempt.
        base = "HEAD" if checkout is None else checkout.base
        steps = (("checkout", "--quiet", "--force", "--detach", base), ("reset", "--quiet", "--hard"), ("clean", "-ffdq"))
        if ours and all(self._work.git(*words) == 0 for words in steps):
            with suppress(Conflict):  # ignored files block the checkout
                return space.checkout(agent, self._directory)
        self._context.tools.programs.clear(self._directory)
        return space.checkout(agent, self._directory)


def _cancelled(job: CommandJob) -> Conflict:
    return Conflict(f"command: {job.name} was cancelled", code="cancelled", fields={"program": job.name})

"""The gate of a server: install the hook, check a range, explain the policy."""

from __future__ import annotations

import os
import shlex
import sys
from typing import NamedTuple

from clia.cli.command import PATH, Answer, arg, command, opt
from clia.cli.inputs import require_person
from clia.cli.output import console, one_line, write
from clia.cli.rendering import show_lines
from clia.errors import AlreadyExists, FileError, InvalidInput, NotFound
from clia.gate.checks import PushChecks, RefUpdate, Refusal, requirements_of
from clia.gate.hook import text_of
from clia.gate.policy import BRANCHES, GatePolicy, Requirement, policy_in
from clia.gate.repository import ZERO, GateRepository

_MARK = "# Installed by clia gate install."


class InstalledGate(NamedTuple):
    hook: str  # the hook's file
    replaced: bool  # whether it replaces an earlier version of the gate
    protected: str | None  # branch that is protected by default: the one that HEAD names; null: HEAD names none
    exists: bool  # whether that branch exists


@command("gate install")
def gate_install(repository: str = arg("BARE", "bare repository of the server")) -> Answer[InstalledGate]:
    """Install the gate as the pre-receive hook of a repository.

    Another pre-receive hook is kept: call the gate from it instead.
    """
    require_person("ask a person to install the gate: clia ask AGENT QUESTION")
    gate = GateRepository(os.path.abspath(repository), os.environ)
    directory = gate.hooks_directory()
    if directory is None:
        raise NotFound(f"{repository} is not a git repository", code="no-such-repository", fields={"path": repository})
    path = os.path.join(directory, "pre-receive")
    line = f"exec {shlex.quote(sys.executable)} -P -m clia.gate.hook"
    try:
        os.makedirs(directory, exist_ok=True)
        before = None
        if os.path.lexists(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                before = file.read()
        if before is not None and _MARK not in before:
            hints = [f"call the gate from it: {line}"]
            raise AlreadyExists(f"{path} is another hook", hints=hints, fields={"path": path})
        temporary = f"{path}.clia-{os.getpid()}"
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\n{_MARK}\n{line}\n")
        os.chmod(temporary, 0o755)  # noqa: S103  # git runs it
        os.replace(temporary, path)
    except OSError as err:
        raise FileError(f"{path}: {err.strerror}", fields={"path": path, "reason": str(err.strerror)}) from None
    head = gate.head_branch()
    installed = InstalledGate(
        path, before is not None, head and head.removeprefix(BRANCHES), head is not None and gate.resolve(head) is not None
    )
    gate.close()
    return Answer(installed, lambda: _show_installed(installed))


def _show_installed(installed: InstalledGate) -> None:
    write(f"installed {one_line(installed.hook)}\n")
    if not installed.exists:
        name = installed.protected or "a branch"
        console(stderr=True).print(
            f"warning: HEAD of the repository names {name}, which does not exist yet; the gate protects the branch that HEAD names,"
            " and those of .clia/gate.toml",
            style="yellow",
            markup=False,
        )


class GateResult(NamedTuple):
    """The result of a check."""

    branch: str  # the branch that the commits are checked for
    base: str  # the commit before
    head: str  # the commit after
    refusals: tuple[Refusal, ...]  # why a push is refused; empty: it is accepted


ONTO = opt("BRANCH", "branch that the policy is read for (default: the one that HEAD names on the server: main)", default="main")


@command("gate check")
def gate_check(
    path: str = PATH,
    text: str = arg("RANGE", "the commits: BASE..HEAD"),
    onto: str = ONTO,
) -> Answer[GateResult]:
    """Check a range of commits as the gate does, for CI.

    The policy is the one at BASE. Exit code 1 if the gate would refuse the push.
    """
    base_text, dots, head_text = text.partition("..")
    if not dots:
        raise InvalidInput(f"{text!r} is not a range", code="invalid-range", hints=["give BASE..HEAD: origin/main..HEAD"])
    repository = GateRepository(os.path.abspath(path), os.environ)
    try:
        base, head = _commit(repository, base_text), _commit(repository, head_text.lstrip(".") or "HEAD")
        start = repository.merge_base(base, head) if dots and text.count("...") else base
        update = RefUpdate(start or ZERO, head, f"{BRANCHES}{onto.removeprefix(BRANCHES)}")
        refusals = tuple(PushChecks(repository, [update], head_branch=update.ref).refusals())
    finally:
        repository.close()
    result = GateResult(onto, update.old, head, refusals)

    def show() -> None:
        write(text_of(refusals) if refusals else f"{head[:12]} may be pushed to {one_line(onto)}\n")

    return Answer(result, show, 1 if refusals else 0)


class GateExplanation(NamedTuple):
    """What a branch needs."""

    branch: str  # the branch
    commit: str  # its commit, whose policy counts for the next push
    policy: GatePolicy  # the policy file, or the defaults
    requirements: tuple[Requirement, ...]  # what changes need, from the policy file and from rules of the root directives


@command("gate explain")
def gate_explain(path: str = PATH, onto: str = ONTO) -> Answer[GateExplanation]:
    """Show what a push to a branch needs, and where that is stated."""
    repository = GateRepository(os.path.abspath(path), os.environ)
    try:
        commit = _commit(repository, onto)
        tree = repository.commit(commit).tree
        policy = policy_in(repository, tree)
        requirements = tuple(requirements_of(repository, policy, tree, onto.removeprefix(BRANCHES)))
    finally:
        repository.close()

    def show() -> None:
        lines = [f"{onto} at {commit[:12]}: only moves forward, and loses no guardrail without a person's approval"]
        for requirement in requirements:
            need = " and ".join(requirement.need) if requirement.need else "never change"
            lines.append(f"{', '.join(requirement.paths)}: {need}  ({requirement.source})")
        lines.append(f"people who approve: {', '.join(policy.people) or 'everyone'}")
        show_lines(map(one_line, lines))

    return Answer(GateExplanation(onto, commit, policy, requirements), show)


def _commit(repository: GateRepository, text: str) -> str:
    commit = repository.resolve(text)
    if commit is None:
        raise NotFound(f"no commit {text!r}", code="no-such-commit", hints=["fetch it first"], fields={"text": text})
    return commit

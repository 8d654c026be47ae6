"""Findings as people, programs and forges want them: text, JSON, SARIF 2.1.0, GitHub workflow commands.

Invariant: every rendering shows the same findings in the same order, and text from documents can neither break out of a
line nor out of a field.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from clia import __version__
from clia.cli.output import console, emit_json, one_line, plain, write
from clia.identities.diagnostics import CODES, ERROR, INFO, WARNING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from clia.identities.diagnostics import Diagnostic
    from clia.identities.lint import LintProgress

FORMATS = ("text", "json", "sarif", "github")
_INDENT = " " * 11
_STYLES = {ERROR: "bold red", WARNING: "yellow", INFO: "cyan"}
_SARIF_LEVELS = {ERROR: "error", WARNING: "warning", INFO: "note"}
_GITHUB_COMMANDS = {ERROR: "error", WARNING: "warning", INFO: "notice"}


def show(findings: Sequence[Diagnostic], base: str) -> None:
    """For people: file by file, each finding with its place and what to do."""
    from rich.text import Text  # only people see it

    out = console()
    shown: str | None = None
    for each in findings:
        where = one_line(relative(each.path, base)) if each.path else ""
        if where != shown:
            out.print(Text(where, style="underline"), soft_wrap=True)
            shown = where
        severity = (each.severity.ljust(9), _STYLES[each.severity])
        place = (f"  {one_line(each.pointer)}" if each.pointer else "", "cyan")
        message = one_line(_told(each, base))
        out.print(Text.assemble("  ", severity, (each.code, "bold"), place), soft_wrap=True)
        out.print(Text.assemble(_INDENT, message, (f"\n{_INDENT}{each.hint}", "dim")), soft_wrap=True)


def count(findings: Sequence[Diagnostic]) -> str:
    """How many of each severity, in words."""
    counts = [(sum(each.severity == severity for each in findings), severity) for severity in (ERROR, WARNING, INFO)]
    said = [f"{number} {severity}{'s' if number != 1 and severity != INFO else ''}" for number, severity in counts if number]
    return ", ".join(said) or "nothing found"


def emit(findings: Sequence[Diagnostic], form: str, base: str) -> None:
    """For forges: ``sarif`` or ``github``; paths relative to ``base``."""
    from clia.identities.checks import lines_of

    lines = lines_of(findings)
    if form == "sarif":
        emit_json(sarif(findings, lines, base))
    else:
        write("".join(f"{github(each, lines.get(each), base)}\n" for each in findings))


def relative(path: str, base: str) -> str:
    """A path below the base, relative to it; any other as it is."""
    return path[len(base.rstrip("/")) + 1 :] if path.startswith(f"{base.rstrip('/')}/") else path


def sarif(findings: Sequence[Diagnostic], lines: Mapping[Diagnostic, int], base: str) -> dict[str, Any]:
    """One run of SARIF 2.1.0, with a rule for every code there is."""
    order = {name: index for index, name in enumerate(CODES)}
    rules = [
        {
            "id": code.name,
            "name": "".join(word.capitalize() for word in code.name.split("-")),
            "shortDescription": {"text": code.title},
            "help": {"text": code.hint},
            "defaultConfiguration": {"level": _SARIF_LEVELS[code.severity]},
        }
        for code in CODES.values()
    ]
    return {
        "$schema": "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "clia", "version": __version__, "rules": rules}},
                "originalUriBaseIds": {"ROOT": {"uri": f"{_file_uri(base.rstrip('/'))}/"}},
                "columnKind": "unicodeCodePoints",
                "results": [_result(each, order[each.code], lines.get(each, 1), base) for each in findings],
            }
        ],
    }


def _result(finding: Diagnostic, rule: int, line: int, base: str) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": _SARIF_LEVELS[finding.severity],
        "message": {"text": f"{plain(_told(finding, base))} ({finding.hint})"},
    }
    if finding.path is not None:
        where = relative(finding.path, base)
        artifact = {"uri": _file_uri(where)} if where.startswith("/") else {"uri": _escaped(where), "uriBaseId": "ROOT"}
        location: dict[str, Any] = {"physicalLocation": {"artifactLocation": artifact, "region": {"startLine": line}}}
        if finding.pointer:
            location["logicalLocations"] = [{"fullyQualifiedName": finding.pointer, "kind": "member"}]
        result["locations"] = [location]
    return result


def _file_uri(path: str) -> str:
    return f"file://{_escaped(path)}"


def _escaped(path: str) -> str:
    return quote(os.fsencode(path), safe="/@")


def github(finding: Diagnostic, line: int | None, base: str) -> str:
    """A workflow command: what it says can end neither the command nor a property of it."""
    properties = {"title": f"{finding.code}: {CODES[finding.code].title}"}
    if finding.path is not None:
        properties = {"file": relative(finding.path, base), **({"line": str(line)} if line else {}), **properties}
    listed = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    at = f"{finding.pointer}: " if finding.pointer else ""
    return f"::{_GITHUB_COMMANDS[finding.severity]} {listed}::{_data(f'{at}{_told(finding, base)} ({finding.hint})')}"


def _data(text: str) -> str:
    return plain(text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A"))


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _told(finding: Diagnostic, base: str) -> str:
    """The message, with paths as people say them: not the finding's own, which is shown beside it, the others from the base."""
    message = finding.message.removeprefix(f"{finding.path}: ") if finding.path else finding.message
    return message.replace(f"{base.rstrip('/')}/", "")


@contextmanager
def progress(label: str, *, wanted: bool) -> Iterator[LintProgress | None]:
    """A bar for a person at a terminal, on standard error; nothing for anybody else."""
    if not (wanted and sys.stderr.isatty()):
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    said = TextColumn("{task.description}"), TextColumn("{task.fields[agent]}")
    # One thing may take long: the clock shows that it goes on.
    columns = (said[0], BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), said[1])
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None, agent="")

        def watch(done: int, total: int, agent: str) -> None:
            bar.update(task, completed=done, total=total, agent=plain(agent))

        yield watch

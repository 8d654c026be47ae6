"""``clia agents``, checking: lint, smoke, doctor; findings as text, JSON, SARIF 2.1.0 and GitHub workflow commands.

Invariant: every format has the same findings in the same order, and text from documents cannot break out of a line or field.
"""

from __future__ import annotations

import os
from collections import Counter
from urllib.parse import quote

from clia import __version__
from clia.cli.command import CEILING, WORKING_PATH, Answer, command, flag, many, opt
from clia.cli.output import console, counted, emit_json, one_line, plain, write
from clia.cli.rendering import line_of, progress_bar, show_line, styled
from clia.identities.diagnostics import CODES, ERROR, INFO, WARNING, has_errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Annotated, Any

    from clia.identities.checks import DoctorReport, ExaminedIdentity, ResolvedIdentity
    from clia.identities.diagnostics import Diagnostic
    from clia.identities.lint import CheckedIdentity, FindingsReport

FORMATS = ("text", "json", "sarif", "github")
_INDENT = " " * 11
_STYLES = {ERROR: "bold red", WARNING: "yellow", INFO: "cyan"}
_SARIF_LEVELS = {ERROR: "error", WARNING: "warning", INFO: "note"}
_GITHUB_COMMANDS = {ERROR: "error", WARNING: "warning", INFO: "notice"}


@command("agents lint")
def agents_lint(
    json_output: bool,
    path: str = WORKING_PATH,
    ceiling: str | None = CEILING,
    slugs: list[str] = many("SLUG", "check only this identity (repeatable)", "--slug"),
    strict: bool = flag("fail on warnings too"),
    output_format: str | None = opt(None, "output format (default: text)", "--format", choices=FORMATS),
) -> Annotated[int, FindingsReport[CheckedIdentity]]:
    """Check the documents of all identities.

    Exit code 1 on errors, and with --strict on warnings.
    """
    from clia.identities.checks import lines_of, lint

    form = output_format or ("json" if json_output else "text")
    with progress_bar("Checking identities", hidden=form != "text") as progress:
        report = lint(path, environment=os.environ, slugs=slugs, ceiling=ceiling, watch=progress)
    if form == "json":
        emit_json(report)
    elif form == "text":
        show_findings(report.findings, report.path)
        inactive = sum(not identity.active for identity in report.agents)
        skipped = f", {inactive} inactive skipped" if inactive else ""
        write(f"{len(report.agents) - inactive} checked{skipped}: {finding_count(report.findings)}\n")
    else:
        lines = lines_of(report.findings)
        if form == "sarif":
            emit_json(_sarif(report.findings, lines, report.path))
        else:
            base = _github_workspace(report.path)
            write("".join(f"{_github(finding, lines.get(finding), base)}\n" for finding in report.findings))
    severities = (ERROR, WARNING) if strict else (ERROR,)
    return 1 if any(finding.severity in severities for finding in report.findings) else 0


def _github_workspace(path: str) -> str:
    """The checkout that GitHub's paths are relative to."""
    workspace = os.environ.get("GITHUB_WORKSPACE", "")
    real = os.path.realpath(workspace) if workspace else path
    return real if f"{path}/".startswith(f"{real}/") else path


@command("agents smoke")
def agents_smoke(
    json_output: bool, path: str = WORKING_PATH, ceiling: str | None = CEILING
) -> Answer[FindingsReport[ResolvedIdentity]]:
    """Resolve every identity of a tree, for CI.

    Exit code 1 if one does not resolve.
    """
    from clia.identities.checks import smoke

    with progress_bar("Resolving identities", hidden=json_output) as progress:
        report = smoke(path, environment=os.environ, ceiling=ceiling, watch=progress)
    return Answer(report, lambda: _show_smoke(report), exit_code=1 if has_errors(report.findings) else 0)


def _show_smoke(report: FindingsReport[ResolvedIdentity]) -> None:
    for identity in report.agents:
        mark = ("ok  ", "green") if identity.ok else ("FAIL", "bold red")
        where = one_line(relative(identity.directory, report.path))
        show_line(mark, f"  {identity.slug}  ", (f"{where}  {counted(identity.contexts, 'context')}", "dim"))
    show_findings(report.findings, report.path)
    good = sum(identity.ok for identity in report.agents)
    write(f"{good} of {len(report.agents)} resolve: {finding_count(report.findings)}\n")


@command("agents doctor")
def agents_doctor(path: str = WORKING_PATH, ceiling: str | None = CEILING) -> Answer[DoctorReport]:
    """Show the chain, inheritance and findings of each identity.

    Exit code 1 on errors.
    """
    from clia.identities.checks import doctor

    report = doctor(path, environment=os.environ, ceiling=ceiling)
    failed = has_errors(report.all_findings())
    return Answer(report, lambda: show_doctor_report(report), exit_code=1 if failed else 0)


def show_doctor_report(report: DoctorReport) -> None:
    for identity in report.agents:
        _show_examined(identity, report.path)
    show_findings(report.findings, report.path)
    number = counted(len(report.agents), "identity", "identities")
    write(f"{number} visible from {plain(report.path)}: {finding_count(report.all_findings())}\n")


def _show_examined(identity: ExaminedIdentity, base: str) -> None:
    from rich.tree import Tree

    from clia.cli.identities_cards import shorten

    skipped = "" if identity.active else f"  {plain(identity.status)}, skipped by lint"
    head = line_of((identity.slug, "bold"), f"  {plain(identity.title or '')}", (skipped, "yellow"))
    tree = Tree(head, guide_style="dim")
    chain = tree.add(styled(f"chain ({identity.mode or 'its root chain is invalid; this is the default chain'})", "dim"))
    for context in identity.chain:
        kinds = ", ".join(kind for kind, path in context.documents.items() if path)
        chain.add(line_of((plain(context.prefix), "bold"), "  ", (plain(context.directory), "cyan"), (f"  {kinds}", "dim")))
    if identity.inherits:
        inherits = tree.add(styled("inherits", "dim"))
        for inherited in identity.inherits:
            inherits.add(line_of((shorten(inherited.path), "cyan"), (f"  ← {shorten(inherited.by)} ({inherited.document})", "dim")))
    console().print(tree)
    show_findings(identity.findings, base)


def show_findings(findings: Sequence[Diagnostic], base: str) -> None:
    """Print findings by file, each with its place and what to do."""
    current: str | None = None
    for finding in findings:
        where = one_line(relative(finding.path, base)) if finding.path else ""
        if where != current:
            show_line((where, "underline"))
            current = where
        severity = (finding.severity.ljust(9), _STYLES[finding.severity])
        place = (f"  {one_line(finding.pointer)}" if finding.pointer else "", "cyan")
        show_line("  ", severity, (finding.code, "bold"), place)
        show_line(_INDENT, one_line(_message(finding, base)), (f"\n{_INDENT}{finding.hint}", "dim"))


def finding_count(findings: Sequence[Diagnostic]) -> str:
    """``1 error, 2 warnings``."""
    counts = Counter(finding.severity for finding in findings)
    words = ((ERROR, ""), (WARNING, ""), (INFO, INFO))
    return ", ".join(counted(counts[word], word, plural) for word, plural in words if counts[word]) or "nothing found"


def relative(path: str, base: str) -> str:
    """A path relative to ``base``, if it is below it."""
    return path[len(base.rstrip("/")) + 1 :] if path.startswith(f"{base.rstrip('/')}/") else path


def _sarif(findings: Sequence[Diagnostic], lines: Mapping[Diagnostic, int], base: str) -> dict[str, Any]:
    """One run of SARIF 2.1.0, with a rule for every code."""
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
                "results": [_result(finding, order[finding.code], lines.get(finding, 1), base) for finding in findings],
            }
        ],
    }


def _result(finding: Diagnostic, rule: int, line: int, base: str) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": _SARIF_LEVELS[finding.severity],
        "message": {"text": f"{plain(_message(finding, base))} ({finding.hint})"},
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


def _github(finding: Diagnostic, line: int | None, base: str) -> str:
    """A workflow command; text is escaped, so that it cannot end the command or a property."""
    properties = {"title": f"{finding.code}: {CODES[finding.code].title}"}
    if finding.path is not None:
        properties = {"file": relative(finding.path, base), **({"line": str(line)} if line else {}), **properties}
    listed = ",".join(f"{key}={_data(value).replace(':', '%3A').replace(',', '%2C')}" for key, value in properties.items())
    at = f"{finding.pointer}: " if finding.pointer else ""
    return f"::{_GITHUB_COMMANDS[finding.severity]} {listed}::{_data(f'{at}{_message(finding, base)} ({finding.hint})')}"


def _data(text: str) -> str:
    return plain(text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A"))


def _message(finding: Diagnostic, base: str) -> str:
    """The message without the finding's own path, which is shown beside it, and with other paths relative to ``base``."""
    message = finding.message.removeprefix(f"{finding.path}: ") if finding.path else finding.message
    return message.replace(f"{base.rstrip('/')}/", "")

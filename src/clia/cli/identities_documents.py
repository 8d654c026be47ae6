"""``clia agents``, writing: create and change the documents of identities, and their copies."""

from __future__ import annotations

import os
from typing import NamedTuple

from clia.cli.command import AGENTS_DIR, LINEAGE, SLUG, TARGET, WORKING_PATH, Answer, arg, command, flag, many, opt, several
from clia.cli.inputs import require_person
from clia.cli.output import console, counted, plain, show_diagnostics
from clia.cli.rendering import show_line, show_lines, styled
from clia.errors import InvalidInput
from clia.identities.exports.formats import ALL_FORMATS, FORMATS
from clia.values.records import EMBED, json_form

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from clia.identities.diagnostics import Diagnostic
    from clia.identities.exports.mirrors import MirrorPlan
    from clia.identities.exports.plan import ExportPlan
    from clia.identities.journal import JournalResult, TransferPlan
    from clia.identities.lineage import Lineage
    from clia.identities.writing import ConsolidationPlan, WriteLocation

APPLY = flag("write the changes; without it, only show them", "--apply")
_NOT_APPLIED = "nothing was written; add --apply to write it"
_STATE_STYLES = {"fresh": "green", "refused": "red"}

CHECK = flag("write nothing; exit 1 if a copy is stale or missing", one_of="mode")
DRY_RUN = flag("write nothing; show what would be written", one_of="mode")
TO = opt(
    "FORMAT", f"{', '.join(FORMATS)} or {ALL_FORMATS}", "--to", action="append", required=True, choices=[*FORMATS, ALL_FORMATS]
)
FORCE = flag("overwrite files of clia that were edited by hand")
OUTPUT_ROOT = opt("DIR", "write below this directory (default: the nearest repository root)")


class CreatedIdentity(NamedTuple):
    slug: str  # the identity
    created: list[str]  # files


@command("agents init", agents_dir=AGENTS_DIR)
def agents_init(
    slug: str = arg("SLUG", "new identity; `root` creates the root directives"),
    title: str | None = opt(None, "display name", "-t --title"),
    role: str | None = opt(None, "role"),
    purpose: str | None = opt(None, "purpose"),
    guardrails: list[str] = many("TEXT", "rule that it must follow (repeatable)", "--guardrail"),
    inherits: list[str] = many("FILE", "document to inherit from (default: the root directives; repeatable)"),
    operator: bool = flag("create the profile of a person, whose approvals count"),
    target: WriteLocation = TARGET,
) -> Answer[CreatedIdentity]:
    """Create the three documents of an identity."""
    from clia.identities.writing import NewIdentity, init

    if operator:
        require_person("ask a person to create the profile of a person: clia ask AGENT QUESTION")
    created = init(slug, NewIdentity(title, role, purpose, guardrails, inherits, operator), target)
    return Answer(CreatedIdentity(slug, created), lambda: show_lines(plain(f"created {path}") for path in created))


@command("agents journal", agents_dir=AGENTS_DIR)
def agents_journal(
    json_output: bool,
    slug: str = SLUG,
    note: str = opt("TEXT", "what happened", "-m --message", former="--note", required=True),
    tags: list[str] = several("TAG", "tags, separated by blanks or commas"),
    signature: str = opt("auto|SIG", "signature (default: the one of the profile)", default="auto"),
    dirs_touched: list[str] = several("DIR", "directories that the work touched"),
    idempotency_key: str | None = opt("KEY", "write only one entry per key", "--key", former="--idempotency-key"),
    waives: str | None = opt("HASH", "approve, as an operator, that a guardrail is waived; recorded as a commit"),
    target: WriteLocation = TARGET,
) -> Answer[JournalResult]:
    """Append an entry to the journal of an identity."""
    from clia.identities.journal import Note
    from clia.identities.writing import is_operator, journal

    if is_operator(slug, target):
        require_person(f"{slug!r} is a person, whose entries can approve waivers; write to the journal of your own identity")
    elif waives is not None:
        raise InvalidInput(f"{slug!r} is not an operator, so it cannot waive", code="not-an-operator", fields={"slug": slug})
    words = [tag for word in tags for tag in word.split(",")]
    about = {} if waives is None else _decided(waives, note, slug, target)
    written, diagnostics = journal(slug, Note(note, words, signature, dirs_touched, idempotency_key, about=about), target)

    text = f"{'appended to' if written.appended else 'already in'} {written.path}\nsha256 {written.sha256}"
    if json_output:
        show_diagnostics(diagnostics, as_json=True)
    return Answer(written, lambda: show_line(plain(text)), diagnostics=diagnostics)


def _decided(waives: str, note: str, slug: str, target: WriteLocation) -> dict[str, Any]:
    """The extensions of an entry that approves a waiver; writes the commit of the decision."""
    from clia.facade.operator_waivers import decide_waiver, guardrail_text
    from clia.identities.checks import roster
    from clia.identities.guardrails.waivers import DECIDED, WAIVES
    from clia.identities.writing import journal_directory
    from clia.values.canonical import text_digest

    text = guardrail_text(os.fspath(target.path), waives, [agent.slug for agent in roster(target.path).agents])
    decision = decide_waiver(journal_directory(slug, target), text, note)
    return {DECIDED: decision, WAIVES: [{"guardrail": text_digest(text)}]}


@json_form(plan=EMBED)
class Transfer(NamedTuple):
    plan: TransferPlan
    applied: bool  # false: nothing was written
    copied: int  # number of entries that were copied


@command("agents transfer")
def agents_transfer(
    slug: str = SLUG,
    to: str = opt("DIR", "enclosing directory", required=True),
    entries: list[str] = several("ENTRY", "sha256 (six digits or more), timestamp or its start, tag:NAME, or all (default: all)"),
    confirmed: bool = APPLY,
    target: WriteLocation = TARGET,
) -> Answer[Transfer]:
    """Copy journal entries to an enclosing directory."""
    from clia.identities.writing import transfer

    plan, copied = transfer(slug, to, entries, target, apply=confirmed)

    def show() -> None:
        from rich.table import Table
        from rich.text import Text

        title = f"{plan.slug}: {counted(len(plan.entries), 'entry', 'entries')} to {plain(plan.target.directory)}"
        table = Table("entry", "when", "what", "", title=title, title_justify="left")
        for entry, new in plan.summaries:
            state = "copied" if confirmed and new else "new" if new else "already there"
            table.add_row(entry.sha256[:12], Text(plain(entry.timestamp or "")), Text(plain(entry.summary or "")), state)
        console().print(table)
        show_line(plain(f"receipt: {plan.receipt}") if confirmed else _NOT_APPLIED)

    return Answer(Transfer(plan, confirmed, len(copied)), show)


@json_form(plan=EMBED)
class Consolidation(NamedTuple):
    plan: ConsolidationPlan
    applied: bool  # false: nothing was written


@command("agents consolidate")
def agents_consolidate(
    slug: str = arg("SLUG", "identity to archive and remove"),
    into: str = opt("SLUG", "identity that keeps the archive", required=True),
    confirmed: bool = APPLY,
    target: WriteLocation = TARGET,
) -> Answer[Consolidation]:
    """Archive one identity inside another, then remove it."""
    from clia.identities.writing import consolidate

    plan = consolidate(slug, into, target, apply=confirmed)

    def show() -> None:
        show_lines(plain(line) for line in (plan.home, f"  -> {plan.archive}", *(f"  {name}" for name in plan.files)))
        show_line("archived and removed" if confirmed else _NOT_APPLIED)

    return Answer(Consolidation(plan, confirmed), show)


@json_form(plan=EMBED)
class WrittenMirrors(NamedTuple):
    plan: MirrorPlan
    written: bool  # whether files were written


@command("agents mirrors")
def agents_mirrors(
    slug: str | None = opt("SLUG", "identity (default: all)", "--slug", former="--agent-slug"),
    path: str = WORKING_PATH,
    merged: bool = flag("also mirror the merged documents"),
    check: bool = flag("write nothing; exit 1 if a mirror is stale or missing"),
) -> Answer[WrittenMirrors]:
    """Render documents as Markdown under .generated/.

    With --check, exit code 1 if a mirror is stale or missing.
    """
    from clia.identities.exports.mirrors import mirrors

    plan = mirrors(path, slug, merged=merged, write=not check)

    def show() -> None:
        files = [(mirror.path.removeprefix(f"{plan.root}/"), mirror.slug, mirror.state, mirror.reason) for mirror in plan.mirrors]
        show_files(plain(plan.root), files, written=not check)

    failed = check and not plan.is_fresh()
    return Answer(WrittenMirrors(plan, not check), show, 1 if failed else 0, plan.diagnostics)


@json_form(plan=EMBED)
class ExportedIdentity(NamedTuple):
    plan: ExportPlan
    diagnostics: list[Diagnostic]  # problems of the profile and of the export
    written: bool  # whether files were written


@command("agents export")
def agents_export(
    formats: list[str] = TO,
    lineage: Lineage = LINEAGE,
    check: bool = CHECK,
    dry_run: bool = DRY_RUN,
    force: bool = FORCE,
    output_root: str | None = OUTPUT_ROOT,
    url: str | None = opt("URL", "a2a-card: address of the agent"),
    tools: str | None = opt("A,B", "claude-agent: tools it may use"),
    model: str | None = opt("MODEL", "claude-agent: model it runs on"),
) -> Answer[ExportedIdentity]:
    """Write the profile for other tools.

    With --check, exit code 1 if a copy is stale or missing; otherwise exit code 1 if writing is refused.
    """
    from clia.identities.exports.formats import ExportOptions
    from clia.identities.exports.plan import export

    tool_names = () if tools is None else tuple(name.strip() for name in tools.split(","))
    written = not (check or dry_run)
    options = ExportOptions(tuple(formats), url, tool_names, model)
    plan = export(lineage, options, output_root=output_root, write=written, force=force)
    diagnostics = [*lineage.profile().diagnostics, *plan.diagnostics]

    def show() -> None:
        files = [(outcome.path, outcome.format, outcome.state, outcome.reason) for outcome in plan.outcomes]
        show_files(f"{plan.slug} in {plain(plan.root)}", files, written=written)

    failed = not plan.is_fresh() if check else plan.blocked(force=force)
    return Answer(ExportedIdentity(plan, diagnostics, written), show, 1 if failed else 0, diagnostics)


def show_files(title: str, files: Iterable[tuple[str, str, str, str]], *, written: bool) -> None:
    """Print a table of (path, kind, state, reason) of each file."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for path, kind, state, reason in files:
        word, why = ("written", "") if written and state != "fresh" else (state, reason)
        place = Text(plain(path), "cyan", overflow="fold"), Text(plain(kind), "dim", overflow="fold")
        table.add_row(styled(word, _STATE_STYLES.get(state, "green" if written else "yellow")), *place, Text(plain(why), "dim"))
    console().print(Text(plain(title), style="bold"))
    console().print(table)

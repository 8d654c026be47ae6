"""``clia agents``, writing: create and change the documents of identities, and their copies."""

from __future__ import annotations

from clia.cli.command import JSON, LINEAGE, SLUG, TARGET, WORKING_PATH, Answer, arg, command, flag, many, one_of, opt, several
from clia.cli.output import console, counted, plain, show_diagnostics
from clia.cli.rendering import show_line, show_lines
from clia.identities.export_formats import ALL_FORMATS, FORMATS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from clia.identities.lineage import Lineage
    from clia.identities.writing import WriteLocation

AGENTS_DIR = opt("--agents-dir", "DIR", "directory of identities, if the path is not in a repository")
APPLY = flag("--apply", "write the changes; without it, only show them", dest="confirmed")
_NOT_APPLIED = "nothing was written; add --apply to write it"
_STATE_STYLES = {"fresh": "green", "refused": "red"}

CHECK_OPTIONS = one_of(
    flag("--check", "write nothing; exit 1 if a copy is stale or missing"),
    flag("--dry-run", "write nothing; show what would be written"),
)
FORCE = flag("--force", "overwrite files of clia that were edited by hand")
OUTPUT_ROOT = opt("--output-root", "DIR", "write below this directory (default: the nearest repository root)")


@command(
    "agents init",
    arg("slug", None, "new identity; `root` creates the root directives"),
    opt("--title", None, "display name"),
    opt("--role", None, "role"),
    opt("--purpose", None, "purpose"),
    many("--guardrail", "TEXT", "rule that it must follow (repeatable)", dest="guardrails"),
    many("--inherits", "FILE", "document to inherit from (default: the root directives; repeatable)"),
    flag("--operator", "create the profile of a person, whose approvals count"),
    *TARGET,
    AGENTS_DIR,
    JSON,
)
def agents_init(
    target: WriteLocation,
    slug: str,
    title: str | None,
    role: str | None,
    purpose: str | None,
    guardrails: list[str],
    inherits: list[str],
    operator: bool,
) -> Answer:
    """Create the three documents of an identity."""
    from clia.identities.writing import NewIdentity, init

    created = init(slug, NewIdentity(title, role, purpose, guardrails, inherits, operator), target)
    return Answer({"slug": slug, "created": created}, lambda: show_lines(plain(f"created {path}") for path in created))


@command(
    "agents journal",
    SLUG,
    opt("--note", "TEXT", "what happened", required=True),
    several("--tags", "TAG", "tags, separated by blanks or commas"),
    opt("--signature", "auto|SIG", "signature (default: the one of the profile)", default="auto"),
    several("--dirs-touched", "DIR", "directories that the work touched"),
    opt("--idempotency-key", "KEY", "write only one entry per key"),
    *TARGET,
    AGENTS_DIR,
    JSON,
)
def agents_journal(
    target: WriteLocation,
    slug: str,
    note: str,
    tags: list[str],
    signature: str,
    dirs_touched: list[str],
    idempotency_key: str | None,
    json_output: bool,
) -> Answer:
    """Append an entry to the journal of an identity."""
    from clia.identities.journal import Note
    from clia.identities.writing import journal

    words = [tag for word in tags for tag in word.split(",")]
    written, diagnostics = journal(slug, Note(note, words, signature, dirs_touched, idempotency_key), target)

    def show() -> None:
        what = "appended to" if written.appended else "already in"
        show_line(plain(f"{what} {written.path}\nsha256 {written.sha256}"))
        show_diagnostics(diagnostics, as_json=False)

    if json_output:
        show_diagnostics(diagnostics, as_json=True)
    return Answer(written.to_json(), show)


@command(
    "agents transfer",
    SLUG,
    opt("--to", "DIR", "enclosing directory", required=True),
    several("--entries", "ENTRY", "sha256 (six digits or more), timestamp or its start, tag:NAME, or all (default: all)"),
    APPLY,
    *TARGET,
    JSON,
)
def agents_transfer(target: WriteLocation, slug: str, to: str, entries: list[str], confirmed: bool) -> Answer:
    """Copy journal entries to an enclosing directory."""
    from clia.identities.writing import transfer

    plan, copied = transfer(slug, to, entries, target, apply=confirmed)

    def show() -> None:
        from rich.table import Table
        from rich.text import Text

        title = f"{plan.slug}: {counted(len(plan.entries), 'entry', 'entries')} to {plain(plan.target.directory)}"
        table = Table(title=title, title_justify="left")
        for heading in ("entry", "when", "what", ""):
            table.add_column(heading)
        for entry in plan.to_json()["entries"]:
            state = "copied" if confirmed and entry["new"] else "new" if entry["new"] else "already there"
            table.add_row(entry["sha256"][:12], Text(plain(entry["timestamp"] or "")), Text(plain(entry["summary"] or "")), state)
        console().print(table)
        show_line(plain(f"receipt: {plan.receipt}") if confirmed else _NOT_APPLIED)

    return Answer({**plan.to_json(), "applied": confirmed, "copied": len(copied)}, show)


@command(
    "agents consolidate",
    arg("slug", None, "identity to archive and remove"),
    opt("--into", "SLUG", "identity that keeps the archive", required=True),
    APPLY,
    *TARGET,
    JSON,
)
def agents_consolidate(target: WriteLocation, slug: str, into: str, confirmed: bool) -> Answer:
    """Archive one identity inside another, then remove it."""
    from clia.identities.writing import consolidate

    plan = consolidate(slug, into, target, apply=confirmed)

    def show() -> None:
        show_line(plain(f"{plan.home}\n  -> {plan.archive}"))
        for name in plan.files:
            show_line(plain(f"  {name}"))
        show_line("archived and removed" if confirmed else _NOT_APPLIED)

    return Answer({**plan.to_json(), "applied": confirmed}, show)


@command(
    "agents mirrors",
    opt("--slug --agent-slug", "SLUG", "identity (default: all)", dest="slug"),
    WORKING_PATH,
    flag("--merged", "also mirror the merged documents"),
    flag("--check", "write nothing; exit 1 if a mirror is stale or missing"),
    JSON,
)
def agents_mirrors(slug: str | None, path: str, merged: bool, check: bool) -> Answer:
    """Render documents as Markdown under .generated/.

    With --check, exit code 1 if a mirror is stale or missing.
    """
    from clia.identities.mirrors import mirrors

    plan = mirrors(path, slug, merged=merged, write=not check)

    def show() -> None:
        files = [(each.path.removeprefix(f"{plan.root}/"), each.slug, each.state, each.reason) for each in plan.mirrors]
        show_files(plain(plan.root), files, written=not check)
        show_diagnostics(plan.diagnostics, as_json=False)

    return Answer({**plan.to_json(), "written": not check}, show, exit_code=1 if check and not plan.is_fresh() else 0)


@command(
    "agents export",
    opt(
        "--to",
        "FORMAT",
        f"{', '.join(FORMATS)} or {ALL_FORMATS}",
        action="append",
        required=True,
        choices=[*FORMATS, ALL_FORMATS],
        dest="formats",
    ),
    *LINEAGE,
    CHECK_OPTIONS,
    FORCE,
    OUTPUT_ROOT,
    opt("--url", "URL", "a2a-card: address of the agent"),
    opt("--tools", "A,B", "claude-agent: tools it may use"),
    opt("--model", "MODEL", "claude-agent: model it runs on"),
)
def agents_export(
    lineage: Lineage,
    formats: list[str],
    check: bool,
    dry_run: bool,
    force: bool,
    output_root: str | None,
    url: str | None,
    tools: str | None,
    model: str | None,
) -> Answer:
    """Write the profile for other tools.

    With --check, exit code 1 if a copy is stale or missing; otherwise exit code 1 if writing is refused.
    """
    from clia.identities.export_formats import ExportOptions
    from clia.identities.export_plan import export

    tool_names = () if tools is None else tuple(name.strip() for name in tools.split(","))
    written = not (check or dry_run)
    plan = export(
        lineage, ExportOptions(tuple(formats), url, tool_names, model), output_root=output_root, write=written, force=force
    )
    diagnostics = [*lineage.profile().diagnostics, *plan.diagnostics]

    def show() -> None:
        files = [(each.path, each.format, each.state, each.reason) for each in plan.outcomes]
        show_files(f"{plan.slug} in {plain(plan.root)}", files, written=written)
        show_diagnostics(diagnostics, as_json=False)

    failed = not plan.is_fresh() if check else plan.blocked(force=force)
    value = {**plan.to_json(), "diagnostics": [each.to_json() for each in diagnostics], "written": written}
    return Answer(value, show, exit_code=1 if failed else 0)


def show_files(title: str, files: Iterable[tuple[str, str, str, str]], *, written: bool) -> None:
    """Print a table of (path, kind, state, reason) of each file."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for path, kind, state, reason in files:
        done = written and state != "fresh"
        word, why = ("written", "") if done else (state, reason)
        table.add_row(
            Text(word, style=_STATE_STYLES.get(state, "green" if written else "yellow")),
            Text(plain(path), style="cyan", overflow="fold"),
            Text(plain(kind), style="dim", overflow="fold"),
            Text(plain(why), style="dim"),
        )
    console().print(Text(plain(title), style="bold"))
    console().print(table)

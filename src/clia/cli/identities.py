"""``clia agents``, reading: the merged documents of identities, and where their values come from.

``clia agents profile --json`` runs in other programs' prompts, so this module imports little at the top.
"""

from __future__ import annotations

from clia.cli.command import AGENTS_DIR, CEILING, LINEAGE, SLUG, WORKING_PATH, Answer, arg, command, flag, many, opt
from clia.cli.output import show_diagnostics
from clia.identities.contexts import AGENDA, AGENT, KINDS
from clia.identities.diagnostics import ERROR, has_errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Annotated, Any

    from clia.facade.space import Space
    from clia.identities.agenda_work import PlannedWork
    from clia.identities.lineage import ContextReport, Lineage, MergedJson
    from clia.identities.origins import Explanation
    from clia.identities.roster import Roster, SearchHit

    ShownDocument = Annotated[dict[str, Any], MergedJson] | None

ROOT_CHAIN = flag("add the contexts it was merged from")
SHOW_ORIGIN = flag("add the origin of every value")


def _show_document(kind: str, title: str) -> Callable[..., Answer[ShownDocument]]:
    """The command that shows one kind of merged document."""

    def show_document(
        json_output: bool, lineage: Lineage = LINEAGE, root_chain: bool = ROOT_CHAIN, show_origin: bool = SHOW_ORIGIN
    ) -> Answer[ShownDocument]:
        merged = lineage.merged(kind)

        def show() -> None:
            from clia.cli.identities_cards import show_merged
            from clia.cli.rendering import show_line

            show_merged(merged, root_chain=root_chain, show_origin=show_origin)
            if kind == AGENDA:
                show_line((f"agents that work for these items: clia agents work --slug {lineage.slug}", "dim"))

        value = None
        if json_output:
            value = merged.to_json(root_chain=root_chain, show_origin=show_origin)
            show_diagnostics(merged.diagnostics, as_json=True)
        return Answer(value, show, 2 if has_errors(merged.diagnostics) else 0, merged.diagnostics)

    show_document.__doc__ = f"""Show the merged {title} of an identity.

    Exit code 2 if a document could not be used; the rest is still merged and printed.
    """
    return show_document


command("agents profile")(_show_document("agent", "profile"))
command("agents plan")(_show_document(AGENDA, "agenda"))
command("agents agency")(_show_document("agency", "journal"))


@command("agents work")
def agents_work(space: Space, slug: str = SLUG) -> Answer[list[PlannedWork]]:
    """Show the agents, sessions and landings of each item of an agenda."""
    from clia.cli.identities_cards import show_work
    from clia.cli.rendering import show_line

    work = space.identities.agenda(slug)
    return Answer(work, lambda: show_work(work) if work else show_line(f"the agenda of {slug} has no items"))


@command("agents context")
def agents_context(
    lineage: Lineage = LINEAGE, explain: bool = flag("say why each context is included or excluded")
) -> Answer[ContextReport]:
    """Show which directories an identity is merged from, and why.

    Exit code 2 if a document could not be used.
    """
    report = lineage.context()

    def show() -> None:
        from clia.cli.identities_cards import show_context

        show_context(report, explain=explain)

    return Answer(report, show, 2 if has_errors(report.diagnostics) else 0, report.diagnostics)


@command("agents explain")
def agents_explain(
    json_output: bool,
    pointer: str = arg("POINTER", "JSON pointer into the merged document: /title, /guardrails/0"),
    document: str = opt(None, "merged document (default: agent)", choices=KINDS, default=AGENT),
    lineage: Lineage = LINEAGE,
) -> Answer[Explanation]:
    """Show where a merged value comes from.

    Exit code 2 if a document could not be used.
    """
    explanation = lineage.explain(pointer, document)
    diagnostics = lineage.merged(document).diagnostics

    def show() -> None:
        from clia.cli.identities_cards import show_explanation

        show_explanation(explanation)

    if json_output:
        show_diagnostics(diagnostics, as_json=True)
    return Answer(explanation, show, 2 if has_errors(diagnostics) else 0, diagnostics)


@command("agents list")
def agents_list(
    path: str = WORKING_PATH,
    ceiling: str | None = CEILING,
    agents_dir: str | None = AGENTS_DIR,
    everything: bool = flag("also list root, templates and names with a leading underscore", "--all"),
) -> Answer[Roster]:
    """List the identities that are visible here.

    Exit code 2 if a document could not be used; a directory that is not an identity is only mentioned.
    """
    from clia.identities.checks import roster

    listed = roster(path, ceiling=ceiling, agents_dir=agents_dir, everything=everything)

    failed = any(diagnostic.severity == ERROR and diagnostic.code != "invalid-slug" for diagnostic in listed.diagnostics)
    return Answer(listed, lambda: _show_roster(listed), 2 if failed else 0, listed.diagnostics)


@command("agents search")
def agents_search(
    text: str = arg("TEXT", "text to search, in any case"),
    slugs: list[str] = many("SLUG", "search only this identity (repeatable)", "--slug"),
    path: str = WORKING_PATH,
    ceiling: str | None = CEILING,
    agents_dir: str | None = AGENTS_DIR,
) -> Answer[list[SearchHit]]:
    """Search the merged documents of the identities that are visible here.

    Exit code 1 if nothing contains the text.
    """
    from clia.identities.checks import search

    hits = search(path, text, slugs=slugs, ceiling=ceiling, agents_dir=agents_dir)

    def show() -> None:
        from clia.cli.output import one_line
        from clia.cli.rendering import show_line

        for hit in hits:
            show_line((hit.slug, "bold"), f" {hit.document} {hit.pointer}  ", one_line(hit.text.partition("\n")[0]))

    return Answer(hits, show if hits else "nothing found", 0 if hits else 1)


def _show_roster(roster: Roster) -> None:
    from clia.cli.output import plain, write
    from clia.cli.rendering import show_table, styled

    if not roster.agents:
        write(f"no identities at {plain(roster.path)} or above; create one with: clia agents init SLUG\n")
        return
    rows = []
    for identity in roster.agents:
        mark = " ".join(part for part in (identity.emoji, identity.badge) if part)
        facts = (identity.title or "", identity.role or "", identity.status or "", identity.contexts)
        rows.append((mark, styled(identity.slug, "bold"), *facts, styled(identity.directory, "cyan")))
    show_table(("", "agent", "title", "role", "status", "contexts", "directory"), rows, right=("contexts",))


@command("agents schema")
def agents_schema(
    document: str | None = arg(None, "kind of document (default: all three, in one object)", nargs="?", choices=KINDS),
) -> Answer[dict[str, Any]]:
    """Print the JSON Schemas of the documents."""
    from clia.cli.output import emit_json
    from clia.identities.checks import schemas

    value = schemas()
    chosen = value[document] if document else value
    return Answer(chosen, lambda: emit_json(chosen))

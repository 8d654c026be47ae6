"""Merged identities for people: profile cards, context chains and explanations."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from clia.cli.output import console, counted, plain
from clia.cli.rendering import show_table, styled
from clia.identities import merge_rules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clia.identities.agenda_work import PlannedAgent, PlannedWork
    from clia.identities.contexts import IdentityContext
    from clia.identities.lineage import ContextReport, MergedDocument
    from clia.identities.origins import Explanation, ValueOrigin

_TITLES = {"agent": "Profile", "agenda": "Plan", "agency": "Agency"}
_FIRST = {
    "agent": ("responsibilities", "focusDomains", "contributionMix", "checklists", "sections", "mentors", "tags"),
    "agenda": ("principles", "themes", "horizons", "initiatives", "milestones", "backlog", "dependencies", "risks", "sections"),
    "agency": (),
}
_NEWEST = 20


def badge(document: dict[str, Any]) -> str:
    """The emoji and badge of an identity, if it has them."""
    extensions = document.get("extensions")
    fields = extensions if isinstance(extensions, dict) else {}
    emoji = fields.get("x-emoji") or document.get("emoji")
    return " ".join(plain(part) for part in (emoji, fields.get("x-badge")) if isinstance(part, str) and part.strip())


def show_merged(merged: MergedDocument, *, root_chain: bool, show_origin: bool) -> None:
    """Print a merged document as a card, guardrails first."""
    mark = badge(merged.document)
    facts = [merged.get("role"), merged.get("status"), merged.get("updated") and f"updated {merged['updated']}"]
    texts = " · ".join(plain(fact) for fact in facts if fact)
    head = f"{mark}  " if mark else "", (plain(merged.get("title") or merged["slug"]), "bold")
    body: list[RenderableType] = [Text.assemble(*head, ("\n" + texts if texts else "", "dim"))]
    origins = merged.origins() if show_origin else None
    if merged.kind == "agent":
        body += _guardrails(merged, origins)
        if isinstance(merged.get("purpose"), str):
            body += [_heading("Purpose"), _indented(Text(plain(merged["purpose"]).strip()))]
    for field in _FIRST[merged.kind]:
        body += _section(merged, field, origins)
    if merged.kind == "agency":
        body += _entries(merged.get("entries") or [])
    if root_chain:
        body += [_heading("Merged from, outermost first"), _indented(_chain_table(merged.chain))]
    title = Text(f"{_TITLES[merged.kind]} of {merged['slug']}", style="bold")
    console().print(Panel(Group(*body), title=title, title_align="left", border_style="cyan", padding=(1, 2)))


def _guardrails(merged: MergedDocument, origins: dict[str, Any] | None) -> list[RenderableType]:
    items = merged.get("guardrails") or []
    if not items:
        return []
    waived = {waiver["text"] for waiver in merged.get("waivedGuardrails") or ()}
    table = _bullets()
    for index, item in enumerate(items):
        line = Text(plain(merge_rules.projected_text(item)), style="bold")
        if merge_rules.projected_text(item) in waived:
            line.stylize("strike dim")
            line.append("  waived by an operator", style="yellow")
        _add_origin(line, origins, f"/guardrails/{index}")
        table.add_row("!", line)
    return [_heading("Guardrails", "bold red"), table]


def _section(merged: MergedDocument, field: str, origins: dict[str, Any] | None) -> list[RenderableType]:
    value = merged.get(field)
    if field == "contributionMix":
        return _mix(value)
    if not isinstance(value, list) or not value:
        return []
    table = _bullets()
    for index, item in enumerate(value):
        for line in merge_rules.projected_lines(item):
            text = Text(plain(line))
            _add_origin(text, origins, f"/{field}/{index}")
            table.add_row("•", text)
    words = "".join(f" {char.lower()}" if char.isupper() else char for char in field).capitalize()
    return [_heading(words), table]


def _mix(value: Any) -> list[RenderableType]:
    groups = value if isinstance(value, dict) else {"": value}
    parts: list[RenderableType] = []
    for name, items in groups.items():
        shares = [share for item in (items if isinstance(items, list) else ()) if (share := _share(item)) is not None]
        top = max((weight for _, weight in shares), default=0)
        table = Table.grid(padding=(0, 1))
        for kind, weight in shares:
            bar = "█" * max(1, round(20 * weight / top)) if top > 0 else ""
            table.add_row(f"  {plain(kind)}", Text(bar, style="cyan"), f"{weight:g}")
        parts += [_heading(f"Contribution mix {plain(name)}".strip()), table] if shares else []
    return parts


def _share(item: Any) -> tuple[str, float] | None:
    """The type and weight of a contribution; None if it cannot be drawn."""
    kind, weight = merge_rules.contribution_type(item), merge_rules.contribution_weight(item)
    if kind is None or isinstance(weight, bool) or not isinstance(weight, (int, float)):
        return None
    try:
        return kind, float(weight)
    except OverflowError:
        return None


def _entries(entries: list[Any]) -> list[RenderableType]:
    table = Table.grid(padding=(0, 2))
    for entry in entries[-_NEWEST:]:
        fields = entry if isinstance(entry, dict) else {"summary": entry}
        text = fields.get("summary") or fields.get("title") or merge_rules.projected_text(entry)
        when = fields.get("timestamp") or fields.get("date") or ""
        table.add_row(Text(plain(when), style="dim"), Text(plain(fields.get("signature") or ""), style="cyan"), Text(plain(text)))
    note = counted(len(entries), "entry", "entries") + (f", the last {_NEWEST} of them" if len(entries) > _NEWEST else "")
    return [_heading(note), _indented(table)]


def _add_origin(line: Text, origins: dict[str, Any] | None, pointer: str) -> None:
    if origins is not None:
        origin = origins.get(pointer) or next((inner for at, inner in origins.items() if at.startswith(f"{pointer}/")), None)
        if origin and origin["path"]:
            line.append(f"  ← {shorten(origin['path'])}", style="dim")


def show_context(report: ContextReport, *, explain: bool) -> None:
    """Print the chain as a tree: each context inside the one that encloses it."""
    out = console()
    out.print(Text.assemble((plain(report.slug), "bold"), " at ", (plain(report.path), "cyan"), f"  ({report.mode} chain)"))
    root: Tree | None = None
    for context in report.chain:
        label = Text.assemble((plain(context.prefix), "bold"), "  ", (plain(context.directory), "cyan"))
        label.append(f"  {', '.join(kind for kind, path in context.documents.items() if path)}", style="dim")
        if explain:
            label.append(f"\nin: {', '.join(context.reasons)}", style="green")
        if context.real_home != context.home:
            label.append(f"\n{plain(context.home)} → {plain(context.real_home)}", style="dim")
        if root is None:
            root = node = Tree(label, guide_style="dim")
        else:
            node = node.add(label)
    if root is not None:
        out.print(root)
    if explain:
        _show_reasons(report)


def _show_reasons(report: ContextReport) -> None:
    out = console()
    if report.mode != "default":
        out.print(Text("\nDefault chain", style="bold"))
        out.print(_indented(_chain_table(report.default)))
        out.print(Text("Injected roots", style="bold"))
        out.print(_indented(_chain_table(report.injected) if report.injected else Text("none", style="dim")))
    if report.roots:
        out.print(Text("\nRoot rules", style="bold"))
        table = Table.grid(padding=(0, 2))
        for root in report.roots:
            table.add_row(Text(plain(root.prefix)), Text(plain(root.directory), "cyan"), Text("guardrails", "green"))
        out.print(_indented(table))
    if report.excluded:
        out.print(Text("\nLeft out", style="bold"))
        table = Table.grid(padding=(0, 2))
        for exclusion in report.excluded:
            table.add_row(Text(plain(exclusion.path), "cyan"), Text(f"excluded: {exclusion.reason}", "yellow"))
        out.print(_indented(table))


def show_explanation(explanation: Explanation) -> None:
    """Print the rule, the winner, contributors and overridden values."""
    pointer = plain(explanation.pointer or "the whole document")
    story = Text.assemble((pointer, "bold"), " is ", (_short(explanation.value), "green"))
    story.append(f"\nRule {explanation.rule}: {explanation.story}.", style="dim")
    if explanation.winner is not None:
        story.append("\nIt comes from")
        _add_places(story, [explanation.winner])
    elif explanation.note:
        story.append(f"\nIt comes from no file: {explanation.note}.")
    others = [place for place in explanation.contributors if place != explanation.winner]
    if others:
        story.append("\nThe same value is in" if explanation.winner else "\nIt is merged from")
        _add_places(story, others)
    if explanation.shadowed:
        story.append("\nIt overrides")
        _add_places(story, explanation.shadowed)
    story.append(f"\nsha256 of the value: {explanation.value_sha256}", style="dim")
    console().print(story, soft_wrap=True)


def _add_places(story: Text, places: Sequence[ValueOrigin]) -> None:
    for place in places:
        story.append(f"\n  {_short(place.value)}")
        story.append(f"  ({place.note})" if place.note else "", style="yellow")
        story.append(f"\n    {shorten(place.path)} {plain(place.pointer)}", style="cyan")
        story.append(f"  sha256 {place.sha256[:12]}", style="dim")


def _chain_table(chain: tuple[IdentityContext, ...]) -> Table:
    table = Table.grid(padding=(0, 2))
    for context in chain:
        reasons = Text(", ".join(context.reasons), "dim")
        table.add_row(Text(plain(context.prefix), "bold"), Text(plain(context.directory), "cyan"), reasons)
    return table


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return plain(text if len(text) <= 160 else text[:157] + "…")


def shorten(path: str) -> str:
    """A path, relative if that is shorter."""
    relative = os.path.relpath(path)
    return plain(relative if len(relative) < len(path) else path)


def _heading(text: str, style: str = "bold") -> RenderableType:
    return Padding(Text(text, style=style), (1, 0, 0, 0))


def _bullets() -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(style="dim", justify="right", min_width=3)
    table.add_column(overflow="fold")
    return table


def _indented(renderable: RenderableType) -> Padding:
    return Padding(renderable, (0, 0, 0, 2))


def show_work(work: Sequence[PlannedWork]) -> None:
    """Print the items of an agenda, each with its agents."""
    rows: list[tuple[str | Text, ...]] = []
    for planned in work:
        item = planned.item
        status = styled(plain(item.status or ""), "green" if item.status == "done" else "")
        first = (styled(plain(item.id), "bold"), plain(item.title), status)
        rows.append((*first, *_agent_cells(planned.agents[0] if planned.agents else None)))
        rows += [("", "", "", *_agent_cells(agent)) for agent in planned.agents[1:]]
    show_table(("item", "title", "status", "agent", "sessions", "landed on"), rows)


def _agent_cells(agent: PlannedAgent | None) -> tuple[str, str, str]:
    if agent is None:
        return "", "", ""
    sessions = ", ".join(f"{session.id} {session.status}" for session in agent.sessions)
    branches = dict.fromkeys(landing.onto for landing in agent.landings)
    return agent.agent + (" (archived)" if agent.archived else ""), sessions, ", ".join(branches)

"""``clia behaviour``: prompts and flows in versions; which version is current, on trial, proposed or retired."""

from __future__ import annotations

import re
import sys
from typing import NamedTuple

from clia.behaviours.model import ADOPT, CURRENT, FORMER, PROPOSED, RETIRED, TRIAL
from clia.cli.behaviours_versions import (
    find_behaviour,
    measure_option,
    note_gaps,
    person,
    reading,
    show_version_line,
    some_ids,
    state_text,
)
from clia.cli.command import WHY, Answer, arg, command, flag, opt, several
from clia.cli.flows import explain_problems
from clia.cli.identities_documents import CHECK, DRY_RUN, FORCE, OUTPUT_ROOT, show_files
from clia.cli.inputs import invalid_option, message_text, read_source, require_person
from clia.cli.output import console, one_line, plain, write
from clia.cli.rendering import facts_table, line_of, moment, short, show_line, show_rows, show_source, styled
from clia.errors import CliaError, Conflict, InvalidInput
from clia.values.records import EMBED, json_form
from clia.values.typed_objects import BEHAVIOUR_KINDS, IDENTITY_DOCUMENT, PROMPT, SESSION_FLOW

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from clia.behaviours.model import BehaviourEvent, BehaviourVersion, KnownBehaviour, Suggestion
    from clia.facade.space import Space
    from clia.identities.exports.plan import ExportPlan

NAME = arg("NAME", "behaviour name")
KIND = opt(
    None,
    "kind of a new behaviour (default: by file name: .py is a session-flow, .md or .txt a prompt)",
    "-k --kind",
    choices=BEHAVIOUR_KINDS,
)
DOCUMENT = opt("PATH", "identity's document that it is a text of: .clia/agents/SLUG/FILE in the repository")
NOTES = opt("TEXT", "notes that are kept with this version", default="")
EXPECT = opt("CID", "change nothing unless this version is current (none: no version)")
_KINDS_BY_SUFFIX = {".py": SESSION_FLOW, ".md": PROMPT, ".txt": PROMPT}
_STATE_WORDS = {
    CURRENT: "is already current",
    TRIAL: "is already on trial",
    FORMER: "was current, and may run by its id",
    PROPOSED: "was already proposed",
    RETIRED: "was retired",
}
_PLACEHOLDER = re.compile(r"\{\{[^{}\n]{1,60}\}\}")
_LIST_HEADINGS = ("behaviour", "kind", "current", "versions", "proposed", "changed (UTC)")
_OPTIONAL_COLUMNS = ("changed (UTC)", "versions", "kind")  # left out in this order, so that names stay whole


@json_form(version=EMBED + "body")
class VersionSummary(NamedTuple):
    """A version without its body."""

    version: BehaviourVersion


@json_form(version=EMBED)
class ChangedVersion(NamedTuple):
    """A version that was added, proposed or adopted."""

    version: VersionSummary
    changed: bool  # false: it was so already, and nothing was written


@json_form(version=EMBED)
class RetiredVersion(NamedTuple):
    version: ChangedVersion
    current: str | None  # the current version of the behaviour now


@json_form(version=EMBED)
class ShownVersion(NamedTuple):
    """A version with its body."""

    version: VersionSummary
    body: str  # flow source, or the text of the prompt


@json_form(behaviour=EMBED)
class BehaviourSummary(NamedTuple):
    behaviour: KnownBehaviour
    versions: list[VersionSummary]  # oldest first


@json_form(behaviour=EMBED)
class ShownBehaviour(NamedTuple):
    """A behaviour with the body of its current version."""

    behaviour: BehaviourSummary
    body: str | None  # body of the current version


def _summary(behaviour: KnownBehaviour) -> BehaviourSummary:
    return BehaviourSummary(behaviour, [VersionSummary(version) for version in behaviour.versions])


@command("behaviour add")
def behaviour_add(
    space: Space,
    json_output: bool,
    name: str = arg("NAME", "behaviour name; created if it does not exist"),
    file: str = arg("FILE", "body: the text of a prompt, or the source of a flow ('-': standard input)"),
    kind: str | None = KIND,
    document: str | None = DOCUMENT,
    message: str = WHY,
    notes: str = NOTES,
) -> Answer[ChangedVersion]:
    """Add a version of a behaviour and make it current."""
    require_person(f"propose it instead: clia behaviour propose {name} --from FILE --agent AGENT")
    before = _last_event(space, name)
    body, body_kind, why = _read_version(space, name, file, kind, message)
    with explain_problems(body, file, hidden=json_output):
        version = space.behaviours.add(name, body, body_kind, document=document, why=why, notes=notes)
    changed = _last_event(space, name) != before

    def show() -> None:
        state = f"is the current version of this {version.kind}" if changed else "unchanged; nothing was written"
        show_version_line(version, state)
        _note_unfilled(version)

    return Answer(ChangedVersion(VersionSummary(version), changed), show)


@command("behaviour propose")
def behaviour_propose(
    space: Space,
    json_output: bool,
    name: str = arg("NAME", "behaviour that it may become a version of"),
    file: str = opt("FILE", "body of the version ('-': standard input)", "--from", required=True),
    evidence: list[str] = several("COMMIT", "commits that prompted it"),
    parent: str | None = opt("CID", "version that it is derived from (default: the current one)"),
    agent: str | None = opt("AGENT", "agent that proposes it (default: you)"),
    kind: str | None = KIND,
    document: str | None = DOCUMENT,
    message: str = WHY,
    notes: str = NOTES,
) -> Answer[ChangedVersion]:
    """Propose a version with its evidence; it runs once a person adopts it."""
    before = _last_event(space, name)
    body, body_kind, why = _read_version(space, name, file, kind, message)
    with explain_problems(body, file, hidden=json_output):
        version = space.behaviours.propose(
            name, body, body_kind, document=document, parent=parent, evidence=evidence, why=why, notes=notes, agent=agent
        )
    changed = _last_event(space, name) != before
    return Answer(ChangedVersion(VersionSummary(version), changed), lambda: _show_proposal(version, changed=changed))


def _show_proposal(version: BehaviourVersion, *, changed: bool) -> None:
    if changed and version.state == PROPOSED:
        text = f"is proposed, on {len(version.evidence)} commits" if len(version.evidence) > 1 else "is proposed"
    else:
        text = _STATE_WORDS.get(version.state, f"is {version.state}")
        text += "; its evidence was added" if changed else "; nothing was written"
    show_version_line(version, text)
    if version.state == PROPOSED:
        name, cid = one_line(version.name), short(version.cid)
        read = "diff" if version.parent else "show"
        write(f"read it: clia behaviour {read} {cid}\nlet it run: clia behaviour adopt {name} {cid} [--trial]\n")
    _note_unfilled(version)


def _read_version(space: Space, name: str, file: str, kind: str | None, message: str) -> tuple[str, str | None, str]:
    """The body, kind and reason of a new version; the kind is None if it cannot be determined."""
    if file == message == "-":
        raise invalid_option("only one of FILE and --message can be standard input")
    kind = kind or _kind_of_file(name, file, find_behaviour(space, name))
    return read_source(file, "body"), kind, message_text(message)


def _kind_of_file(name: str, file: str, existing: KnownBehaviour | None) -> str | None:
    """The kind that a file name implies; refused if the behaviour has another: a flow's source would pass for a prompt."""
    kind = next((kind for suffix, kind in _KINDS_BY_SUFFIX.items() if file.lower().endswith(suffix)), None)
    if existing is None or kind in (None, existing.kind):
        return kind
    message = f"behaviour {name!r} is a {existing.kind}, but {file} looks like a {kind}"
    hints = [f"if it is a {existing.kind}: --kind {existing.kind}", "otherwise use another name"]
    fields = {"behaviour": name, "kind": existing.kind, "given": kind, "path": file}
    raise Conflict(message, code="wrong-kind", hints=hints, fields=fields)


def _note_unfilled(version: BehaviourVersion) -> None:
    """Print a note about text that looks like a placeholder of a prompt, but is not one."""
    from clia.behaviours.prompts import placeholders

    if version.kind == PROMPT:
        for text in dict.fromkeys(_PLACEHOLDER.findall(version.body)):
            if not placeholders(text):
                note = f"note: {text} is not a placeholder and stays as it is; placeholders are task, agent, title"
                write(one_line(note) + "\n", sys.stderr)


def _last_event(space: Space, name: str) -> str | None:
    """The last commit of a behaviour's history; it changes when something is written."""
    behaviour = find_behaviour(space, name)
    return behaviour.history[0].commit if behaviour and behaviour.history else None


@command("behaviour adopt")
def behaviour_adopt(
    space: Space,
    json_output: bool,
    name: str = arg("NAME|PEER/NAME", "behaviour; for one of a peer, its current version is adopted"),
    version: str | None = arg("CID", "version, by its id or the start of it", nargs="?"),
    trial: bool = flag("let it run by its id only; the name keeps its current version"),
    expect: str | None = EXPECT,
    evidence: list[str] = several("COMMIT", "commits that support it"),
    on_evidence: bool = flag("adopt what clia behaviour suggest suggests, with its evidence"),
    measure: str | None = measure_option("with --on-evidence: measure to judge by"),
    message: str = WHY,
) -> Answer[ChangedVersion]:
    """Make a version current, or let it run on trial.

    With --on-evidence, either the version that is suggested at that moment is adopted, or none.
    """
    require_person("proposals wait for them; list behaviours with: clia behaviour list")
    _check_adopt_options(name, version, trial=trial, evidence=evidence, on_evidence=on_evidence, measure=measure)
    local_name = name.rpartition("/")[2]
    before = _last_event(space, local_name)
    why, proof = message_text(message), list(evidence)
    if on_evidence:
        suggestion = _suggestion(space, name, measure, json_output=json_output)
        version, proof, measure = suggestion.cid, list(suggestion.evidence), suggestion.measure
        expect, why = expect or suggestion.expect, why or f"on evidence: {suggestion.why}"
    if version is None and "/" not in name:
        name = space.behaviours.get(name).name
        hints = [f"list them with: clia behaviour show {name}"]
        hints += [f"or adopt what the evidence supports: clia behaviour adopt {name} --on-evidence"]
        fields = {"field": "version", "behaviour": name}
        raise InvalidInput(f"name a version of {name!r}", code="version-needed", hints=hints, fields=fields)
    adopted = space.behaviours.adopt(name, version, trial=trial, expect=expect, evidence=proof, measure=measure, why=why)
    changed = _last_event(space, local_name) != before
    value = ChangedVersion(VersionSummary(adopted), changed)
    return Answer(value, lambda: _show_adopted(adopted, changed=changed, trial=trial))


def _check_adopt_options(
    name: str, version: str | None, *, trial: bool, evidence: Sequence[str], on_evidence: bool, measure: str | None
) -> None:
    of_peer = "/" in name
    if not on_evidence:
        clashes = [("--measure goes with --on-evidence", bool(measure))]
    else:
        clashes = [
            ("--on-evidence chooses the version: leave out CID", bool(version)),
            ("--on-evidence finds the evidence: leave out --evidence", bool(evidence)),
            ("--on-evidence excludes --trial", trial),
            ("--on-evidence needs versions that ran here, not those of a peer", of_peer),
        ]
    if of_peer:
        clashes.append(("the current version of the peer is adopted: leave out CID", bool(version)))
    for message, clash in clashes:
        if clash:
            raise invalid_option(message, **({"option": "--on-evidence"} if on_evidence else {}))


def _suggestion(space: Space, name: str, measure: str | None, *, json_output: bool) -> Suggestion:
    """The suggestion for a behaviour, if it is to adopt a version."""
    with reading(hidden=json_output) as progress:
        suggestion = space.behaviours.suggest(name, measure, progress=progress)
    if not json_output:
        note_gaps(space.behaviours.gaps())
    if suggestion.action != ADOPT:
        message = f"no version of {suggestion.name!r} is suggested: {suggestion.why}"
        fields = {"behaviour": suggestion.name, "action": suggestion.action, "measure": suggestion.measure}
        raise CliaError(message, code="not-suggested", hints=[f"clia behaviour suggest {suggestion.name}"], fields=fields)
    return suggestion


def _show_adopted(version: BehaviourVersion, *, changed: bool, trial: bool) -> None:
    if not changed:
        text = f"{_STATE_WORDS.get(version.state, f'is {version.state}')}; nothing was written"
    else:
        text = "is on trial: it runs by its id" if trial else "is current: new sessions and spawns use it"
    show_version_line(version, text)
    if changed and trial:
        is_flow = version.kind == SESSION_FLOW
        option = "--proposal" if version.kind == IDENTITY_DOCUMENT else "--behaviour"
        start = "clia session start AGENT" if is_flow else f"clia spawn AGENT --title TITLE {option}"
        cid = version.cid if is_flow else short(version.cid)  # a short id of a flow may become ambiguous
        write(one_line(f"next: {start} {cid}") + "\n")


@command("behaviour retire")
def behaviour_retire(
    space: Space,
    name: str = NAME,
    version: str | None = arg("CID", "version, by its id or the start of it (default: the current one)", nargs="?"),
    expect: str | None = EXPECT,
    message: str = WHY,
) -> Answer[RetiredVersion]:
    """Retire a version, so that it is not started again."""
    require_person(f"propose a better one: clia behaviour propose {name} --from FILE --agent AGENT")
    before = _last_event(space, name)
    retired = space.behaviours.retire(name, version, expect=expect, why=message_text(message))
    changed = _last_event(space, name) != before
    current = space.behaviours.get(name).current

    def show() -> None:
        text = "is retired" if changed else "was already retired; nothing was written"
        no_current = "" if current else f"; {name} has no current version now: clia behaviour adopt {name} CID"
        show_version_line(retired, text + no_current)

    return Answer(RetiredVersion(ChangedVersion(VersionSummary(retired), changed), current), show)


@command("behaviour list")
def behaviour_list(space: Space) -> Answer[list[BehaviourSummary]]:
    """List the behaviours of this space."""
    behaviours = space.behaviours()
    if not behaviours:
        return Answer([], "no behaviours yet; add one with: clia behaviour add NAME FILE")

    def show() -> None:
        rows = []
        for behaviour in behaviours:
            proposed = sum(version.state == PROPOSED for version in behaviour.versions) or ""
            changed = moment(behaviour.history[0].at) if behaviour.history else ""
            current = short(behaviour.current) or "none"
            rows.append((behaviour.name, behaviour.kind, current, len(behaviour.versions), proposed, changed))
        show_rows(*_fitting_columns(rows), right=("versions", "proposed"))

    return Answer([_summary(behaviour) for behaviour in behaviours], show)


def _fitting_columns(rows: Sequence[Sequence[object]]) -> tuple[list[str], list[list[object]]]:
    columns = dict(zip(_LIST_HEADINGS, zip(*rows, strict=True), strict=True))
    for optional in _OPTIONAL_COLUMNS:
        widths = [max(len(heading), *(len(str(cell)) for cell in cells)) for heading, cells in columns.items()]
        if sum(widths) + 2 * (len(widths) - 1) > console().width:
            del columns[optional]
    return list(columns), [list(row) for row in zip(*columns.values(), strict=True)]


@command("behaviour show")
def behaviour_show(
    space: Space,
    name: str = arg("NAME|CID|PEER/NAME", "behaviour, version (its id or the start of it), or a peer's current version"),
    only_body: bool = flag("print only the body, unchanged; for a name, that of its current version", "--body"),
) -> Answer[ShownBehaviour | ShownVersion]:
    """Show a behaviour with its versions and history, or one version."""
    behaviour = None if only_body else find_behaviour(space, name)
    if behaviour is not None:
        current = next((version for version in behaviour.versions if version.cid == behaviour.current), None)
        value = ShownBehaviour(_summary(behaviour), current.body if current else None)
        return Answer(value, lambda: _show_behaviour(behaviour, current))
    if "/" not in name and not all(char in "0123456789abcdef" for char in name):
        space.behaviours.get(name)  # it can only be a name: report it as unknown
    version = space.behaviours.version(name)

    def show() -> None:
        if only_body:
            write(plain(version.body) if console().is_terminal else version.body)
        else:
            _show_version(version)

    return Answer(ShownVersion(VersionSummary(version), version.body), show)


def _show_behaviour(behaviour: KnownBehaviour, current: BehaviourVersion | None) -> None:
    show_line((one_line(behaviour.name), "bold"), f"  {one_line(behaviour.kind)}")
    none = f"none: retired, or not adopted yet; clia behaviour adopt {behaviour.name} CID"
    facts: list[tuple[str, object]] = [("current", behaviour.current or none)]
    facts += [("from", _origin(current)), ("notes", current.notes)] if current else []
    console().print(facts_table(facts))
    console().print()
    rows = []
    for version in reversed(behaviour.versions):
        who = f"{person(version.by)}, from {version.origin}" if version.origin else person(version.by)
        why = version.why.split("\n")[0]
        rows.append((short(version.cid), state_text(version.state), short(version.parent), who, _time(version.at), why))
    show_rows(("version", "state", "parent", "by", "when (UTC)", "why"), rows, cut=("by", "why"))
    console().print()
    _show_history(behaviour.history)


def _origin(version: BehaviourVersion) -> str:
    return f"the peer {version.origin}" if version.origin else ""


def _show_history(history: Sequence[BehaviourEvent]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("when (UTC)", "event", "version"):
        table.add_column(heading, no_wrap=True)
    table.add_column("by, why and on what evidence", overflow="fold")
    for event in history:
        who = one_line(f"{person(event.by)}: {event.why}" if event.why else person(event.by))
        measure = f"\nby {one_line(event.measure)}" if event.measure else ""
        evidence = f"\non {some_ids(event.evidence)}" if event.evidence else ""
        text = line_of(who, (measure + evidence, "dim"))
        table.add_row(_time(event.at), event.event, styled(short(event.cid), "yellow"), text)
    console().print(table)


def _time(at: int) -> str:
    return moment(at) if at else ""


def _show_version(version: BehaviourVersion) -> None:
    show_line((one_line(version.name), "bold"), "  ", (version.cid, "yellow"), "  ", state_text(version.state))
    facts: list[tuple[str, object]] = [("kind", version.kind), ("parent", version.parent), ("from", _origin(version))]
    facts.insert(1, ("document", version.document))
    facts += [("by", version.by), ("when", _time(version.at)), ("why", version.why), ("notes", version.notes)]
    console().print(facts_table([*facts, ("evidence", "\n".join(version.evidence))]))
    console().print()
    show_source(version.body)


@json_form(plan=EMBED + "slug")
class ExportedBehaviour(NamedTuple):
    behaviour: str  # the behaviour
    cid: str  # the version
    plan: ExportPlan
    written: bool  # whether files were written


@command("behaviour export")
def behaviour_export(
    space: Space,
    path: str,
    behaviour: str = arg("NAME|CID", "prompt: its current version, or one that may run"),
    format_: str = opt("FORMAT", "skill: .claude/skills/NAME/SKILL.md", "--to", required=True, choices=["skill"]),
    check: bool = CHECK,
    dry_run: bool = DRY_RUN,
    force: bool = FORCE,
    output_root: str | None = OUTPUT_ROOT,
) -> Answer[ExportedBehaviour]:
    """Write a prompt as a skill for other tools.

    With --check, exit code 1 if the copy is stale or missing; otherwise exit code 1 if writing is refused.
    """
    from clia.behaviours.export import export_prompt

    del format_  # there is one
    written = not (check or dry_run)
    version, plan = export_prompt(space, behaviour, path, output_root=output_root, write=written, force=force)

    def show() -> None:
        files = [(outcome.path, outcome.format, outcome.state, outcome.reason) for outcome in plan.outcomes]
        show_files(f"{version.name} {short(version.cid)} in {plain(plan.root)}", files, written=written)

    failed = not plan.is_fresh() if check else plan.blocked(force=force)
    return Answer(ExportedBehaviour(version.name, version.cid, plan, written), show, 1 if failed else 0, plan.diagnostics)

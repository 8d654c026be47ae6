"""Checks whether events of tools arrive, and why not.

Invariant: read-only. Every finding has a code, one sentence and a hint. An unreadable file is a finding, never a failure. The
caller passes what was captured, because the space knows it.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from clia.capture import spool_reader as spool
from clia.capture.installation.findings import ERROR, INFO, WARNING, HookFinding
from clia.capture.installation.hook_tools import (
    SCOPES,
    SERVER,
    TOOLS,
    USER,
    common_dir,
    installed_plugin,
    is_space,
    placed_in,
    plugin_of,
    settings_in,
    switched_off,
)
from clia.capture.installation.installed_tools import distrust, mcp_problem, spelled
from clia.capture.installation.spool_health import SpoolHealth, spool_health
from clia.capture.installation.stopped_hooks import broken_settings, stopped_hooks
from clia.capture.transcripts import first_lines, list_folder
from clia.errors import CliaError
from clia.facade.settings import Settings, clock_of
from clia.files import LocalFiles
from clia.git.libgit2 import find_repository
from clia.values import documents
from clia.values.clock import timestamp
from clia.values.records import fields_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from clia.capture.installation.hook_tools import CliaProgram, HookTool, Version
    from clia.capture.service import CapturedSession

PLUGIN = "plug-in"
_SETTLING, _LONG_STEP = timedelta(minutes=1), timedelta(hours=1)
_HEAD = 1 << 16
_RECENT = timedelta(days=7)
_DAYS, _ROLLOUTS = 7, 50  # folders and files of Codex to look at
_LOOKED_AT = 1000  # newest events to read for their tool


class HookPlace(NamedTuple):
    """Where a tool's hooks are installed."""

    scope: str  # `project`, `local`, `user`, or `plug-in` for Claude Code
    path: str  # the file
    events: tuple[str, ...]  # events that run clia
    missing: tuple[str, ...]  # events we need that do not run clia
    commands: tuple[str, ...]  # programs that they run
    unguarded: tuple[str, ...] = ()  # events whose hook fails where clia is missing
    changed: tuple[str, ...] = ()  # events whose hook also runs another command


class ToolHealth(NamedTuple):
    """The hooks of one tool."""

    tool: str  # the tool
    places: tuple[HookPlace, ...]  # where its hooks are installed
    last: str | None  # when the last event arrived
    sessions: int  # captured sessions


class HooksHealth(NamedTuple):
    """The hooks of all tools."""

    tools: tuple[ToolHealth, ...]  # with hooks installed, or with events
    spool: SpoolHealth | None  # events of hooks that wait; null: not a space
    findings: tuple[HookFinding, ...]  # problems

    @property
    def sound(self) -> bool:
        return all(finding.severity != ERROR for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        return fields_json(self)


class HookInspection(NamedTuple):
    """The context of an inspection."""

    root: str | None
    common: str | None  # the git directory, if it is a space
    environment: Mapping[str, str]
    program: CliaProgram
    now: datetime
    version_of: Callable[[str], Version | None]  # of an installed program


def examine(
    path: str,
    *,
    environment: Mapping[str, str],
    program: CliaProgram,
    captured: Sequence[CapturedSession] = (),
    now: datetime | None = None,
    version_of: Callable[[str], Version | None] = lambda _: None,
) -> HooksHealth:
    root = find_repository(path)
    common = common_dir(root) if root is not None and is_space(root) else None
    inspection = HookInspection(root, common, environment, program, now or clock_of(Settings())(), version_of)
    findings: list[HookFinding] = []
    arrived = _arrived(inspection, captured)
    tools = []
    for tool in TOOLS.values():
        sessions = sum(session.tool == tool.name and not session.sub for session in captured)
        places = _places(tool, inspection, findings, is_used=sessions > 0 or tool.name in arrived)
        if places or sessions or tool.name in arrived:
            last = arrived.get(tool.name)
            tools.append(ToolHealth(tool.name, tuple(places), None if last is None else timestamp(last), sessions))
        if places:
            findings += _tool_findings(tool, places, inspection, arrived.get(tool.name))
        elif common is not None:
            findings += _not_installed(tool, inspection, arrived.get(tool.name))
    findings += _mcp_findings(inspection)
    findings += _session_findings(inspection, captured)
    state = None
    if common is not None:
        state, spool_findings = spool_health(common, environment, inspection.now, installed=any(health.places for health in tools))
        findings += spool_findings
    return HooksHealth(tuple(tools), state, tuple(findings))


def captured_in(path: str, settings: Settings) -> tuple[CapturedSession, ...]:
    """The captured sessions of a space; empty if it cannot be opened, which is reported elsewhere."""
    from clia.facade.opening import open_space  # loads libgit2 and a store

    try:
        with open_space(path, settings=settings) as space:
            return tuple(space.captures.sessions())
    except CliaError:
        return ()


def _places(tool: HookTool, inspection: HookInspection, findings: list[HookFinding], *, is_used: bool) -> list[HookPlace]:
    places: list[HookPlace] = []
    paths = set()
    for scope in SCOPES:
        path = tool.file(scope, inspection.root, inspection.environment)
        if path is None or path in paths:  # a home directory that is a repository has one file for two scopes
            continue
        paths.add(path)
        if tool.plugin:
            places += _plugin_place(tool, scope, path)
            continue
        try:
            settings = settings_in(path) or {}
        except CliaError as err:
            broken = broken_settings(tool, data, err) if (data := _content(path)) is not None else None
            if broken is not None and (is_used or b"clia" in (data or b"")):
                findings.append(broken)
            elif _speaks_of_us(path):  # otherwise the tool is not used here
                hint = f"{tool.title} may still read it; clia installs and checks hooks in plain JSON only"
                findings.append(HookFinding("unreadable-settings", WARNING, tool.name, err.message, hint))
            continue
        findings += stopped_hooks(tool, scope, path, settings)
        hooks = [placed for placed in placed_in(settings) if placed.hook.tool == tool.name]
        if hooks:
            full = {placed.event for placed in hooks if placed.matches_all}
            events = tuple(event for event in tool.events if event in full)
            missing = tuple(event for event in tool.events if event not in full)
            programs = tuple(dict.fromkeys(placed.hook.program for placed in hooks))
            unguarded = tuple(placed.event for placed in hooks if not placed.hook.guarded and not placed.hook.changed)
            changed = tuple(placed.event for placed in hooks if placed.hook.changed)
            places.append(HookPlace(scope, path, events, missing, programs, unguarded, changed))
        if tool.name == "claude-code" and _has_plugin(settings):
            places.append(HookPlace(PLUGIN, path, tuple(tool.events), (), (SERVER,)))
    return places


def _plugin_place(tool: HookTool, scope: str, path: str) -> list[HookPlace]:
    content = installed_plugin(path)
    if content is None:
        return []
    current = any(content == plugin_of(tool, word) for word in (SERVER, *_programs_in(content)))
    return [HookPlace(scope, path, (), (), _programs_in(content), changed=() if current else ("plug-in",))]


def _programs_in(content: bytes) -> tuple[str, ...]:
    """The program that a plug-in runs."""
    return tuple(re.findall(r'"([^"\n]+)", \["hook"', content.decode("utf-8", "replace")))


def _content(path: str) -> bytes | None:
    """The content of a file; None if it cannot be read."""
    try:
        return LocalFiles().read(path, documents.MAX_BYTES) or b""
    except CliaError:
        return None


def _speaks_of_us(path: str) -> bool:
    content = _content(path)
    return content is None or b"clia" in content  # unreadable: cannot be determined


def _has_plugin(settings: Mapping[str, Any]) -> bool:
    """Whether our plug-in is enabled, from any marketplace."""
    enabled = settings.get("enabledPlugins")
    return isinstance(enabled, dict) and any(on and name.partition("@")[0] == SERVER for name, on in enabled.items())


def _arrived(inspection: HookInspection, captured: Sequence[CapturedSession]) -> dict[str, datetime]:
    """When each tool's newest event arrived, captured or still waiting."""
    newest: dict[str, datetime] = {}
    times = [(session.tool, session.last) for session in captured if session.last]
    for directory in spool.spools(inspection.common, inspection.environment) if inspection.common else ():
        times += _waiting_tools(directory)
    for tool, text in times:
        at = datetime.fromisoformat(text)
        newest[tool] = max(at, newest.get(tool, at))
    return newest


def _waiting_tools(directory: str) -> Iterator[tuple[str, str]]:
    for folder in (spool.NEW, spool.REJECTED):
        for name in list_folder(os.path.join(directory, folder))[-_LOOKED_AT:]:
            try:
                header, _ = spool.parse(spool.content(os.path.join(directory, folder, name), _HEAD))
            except (OSError, CliaError):  # ingested meanwhile, or not an event
                continue
            yield header.get("tool", ""), spool.time_of(name)


def _tool_findings(
    tool: HookTool, places: Sequence[HookPlace], inspection: HookInspection, last: datetime | None
) -> Iterator[HookFinding]:
    """Why events of a tool may not arrive although hooks are installed."""
    yield from _program_findings(tool, places, inspection)
    for off in switched_off(tool, inspection.root, inspection.environment):
        hint = f"remove that setting, or {tool.title} runs no hooks"
        yield HookFinding("hooks-switched-off", ERROR, tool.name, f"the hooks of {tool.title} are installed, but {off}", hint)
    version = inspection.version_of(tool.program) if tool.since else None
    for place in places:
        yield from _event_findings(tool, place, version)
        yield from _altered(tool, place)
    if len(places) > 1:
        listed = " and ".join(f"{place.path} ({place.scope})" for place in places)
        hint = "remove one of them: clia hook uninstall --scope …, or disable the plug-in"
        yield HookFinding("installed-twice", WARNING, tool.name, f"the hooks of {tool.title} are installed in {listed}", hint)
    if inspection.common is None:
        severity = INFO if all(place.scope in (USER, PLUGIN) for place in places) else WARNING
        message = f"the hooks of {tool.title} are installed, but this is not a space: hooks record nothing here"
        outer = find_repository(os.path.dirname(inspection.root)) if inspection.root else None
        hint = "clia init makes the repository a space"
        if outer is not None and is_space(outer):
            hint += f"; to record in {outer}, which is one, start {tool.title} there"
        yield HookFinding("no-space", severity, tool.name, message, hint)
    else:
        yield from _silence(tool, places, inspection, last)


def _event_findings(tool: HookTool, place: HookPlace, version: Version | None) -> Iterator[HookFinding]:
    """Events that are missing in a settings file, or that the installed version does not know."""
    known_events, hint = tool.known(version), f"clia hook install {tool.name} --scope {place.scope}"
    missing = [event for event in place.missing if event in known_events]
    if missing:
        message = f"{place.path} runs clia for some events of {tool.title} only; missing: {', '.join(missing)}"
        yield HookFinding("events-missing", WARNING, tool.name, message, hint)
    if version is None:
        return
    if "SessionStart" not in known_events:
        message = f"{tool.title} {spelled(version)} is too old: it does not report the start of a session"
        yield HookFinding("tool-too-old", ERROR, tool.name, message, f"update {tool.title}, then: {hint}")
    unknown = [event for event in place.events if event not in known_events]
    if unknown and version < tool.tolerant and place.scope != PLUGIN:
        message = f"{tool.title} {spelled(version)} does not know {', '.join(unknown)}, and therefore ignores all of {place.path}"
        yield HookFinding("events-unknown", ERROR, tool.name, message, f"{hint}; or update {tool.title}")


def _not_installed(tool: HookTool, inspection: HookInspection, last: datetime | None) -> Iterator[HookFinding]:
    """A tool that works here without hooks."""
    worked = _worked(tool, inspection)
    if worked is not None and inspection.now - worked < _RECENT and (last is None or worked > last + _LONG_STEP):
        message = f"{tool.title} worked here at {timestamp(worked)}, but its hooks are not installed: nothing was recorded"
        yield HookFinding("hooks-not-installed", WARNING, tool.name, message, f"clia hook install {tool.name}")


def _mcp_findings(inspection: HookInspection) -> Iterator[HookFinding]:
    problem = mcp_problem(inspection.root, inspection.environment) if inspection.root is not None else None
    if problem is not None:
        yield HookFinding("mcp-not-approved", WARNING, "claude-code", problem.reason, problem.hint)


def _session_findings(inspection: HookInspection, captured: Sequence[CapturedSession]) -> Iterator[HookFinding]:
    """Recent sessions that were recorded under another agent, or whose transcripts were not read."""
    since = timestamp(inspection.now - _RECENT, "milliseconds")
    for session in captured:
        if session.last < since or session.sub:
            continue
        if session.wanted:
            message = f"a session of {session.tool} with CLIA_AGENT={session.wanted} is recorded as {session.agent}"
            hint = (
                f"{session.wanted} is not valid, works elsewhere or belongs to another session; see: clia agents, clia hub status"
            )
            yield HookFinding("agent-not-used", WARNING, session.tool, message, hint)
        if session.left_out:
            files = "; ".join(f"{path}: {reason}" for path, reason in session.left_out.items())
            hint = "ignore them with .gitignore, or change the limits: [capture] in the configuration"
            yield HookFinding("files-not-recorded", INFO, session.tool, f"not recorded for {session.agent}: {files}", hint)
        if session.refused:
            message = f"the transcript {session.refused} was not read for {session.agent}: it is another session's or project's"
            hint = f"see which program runs clia hook {session.tool} with this path; prompts and calls come from hooks only"
            yield HookFinding("transcript-refused", WARNING, session.tool, message, hint)
        elif session.transcript and not os.access(session.transcript, os.R_OK):
            is_there = os.path.lexists(session.transcript)
            message = f"the transcript {session.transcript} of {session.agent} {'cannot be read' if is_there else 'is missing'}"
            hint = "make it readable for this account" if is_there else "answers are missing; let the tool keep its transcripts"
            yield HookFinding("transcript-missing", WARNING if is_there else INFO, session.tool, message, hint)


def _altered(tool: HookTool, place: HookPlace) -> Iterator[HookFinding]:
    """Hooks that are not as ``clia hook install`` writes them."""
    if place.unguarded:
        message = f"{place.path} runs clia without a guard: where clia is missing, {tool.title} may refuse to work"
        hint = f"clia hook install {tool.name} --scope {place.scope}"
        yield HookFinding("hooks-unguarded", WARNING, tool.name, message, hint)
    if place.changed:
        events = ", ".join(place.changed)
        message = f"{place.path} has changed hooks, which may not run clia: {events}"
        hint = (
            f"check them; to have them as clia writes them: take them out, then clia hook install {tool.name} --scope {place.scope}"
        )
        yield HookFinding("hooks-changed", INFO, tool.name, message, hint)


def _program_findings(tool: HookTool, places: Sequence[HookPlace], inspection: HookInspection) -> Iterator[HookFinding]:
    program = inspection.program
    for command in dict.fromkeys(command for place in places for command in place.commands):
        if os.path.isabs(command):
            if not os.access(command, os.X_OK):
                message = f"the hooks of {tool.title} run {command}, which does not exist or is not executable"
                yield HookFinding("clia-gone", ERROR, tool.name, message, "run clia hook install again to write the current path")
        elif program.found is None:
            message = f"the hooks of {tool.title} run clia, which is not on PATH: no event can arrive"
            hint = f"put the folder of {program.own} on the PATH of the account that starts {tool.title}"
            yield HookFinding("clia-not-on-path", ERROR, tool.name, message, hint)
        elif not program.is_found:
            message = f"the hooks of {tool.title} run the clia on PATH, which is {program.found}, and not this one, {program.own}"
            yield HookFinding("other-clia", WARNING, tool.name, message, "keep one of the two, or put the right one first on PATH")


def _silence(
    tool: HookTool, places: Sequence[HookPlace], inspection: HookInspection, last: datetime | None
) -> Iterator[HookFinding]:
    """No events, or none lately: an error if the tool was evidently in use."""
    worked = _worked(tool, inspection)
    installed = min((at for place in places if (at := _written(place.path))), default=inspection.now)
    # After earlier events, a tool may be busy with one long step and still write its transcript.
    expected = installed + _SETTLING if last is None else last + _LONG_STEP
    if worked is not None and worked > expected:
        since = "ever" if last is None else f"since {timestamp(last)}"
        message = f"{tool.title} worked here at {timestamp(worked)}, with hooks installed, and no event arrived {since}"
        hint = f"restart {tool.title}, because it may read its settings only at start; its /hooks command shows what it runs"
        if tool.name == "codex":
            hint = "type /hooks in Codex and trust the hooks: it runs no others"
        yield HookFinding("nothing-arrives", ERROR, tool.name, message, hint)
    elif last is None and (problem := distrust(tool, inspection.root or "", inspection.environment)) is not None:
        message = f"the hooks of {tool.title} are installed, but do not run: {problem.reason}"
        yield HookFinding("hooks-not-trusted", ERROR, tool.name, message, problem.hint)
    elif last is None:
        message = f"the hooks of {tool.title} are installed, but no event has arrived"
        trust = ", and trust the hooks there: /hooks" if tool.name == "codex" else ""
        yield HookFinding("nothing-arrived", WARNING, tool.name, message, f"start {tool.title} here once{trust}; then check again")


def _worked(tool: HookTool, inspection: HookInspection) -> datetime | None:
    """When the tool last wrote about work in this directory, as far as its files tell."""
    folder = tool.user_folder(inspection.environment)
    if inspection.root is None or tool.name not in ("claude-code", "codex"):
        return None
    if tool.name == "codex":
        days = sorted((f"{folder}/sessions/{year}/{month}/{day}" for year, month, day in _days(f"{folder}/sessions")), reverse=True)
        rollouts = [f"{day}/{name}" for day in days[:_DAYS] for name in list_folder(day)][-_ROLLOUTS:]
        files = [path for path in rollouts if ("cwd", inspection.root) in _first_payload(path).items()]
    else:  # Claude Code names the folder after the directory
        name = "".join(char if char.isascii() and char.isalnum() else "-" for char in inspection.root)
        files = [f"{folder}/projects/{name}/{file}" for file in list_folder(f"{folder}/projects/{name}")]
    return max((at for file in files if (at := _written(file))), default=None)


def _days(folder: str) -> list[tuple[str, str, str]]:
    """The newest folders of days: ``YEAR/MONTH/DAY``."""
    months = [(year, month) for year in list_folder(folder)[-2:] for month in list_folder(f"{folder}/{year}")[-2:]]
    return [(year, month, day) for year, month in months for day in list_folder(f"{folder}/{year}/{month}")]


def _first_payload(path: str) -> dict[str, Any]:
    payload = next((line.get("payload") for line in first_lines(path, _HEAD)), None)
    return payload if isinstance(payload, dict) else {}


def _written(path: str) -> datetime | None:
    try:
        return datetime.fromtimestamp(os.stat(path).st_mtime, UTC)
    except OSError:
        return None

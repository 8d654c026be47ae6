"""Recording what coding tools do: hook, ingest."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypedDict, cast

from clia import __version__
from clia.capture.installation.hook_tools import SCOPES, TOOLS
from clia.cli.command import IN_SPACE, JSON, PATH, Answer, arg, command, flag, opt
from clia.cli.inputs import positive, read_bytes, require_confirmation, require_person
from clia.cli.output import console, counted, emit_json, one_line, plain, show_error, write
from clia.cli.rendering import progress_bar, show_line, show_table
from clia.errors import CliaError, FileError, InvalidDocument, InvalidInput, NotFound
from clia.values.records import EMBED, json_form

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Annotated, BinaryIO

    from clia.capture.entries import IngestCounts
    from clia.capture.installation.hook_settings import SettingsFile, SettingsPlan
    from clia.capture.installation.hook_tools import CliaProgram, HookTool
    from clia.capture.rehearsal import Setting
    from clia.capture.rehearsal.script import ScriptStep
    from clia.facade.settings import Settings
    from clia.facade.space import Space

_WRITTEN = {"create": "created", "edit": "changed", "remove": "removed"}
_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}
_COUNTS = (
    ("events", "event"),
    ("entries", "trace entry", "trace entries"),
    ("agents", "new agent"),
    ("sub_agents", "new sub-agent"),
    ("commits", "commit"),
    ("merges", "merge"),
    ("rejected", "event rejected", "events rejected"),
    ("left", "event waiting", "events waiting"),
    ("left_out", "file not recorded", "files not recorded"),
)
_TEXT_WIDTH = 60

# Without choices: argparse would check them against an empty list too.
TOOLS_FOUND, ALL_TOOLS = (
    arg("TOOL", f"{', '.join(TOOLS)} (default: {default})", nargs="*") for default in ("the tools found here", "all")
)
SCOPE = opt(
    None,
    "settings of this repository for everyone (default), of this repository for you, or of all your repositories",
    choices=SCOPES,
    default="project",
)
YES = flag("do not ask for confirmation")
DRY_RUN = flag("write nothing; show what would change")


@command("hook install")
def hook_install(
    tools: list[str] = TOOLS_FOUND,
    scope: str = SCOPE,
    path: str = PATH,
    yes: bool = YES,
    dry_run: bool = DRY_RUN,
    json_output: bool = JSON,
    mcp: bool = flag("also add clia's MCP server to the tools"),
) -> Annotated[int, AppliedPlan]:
    """Make tools run clia for each of their events.

    Shows the change to their settings and asks before it writes. Exit code 1 if that is not confirmed.
    """
    from clia.capture.installation.hook_settings import install, target
    from clia.capture.installation.hook_tools import tool_named
    from clia.capture.installation.installed_tools import installed_version

    where = target(scope, path, os.environ)
    chosen = [tool_named(name) for name in dict.fromkeys(tools)] or _tools_found(where)
    versions = {tool.name: installed_version(tool.program, os.environ) for tool in chosen if tool.since}
    plan = install(chosen, where, this_program(), mcp=mcp, versions=versions)
    unchanged = f"already installed: {', '.join(tool.title for tool in chosen)}"
    code = _apply_plan(plan, unchanged, yes=yes, dry_run=dry_run, json_output=json_output)
    if mcp and not code and not dry_run:
        _prepare_server()
    return code


def _prepare_server() -> None:
    """Prepare the first answers of ``clia mcp``, so that its first start is as fast as any."""
    from clia.mcp.server import prepare_answers
    from clia.mcp.startup_cache import answers_directory, installed_code

    with suppress(Exception):  # without them, the first start takes longer
        prepare_answers(__version__, answers_directory(os.environ), f"{__version__} {installed_code()}")


@command("hook uninstall")
def hook_uninstall(
    tools: list[str] = ALL_TOOLS,
    scope: str = SCOPE,
    path: str = PATH,
    yes: bool = YES,
    dry_run: bool = DRY_RUN,
    json_output: bool = JSON,
) -> Annotated[int, AppliedPlan]:
    """Remove clia from the settings of tools."""
    require_person("hooks record and guard agents: ask a person to remove them")
    from clia.capture.installation.hook_settings import target, uninstall
    from clia.capture.installation.hook_tools import tool_named

    where = target(scope, path, os.environ)
    every = [tool for tool in TOOLS.values() if scope in tool.files]
    chosen = [tool_named(name) for name in dict.fromkeys(tools)] or every
    unchanged = f"the settings of scope {scope} do not contain clia"
    return _apply_plan(uninstall(chosen, where), unchanged, yes=yes, dry_run=dry_run, json_output=json_output)


def _tools_found(where: SettingsFile) -> list[HookTool]:
    import shutil

    from clia.capture.installation.hook_settings import tools_here

    tools = tools_here(where, [tool.program for tool in TOOLS.values() if shutil.which(tool.program)])
    if not tools:
        supported = ", ".join(f"{tool.name} ({tool.title})" for tool in TOOLS.values() if where.scope in tool.files)
        raise NotFound("no supported tool was found", code="no-tool-found", hints=[f"name one: {supported}"])
    return tools


def this_program() -> CliaProgram:
    """The running clia, and the one that the name ``clia`` finds."""
    import shutil

    from clia.capture.installation.hook_tools import CliaProgram

    on_path = shutil.which("clia")
    started = os.path.abspath(sys.argv[0])
    beside = os.path.join(os.path.dirname(sys.executable), "clia")  # for the program of an identity, and python -m clia
    candidates = (started if os.path.basename(started) == "clia" else beside, beside, on_path or beside)
    return CliaProgram(next((path for path in candidates if os.access(path, os.X_OK)), beside), on_path)


@json_form(plan=EMBED)
class AppliedPlan(NamedTuple):
    """A change to the settings of tools."""

    plan: SettingsPlan
    written: bool  # whether it was written


def _apply_plan(plan: SettingsPlan, unchanged: str, *, yes: bool, dry_run: bool, json_output: bool) -> int:
    """Show a change of settings, ask, and write it."""
    from clia.capture.installation.hook_settings import apply

    confirmed = yes and not dry_run
    if json_output:
        if confirmed:
            apply(plan)
        emit_json(AppliedPlan(plan, confirmed and not plan.is_empty))
        if not (confirmed or dry_run or plan.is_empty):
            require_confirmation("", ask=False)
        return 0
    for change in plan.changes:
        for line in change.diff(_relative(change.path)).splitlines() if change.kind != "none" else ():
            show_line((plain(line), _DIFF_STYLES.get(line[:1], "")))
    if plan.is_empty:
        write(f"{unchanged}\n")
    elif not dry_run:
        if not confirmed:
            require_confirmation("Write these changes?", ask=sys.stdin.isatty() and sys.stdout.isatty())
        apply(plan)
        for change in plan.changes:
            if change.kind != "none":
                write(f"{_WRITTEN[change.kind]}: {one_line(_relative(change.path))}\n")
    for note in plan.notes:
        write(f"note: {one_line(note)}\n")
    return 0


def _relative(path: str) -> str:
    return path.removeprefix(os.getcwd().rstrip("/") + "/")


def _record_event(tool: HookTool) -> Callable[[], int]:
    def record_event() -> int:
        from clia.capture.hook import record

        record(tool.name)
        return 0

    record_event.__doc__ = f"""Record an event of {tool.title}; its hooks run this.

    The event is the JSON on standard input. Always exits with code 0.
    """
    return record_event


# ``clia.cli.entry`` records events of tools before any parser is loaded; these commands exist for help and completion.
for _tool in TOOLS.values():
    _json = flag("accepted for uniformity: a hook prints nothing", "--json")
    command(f"hook {_tool.name}", json_output=_json)(_record_event(_tool))


@command("hook answer", **IN_SPACE)
def hook_answer(
    settings: Settings,
    path: str,
    tool: str = arg("TOOL", "tool whose event is on standard input"),
    seconds: float = opt("SECONDS", "how long the tool waits for its hook", default=10.0, type=positive),
) -> int:
    """Answer a tool's question about a call; its hooks run this where rules ask people.

    The event is the JSON on standard input. Always exits with code 0: if anything fails, the tool asks in its own way.
    """
    from clia.capture.permissions.answers import write_answer
    from clia.capture.permissions.questions import answer, event_in
    from clia.facade.opening import open_space

    data, event = sys.stdin.buffer.read(), "PreToolUse"
    try:
        with open_space(path, settings=settings) as space:
            event = event_in(data)["hook_event_name"]
            decision = answer(space, tool, data, seconds, os.environ)
        write_answer(tool, event, decision.do, decision.reason)
    except Exception as err:  # noqa: BLE001  # a failure must not let the call run unasked
        if isinstance(err, CliaError) and err.code == "no-such-space":
            return 0  # nor are there rules
        write_answer(tool, event, "ask", f"clia could not ask a person: {type(err).__name__}: {err}; the tool asks instead")
    return 0


@command("acp", runs_program=True)
def acp(
    space: Space,
    program_words: list[str],
    agent: str = arg("AGENT", "agent that the program works as"),
    program: list[str] = arg("-- PROGRAM ARGS", "agent program that speaks the Agent Client Protocol", nargs="*"),
) -> int:
    """Relay between an editor and an agent program, and ask people where rules want that.

    The editor starts this command instead of the program. The exit code is that of the program; 127 if it was not found.
    """
    import subprocess
    import threading

    from clia.capture.permissions.acp import Channel, Relay

    if program or not program_words:
        raise InvalidInput("put -- before the program", code="usage", hints=["clia acp AGENT -- PROGRAM ARGS"])
    space.head(agent)  # report an unknown agent first
    variables, pipe = {**os.environ, "CLIA_AGENT": agent}, subprocess.PIPE
    try:
        running = subprocess.Popen(program_words, env=variables, stdin=pipe, stdout=pipe)
    except OSError as err:
        fields = {"path": program_words[0], "reason": str(err.strerror)}
        show_error(FileError(f"{program_words[0]}: {err.strerror}", code="program-not-found", fields=fields), as_json=False)
        return 127
    relay = Relay(space, agent, os.environ, lambda text: write(f"clia: {one_line(text)}\n", sys.stderr))
    to_agent, to_editor = Channel(cast("BinaryIO", running.stdin)), Channel(sys.stdout.buffer)
    threading.Thread(target=relay.from_editor, args=(sys.stdin.buffer, to_agent), daemon=True).start()
    relay.from_agent(cast("BinaryIO", running.stdout), to_agent, to_editor)
    return running.wait()


@json_form(done=EMBED)
class IngestAnswer(NamedTuple):
    done: IngestCounts
    trouble: tuple[CliaError, ...]  # why events wait


@command("ingest", **IN_SPACE)
def ingest(
    settings: Settings,
    path: str,
    json_output: bool,
    quiet: bool = flag("print nothing, and exit if another process is already ingesting", "-q --quiet"),
) -> Answer[IngestAnswer] | int:
    """Turn recorded events into agents, traces and commits.

    Exit code 1 if some events could not be ingested.
    """
    from clia.capture.ingest import ingest as ingest_events  # loads git and the store: 0.1 s
    from clia.facade.opening import open_space

    with open_space(path, settings=settings) as space:
        if quiet:
            return 1 if ingest_events(space, settings, os.environ, wait=False).trouble else 0
        with progress_bar("Reading events", hidden=json_output) as progress:
            report = ingest_events(space, settings, os.environ, progress=progress)

    def show() -> None:
        counts = [(getattr(report.done, name), *words) for name, *words in _COUNTS]
        write(f"{', '.join(counted(*count) for count in counts if count[0]) or 'nothing to ingest'}\n")
        for error in report.trouble:
            show_error(error, as_json=False)
        if report.done.rejected:
            console(stderr=True).print("some events were rejected; see which, and why: clia doctor", style="yellow")
        if report.done.left_out:
            console(stderr=True).print("some files are not recorded; see which, and why: clia doctor", style="yellow")

    return Answer(IngestAnswer(report.done, report.trouble), show, exit_code=1 if report.trouble else 0)


def _seed(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) >= 2**31:
        raise argparse.ArgumentTypeError(f"must be a number from 0 on, not {text!r}")
    return int(text)


class RehearsalReport(TypedDict):
    """A simulated session of a tool."""

    tool: str  # the tool
    version: str  # its version
    seed: int  # seed of all ids
    session: str  # id of the session; the last one, if there were several
    sessions: list[str]  # ids of all sessions
    directory: str  # directory that the tool works in
    home: str  # directory of its transcripts
    transcript: str  # transcript of the session
    agents: list[dict[str, Any]]  # its sub-agents: `id` and `type`, among others
    ended: str  # `done`, `stopped` or `crashed`
    events: list[dict[str, Any]]  # number `n`, `kind`, `agent`, `text`, the `hook` that was run, and its `exit` code


@command("hook rehearse")
def hook_rehearse(
    json_output: bool,
    tool: str = arg(None, "tool to simulate (default: claude-code)", nargs="?", default="claude-code", choices=tuple(TOOLS)),
    seed: int | None = opt("N", "seed of all ids (default: the first one not used here)", type=_seed),
    script: str | None = opt("FILE", "script of the session, as JSON ('-': standard input; default: a short demo)"),
    home: str | None = opt("DIR", "directory of the tool's transcripts (default: beside the space)"),
    hook: str | None = opt("COMMAND", "command that the tool runs for each event (default: clia hook TOOL)"),
    no_hooks: bool = flag("write only transcripts, as if no hook were installed"),
    start: str | None = opt("TIME", "time at which the session begins, such as 2026-05-01T09:00:00Z (default: now)"),
    stop_after: int | None = opt("N", "stop after N events, as if the terminal were closed", type=positive),
    path: str | None = opt("DIR", "directory that the tool works in, and whose files it changes (default: a new repository)"),
) -> Answer[Annotated[dict[str, Any], RehearsalReport]]:
    """Simulate a session of a tool, to try hooks out.

    It runs in a new repository in the temporary directory, unless --path names one of yours. Exit code 1 if a hook failed.
    """
    from clia.capture.rehearsal import ScriptError, parse, play, story
    from clia.capture.rehearsal.stage import free_directory

    steps: Sequence[ScriptStep] = () if script is None else _read_script(script)
    place = path or _scratch_repository()
    setting = _rehearsal_setting(tool, place, home=home, hook=None if no_hooks else hook or "", start=start, stop_after=stop_after)
    resumes = bool(steps) and steps[0].verb in ("resume", "fork")
    setting = setting._replace(seed=_rehearsal_seed(setting, seed, resumes=resumes))
    try:
        if script is None:
            steps = parse(story(free_directory(setting.directory, "durations")))
        report = play(setting, steps)
    except ScriptError as err:
        raise _script_error(script, err) from None
    failed = sum(1 for event in report["events"] if event.get("exit"))

    if report["ended"] == "crashed":
        emit_json(report) if json_output else _show_rehearsal(report, failed)
        os.kill(os.getpid(), signal.SIGKILL)

    def show() -> None:
        _show_rehearsal(report, failed)
        if path is None:
            write(f"it ran in a new repository; look at what was recorded: cd {place} && clia status\n")

    return Answer(report, show, exit_code=1 if failed else 0)


def _scratch_repository() -> str:
    """A new repository with a space: a rehearsal changes no files of a person unless it is told to."""
    from tempfile import mkdtemp

    from clia.cli.demo import PERSON, new_repository
    from clia.facade.settings import Settings
    from clia.facade.setup import set_up

    for variable in ("CLIA_STORE", "CLIA_CONFIG", "CLIA_AGENT", "CLIA_RUN"):
        os.environ.pop(variable, None)  # of the person's own space
    directory = os.path.join(mkdtemp(prefix="clia-rehearsal-"), "scratch")
    new_repository(directory, {"README.md": "A scratch repository for a rehearsal\n"}, "Start")
    set_up(directory, settings=Settings(person=PERSON, durable=False)).space.close()
    return directory


def _read_script(path: str) -> Sequence[ScriptStep]:
    from clia.capture.rehearsal import ScriptError, parse

    try:
        return parse(json.loads(read_bytes(path)))
    except ScriptError as err:
        raise _script_error(path, err) from None
    except (ValueError, RecursionError) as err:
        raise InvalidDocument(f"{path} is not JSON: {err}", code="invalid-script", fields={"path": path}) from None


def _script_error(script: str | None, err: Any) -> InvalidDocument:
    path = script or "the demo"
    return InvalidDocument(f"{path}: {err}", code="invalid-script", fields={"path": path, "step": err.where})


def _rehearsal_setting(
    tool: str, path: str, *, home: str | None, hook: str | None, start: str | None, stop_after: int | None
) -> Setting:
    """The setting of a rehearsal. ``hook``: the command to run; empty for ``clia hook TOOL``, None for no hooks."""
    from clia.capture.rehearsal import Setting, stage

    directory, environment = os.path.realpath(path), dict(os.environ)
    if not os.path.isdir(directory):
        raise FileError(f"{path} is not a directory", fields={"path": path, "reason": "not a directory"})
    repository = stage.repository_of(directory, environment)
    if repository is None:
        message = f"not inside a git repository: {directory}"
        raise InvalidInput(message, code="no-repository", hints=["git init; clia init"], fields={"path": directory})
    common, branch = repository
    # -P: a file in the repository cannot shadow a module.
    words = ["/bin/sh", "-c", hook] if hook else [sys.executable, "-P", "-m", "clia", "hook", tool]
    return Setting(
        tool=tool,
        directory=directory,
        home=_transcript_home(tool, home, common),
        start=_start_time(start),
        branch=branch,
        environment=environment,
        send=None if hook is None else stage.sender(tool, words, directory, environment, common),
        stop_after=stop_after,
        clock=(lambda: datetime.now(UTC)) if start is None else None,
    )


def _rehearsal_seed(setting: Setting, seed: int | None, *, resumes: bool) -> int:
    """The seed: a script that resumes takes the last one used here, any other a new one."""
    from clia.capture.rehearsal import rehearsed

    if seed is not None:
        if not resumes and rehearsed(setting._replace(seed=seed)):
            hints = ["use another seed, another --home, or a script that begins with resume"]
            message = f"a session with seed {seed} was already played here"
            raise InvalidInput(message, code="already-rehearsed", hints=hints, fields={"seed": seed})
        return seed
    unused = 1
    while rehearsed(setting._replace(seed=unused)):
        unused += 1
    return max(unused - 1, 1) if resumes else unused


def _transcript_home(tool: str, home: str | None, common: str) -> str:
    if home is not None:
        return os.path.abspath(home)
    beside = os.path.join(common, "clia")
    if os.path.isdir(beside):
        return os.path.join(beside, "rehearsal", tool)
    from tempfile import mkdtemp

    return mkdtemp(prefix="clia-rehearsal-")


def _start_time(text: str | None) -> datetime:
    if text is None:
        return datetime.now(UTC)
    try:
        start = datetime.fromisoformat(text)
    except ValueError:
        message = f"--start takes a time such as 2026-05-01T09:00:00Z, not {text!r}"
        raise InvalidInput(message, code="invalid-time", fields={"start": text}) from None
    return start.astimezone(UTC) if start.tzinfo else start.replace(tzinfo=UTC)


def _show_rehearsal(report: dict[str, Any], failed: int) -> None:
    names = {agent["id"]: agent["type"] for agent in report["agents"]}
    directory_prefix = report["directory"] + "/"
    rows = []
    for event in report["events"]:
        hook = event["hook"] or ""
        hook += f" ({event['sent']})" if hook and event["sent"] != "whole" else ""
        rows.append((event["n"], names.get(event["agent"], ""), event["kind"], _event_text(event, directory_prefix), hook))
    show_table(("#", "sub-agent", "what", "text", "hook"), rows)
    sent = sum(1 for event in report["events"] if "exit" in event)
    session = one_line(f"{report['tool']} {report['version']}, session {report['session']}, {report['ended']}")
    write(f"\n{session}\n{counted(sent, 'hook was run', 'hooks were run')}; transcript: {one_line(report['transcript'])}\n")
    if failed:
        write(f"warning: {counted(failed, 'hook')} failed\n", sys.stderr)


def _event_text(event: dict[str, Any], here: str) -> str:
    """The first line of an event; for a patch, the line with the file name."""
    data = event.get("input") or {}
    detail = str(data.get("command") or data.get("file_path") or data.get("description") or data.get("agent_name") or "")
    detail = detail.removeprefix("*** Begin Patch\n*** ")
    text = f"{event['text']}: {detail}" if detail else str(event["text"])
    line = text.strip().replace(here, "").split("\n", 1)[0]
    return line if len(line) <= _TEXT_WIDTH else f"{line[: _TEXT_WIDTH - 1]}…"

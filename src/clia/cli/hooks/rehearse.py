"""``clia hook rehearse``: a made-up session of a tool, with all that its hooks would tell."""

from __future__ import annotations

import json
import os
import signal
import sys
from datetime import UTC, datetime

from clia.cli.arguments import add_json
from clia.cli.output import counted, emit_json, one_line, write
from clia.cli.space.common import positive, read_bytes, show_table
from clia.errors import FileError, InvalidDocument, InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import Any

    from clia.capture.rehearsal import Setting
    from clia.capture.rehearsal.script import ScriptStep

_TOOLS = ("claude-code", "codex", "gemini")
_STORY = "durations"
_SEEDS = 2**31
_WIDTH = 60


def configure(parser: argparse.ArgumentParser, slug: str | None) -> None:
    del slug
    parser.add_argument("tool", nargs="?", default=_TOOLS[0], choices=_TOOLS, help="whose session it is (default: claude-code)")
    parser.add_argument("--seed", type=_seed, metavar="N", help="decides every id (default: the first that was not played here)")
    parser.add_argument("--script", metavar="FILE", help="what happens, as JSON ('-': standard input; default: a small story)")
    parser.add_argument("--home", metavar="DIR", help="where the tool keeps its transcripts (default: beside the space)")
    parser.add_argument("--hook", metavar="COMMAND", help="what the tool runs for each event (default: clia hook TOOL)")
    parser.add_argument("--no-hooks", action="store_true", help="only transcripts, as if no hook were installed")
    parser.add_argument("--start", metavar="TIME", help="when it begins, as 2026-05-01T09:00:00Z (default: now)")
    parser.add_argument("--stop-after", type=positive, metavar="N", help="leave after N events, as if the terminal were closed")
    parser.add_argument("--path", default=".", metavar="DIR", help="where the tool works (default: the current directory)")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from clia.capture.rehearsal import ScriptError, play

    script = _script_of(args)
    setting = _setting_of(args, script)
    try:
        ended, told = play(setting, script if script is not None else _story(setting))
    except ScriptError as err:
        raise _bad_script(args, err) from None
    failed = sum(1 for each in told["events"] if each.get("exit"))
    if args.json:
        emit_json(told)
    else:
        _show(told, failed)
    if ended == "crashed":
        os.kill(os.getpid(), signal.SIGKILL)
    return 1 if failed else 0


def _script_of(args: argparse.Namespace) -> Sequence[ScriptStep] | None:
    """The script that was given; none: the story."""
    from clia.capture.rehearsal import ScriptError, parse

    if args.script is None:
        return None
    try:
        return parse(json.loads(read_bytes(args.script)))
    except ScriptError as err:
        raise _bad_script(args, err) from None
    except (ValueError, RecursionError) as err:
        message = f"{args.script} is no JSON: {err}"
        raise InvalidDocument(message, code="invalid-script", fields={"path": args.script}) from None


def _bad_script(args: argparse.Namespace, err: Any) -> InvalidDocument:
    path = args.script or "the story"
    return InvalidDocument(f"{path}: {err}", code="invalid-script", fields={"path": path, "step": err.where})


def _story(setting: Setting) -> Sequence[ScriptStep]:
    from clia.capture.rehearsal import parse, story
    from clia.capture.rehearsal.stage import free_directory

    return parse(story(free_directory(setting.directory, _STORY)))


def _setting_of(args: argparse.Namespace, script: Sequence[ScriptStep] | None) -> Setting:
    from clia.capture.rehearsal import Setting, stage

    directory, environment = os.path.realpath(args.path), dict(os.environ)
    if not os.path.isdir(directory):
        raise FileError(f"{args.path} is no directory", fields={"path": args.path, "reason": "no directory"})
    place = stage.place_of(directory, environment)
    if place is None:
        hints = ["git init; clia init"]
        raise InvalidInput(f"{directory} is in no git repository", code="no-repository", hints=hints, fields={"path": directory})
    command = stage.in_shell(args.hook) if args.hook is not None else stage.own_hook(args.tool)
    send = stage.sender(args.tool, command, directory, environment)
    if environment.get("CLIA_HOOK_INGEST") != "off":
        send = stage.thoughtful(send, place.common)
    setting = Setting(
        tool=args.tool,
        directory=directory,
        home=_home_of(args, place.common),
        start=_start_of(args),
        branch=place.branch,
        environment=environment,
        send=None if args.no_hooks else send,
        stop_after=args.stop_after,
        clock=(lambda: datetime.now(UTC)) if args.start is None else None,
    )
    goes_on = bool(script) and script is not None and script[0].verb in ("resume", "fork")
    return setting._replace(seed=_seed_of(args, setting, goes_on=goes_on))


def _seed_of(args: argparse.Namespace, setting: Setting, *, goes_on: bool) -> int:
    """The seed: who goes on takes the last one played here, and who begins one that was not."""
    from clia.capture.rehearsal import rehearsed

    if args.seed is not None:
        if not goes_on and rehearsed(setting._replace(seed=args.seed)):
            hints = ["take another seed, another --home, or a script that begins with resume"]
            message = f"a session with seed {args.seed} was played here already"
            raise InvalidInput(message, code="already-rehearsed", hints=hints, fields={"seed": args.seed})
        return int(args.seed)
    seed = 1
    while rehearsed(setting._replace(seed=seed)):
        seed += 1
    return max(seed - 1, 1) if goes_on else seed


def _home_of(args: argparse.Namespace, common: str) -> str:
    if args.home is not None:
        return os.path.abspath(str(args.home))
    beside = os.path.join(common, "clia")
    if os.path.isdir(beside):
        return os.path.join(beside, "rehearsal", args.tool)
    from tempfile import mkdtemp

    return mkdtemp(prefix="clia-rehearsal-")


def _start_of(args: argparse.Namespace) -> datetime:
    if args.start is None:
        return datetime.now(UTC)
    try:
        found = datetime.fromisoformat(args.start)
    except ValueError:
        message = f"--start takes a time as 2026-05-01T09:00:00Z, not {args.start!r}"
        raise InvalidInput(message, code="invalid-time", fields={"start": args.start}) from None
    return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)


def _seed(text: str) -> int:
    import argparse

    if not text.isascii() or not text.isdigit() or int(text) >= _SEEDS:
        raise argparse.ArgumentTypeError(f"must be a number from 0 on, not {text!r}")
    return int(text)


def _show(told: dict[str, Any], failed: int) -> None:
    names = {each["id"]: each["type"] for each in told["agents"]}
    here = told["directory"] + "/"
    rows = [(each["n"], names.get(each["agent"], ""), each["kind"], _short(each, here), _hook(each)) for each in told["events"]]
    show_table(("#", "sub-agent", "what", "text", "hook"), rows)
    sent = sum(1 for each in told["events"] if "exit" in each)
    write(one_line(f"\n{told['tool']} {told['version']}, session {told['session']}, {told['ended']}").replace("\\n", "\n") + "\n")
    write(f"{counted(sent, 'hook was run', 'hooks were run')}; the transcript: {one_line(told['transcript'])}\n")
    if failed:
        write(f"warning: {counted(failed, 'hook', 'hooks')} ended with an error\n", sys.stderr)


def _short(event: dict[str, Any], here: str) -> str:
    """The first line of what was said or done; of a patch, the line that names the file."""
    given = event.get("input") or {}
    said = str(given.get("command") or given.get("file_path") or given.get("description") or given.get("agent_name") or "")
    said = said.removeprefix("*** Begin Patch\n*** ")
    text = f"{event['text']}: {said}" if said else str(event["text"])
    line = text.strip().replace(here, "").split("\n", 1)[0]
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"


def _hook(event: dict[str, Any]) -> str:
    if event["hook"] is None:
        return ""
    return str(event["hook"]) if event["sent"] == "whole" else f"{event['hook']} ({event['sent']})"

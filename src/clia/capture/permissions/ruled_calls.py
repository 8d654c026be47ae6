"""Calls of tools as actions that rules are asked about, and what hooks answer the tools. Standard library only.

Invariant: an answer that a tool does not support is never sent: it would run the call. Where a tool cannot ask from a hook, an
unanswered question denies the call, and the model may repeat it after the answer.
"""

from __future__ import annotations

import os
import re

from clia.rules.command_lines import parse_command
from clia.rules.evaluation import EDIT_TOOLS, SHELL_TOOLS, RuledAction
from clia.rules.model import ALLOW, ASK, DENY, TOOL
from clia.rules.shell_scripts import UNKNOWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

PRE, PERMISSION, BEFORE = "PreToolUse", "PermissionRequest", "BeforeTool"
EVENTS = {"claude-code": (PRE, PERMISSION), "codex": (PRE, PERMISSION), "gemini": (BEFORE,)}
"""The events of each tool that a hook may answer."""
_PATH_KEY = re.compile(r"(^|_)(path|file|dir|directory|folder|source|src|destination|dest|dst|target|location|filename|uri)s?$")
_PATH_DEPTH, _WORD_BOUNDARY = 4, re.compile(r"(?<=[a-z])(?=[A-Z])")
_PATCHED = re.compile(r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+)$", re.MULTILINE)
_CHANGES_DIRECTORY = ("cd", "pushd")


def action_of(event: Mapping[str, Any], directory: str) -> RuledAction:
    """The call that an event is about; files are relative to the top of the worktree."""
    name, tool_input = event.get("tool_name"), event.get("tool_input")
    arguments = tool_input if isinstance(tool_input, dict) else {}
    cwd = event.get("cwd")
    base = cwd if isinstance(cwd, str) and os.path.isabs(cwd) else directory
    command = command_of_call(event) or _command_of_other(str(name or ""), arguments)
    paths = [*_named_files(arguments), *_patched_files(arguments), *_files_of_command(command)]
    return RuledAction(TOOL, str(name or ""), command or None, _in_worktree(paths, base))


def command_of_call(event: Mapping[str, Any]) -> str:
    """The command line of a call of a shell; empty for other tools."""
    name, tool_input = event.get("tool_name"), event.get("tool_input")
    command = tool_input.get("command") if isinstance(tool_input, dict) else None
    if isinstance(command, list):  # the words of a program, as older versions of Codex report them
        words = [str(word) for word in command]
        return words[2] if len(words) == 3 and words[1] in ("-c", "-lc") else " ".join(map(_quoted, words))
    is_shell = isinstance(name, str) and name.casefold() in SHELL_TOOLS
    return command if isinstance(command, str) and is_shell else ""


def _command_of_other(tool: str, arguments: Mapping[str, Any]) -> str:
    """The command line that a tool of an MCP server is given, by the usual names of such an argument."""
    if tool.casefold() in EDIT_TOOLS:
        return ""
    commands = (arguments.get(key) for key in ("command", "cmd", "commandLine", "command_line", "script"))
    return next((text for text in commands if isinstance(text, str) and text), "")


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\"'\"'") + "'"


def _named_files(arguments: Mapping[str, Any]) -> Iterator[str]:
    """The files that arguments name, at any depth; the tools of MCP servers have names of their own for them."""
    waiting: list[tuple[Any, bool, int]] = [(arguments, False, 0)]
    while waiting:
        value, is_path, depth = waiting.pop()
        if isinstance(value, dict) and depth < _PATH_DEPTH:
            waiting += [(item, _names_files(str(key)), depth + 1) for key, item in value.items()]
        elif isinstance(value, list) and depth < _PATH_DEPTH:
            waiting += [(item, is_path, depth + 1) for item in value]
        elif isinstance(value, str) and value and is_path and "\n" not in value:
            yield value.removeprefix("file://")


def _names_files(key: str) -> bool:
    return _PATH_KEY.search(_WORD_BOUNDARY.sub("_", key).lower()) is not None


def _patched_files(arguments: Mapping[str, Any]) -> Iterator[str]:
    for key in ("command", "patch", "input"):
        text = arguments.get(key)
        if isinstance(text, list):
            text = "\n".join(str(part) for part in text)
        if isinstance(text, str):
            yield from (match[1].strip() for match in _PATCHED.finditer(text))


def _files_of_command(command: str) -> Iterator[str]:
    """The words that may be files. A word that only the shell knows is left out: it may be a message as well."""
    if not command:
        return
    parsed = parse_command(command)
    words = list(parsed.files)
    changed: list[str] = []
    for one in parsed.commands:
        parts = (part for word in one.words for part in (word, word.partition("=")[2], word[2:] if word[:1] == "-" else ""))
        operands = [part for part in parts if part and not part.startswith("-")]
        words += operands
        changed += one.words[1:2] if one.words[0] in _CHANGES_DIRECTORY else []
    known_words = [word for word in dict.fromkeys(words) if word.strip(UNKNOWN) and "\n" not in word and len(word) < 1000]
    yield from known_words
    yield from (os.path.join(directory, word) for directory in changed[:20] for word in known_words)


def _in_worktree(paths: list[str], base: str) -> tuple[str, ...]:
    """Each path as it is written and where its links lead, relative to the top of the worktree if it is inside."""
    top = os.path.realpath(_top(base))
    shown: list[str] = []
    for path in paths[:2000]:
        whole = os.path.normpath(os.path.join(base, path))
        try:
            places = (whole, os.path.realpath(whole))
        except (OSError, ValueError):
            places = (whole, whole)
        for place in places:
            for root in (top, _top(base)):
                if place == root or place.startswith(root.rstrip("/") + "/"):
                    place = os.path.relpath(place, root)  # noqa: PLW2901  # the same place, shorter
                    break
            shown.append(place)
    return tuple(dict.fromkeys(shown))


def in_worktree(directory: str) -> str:
    """A directory relative to the top of its worktree."""
    return os.path.relpath(directory, _top(directory)) if os.path.isabs(directory) else directory


def _top(directory: str) -> str:
    """The top of the worktree around a directory, or the directory."""
    path = directory
    while not os.path.lexists(os.path.join(path, ".git")):
        above = os.path.dirname(path)
        if above == path:
            return directory
        path = above
    return path


def answer_to(tool: str, event: str, do: str, reason: str) -> dict[str, Any] | None:
    """What a hook prints for a decision; None: nothing, and the tool continues as without a hook."""
    if tool not in EVENTS or not do:
        return None
    if event == PERMISSION:
        if do == ASK:
            return None  # the tool's own prompt is what it is about to show
        decision = {"behavior": ALLOW} if do == ALLOW else {"behavior": DENY, "message": reason}
        return {"hookSpecificOutput": {"hookEventName": PERMISSION, "decision": decision}}
    if tool == "gemini":
        return {"decision": do, "reason": reason}
    if tool == "codex":
        if do == ALLOW:
            return None  # Codex accepts only refusals here
        do = DENY
    decided = {"permissionDecision": do, "permissionDecisionReason": reason}
    return {"hookSpecificOutput": {"hookEventName": PRE, **decided}}

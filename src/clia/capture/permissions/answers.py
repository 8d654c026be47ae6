"""The answer of a hook to a tool before a call: what the rules of guardrails say. Standard library only.

Invariant: a call is never let through because something failed. The rules are compiled into a cache in the git directory; a cache
is used only if nothing that it was made from has changed, and otherwise another process resolves the identity again. That process
also asks people.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

HEADER = b"clia-rules 1"
_DEFAULT_SECONDS = 10.0
_CACHE_MAX, _HEADER_LINES = 1 << 22, 4


def respond(tool: str, event: bytes, where: bytes, common: bytes, payload: bytes) -> None:
    """Print the answer to an event, if the rules have one."""
    cached = read_cache(common, cache_key(tool, where, payload))
    if cached is None:
        return _ask_elsewhere(tool, event, where, payload)
    forwards, rules = cached
    if event == b"PermissionRequest" and forwards:
        return _ask_elsewhere(tool, event, where, payload)
    if rules == b"[]":
        return None
    return _evaluate(tool, event, where, payload, rules)


def _evaluate(tool: str, event: bytes, where: bytes, payload: bytes, rules: bytes) -> None:
    import json

    from clia.capture.permissions.ruled_calls import action_of
    from clia.rules.evaluation import evaluate, reason
    from clia.rules.model import ASK, GuardrailRule, RuleMatch

    fields = json.loads(payload)
    rows = (_tuples(row) for row in json.loads(rules))
    parsed = [GuardrailRule._make([*row[:2], RuleMatch(*_tuples(row[2])), *row[3:]]) for row in rows]
    verdict = evaluate(parsed, action_of(fields, os.fsdecode(where)))
    if verdict.do == ASK:
        return _ask_elsewhere(tool, event, where, payload)
    return write_answer(tool, event.decode(), verdict.do, reason(verdict))


def _tuples(values: list[Any]) -> list[Any]:
    return [tuple(value) if isinstance(value, list) else value for value in values]


def write_answer(tool: str, event: str, do: str, reason: str) -> None:
    """Print the answer in the tool's form."""
    import json

    from clia.capture.permissions.ruled_calls import answer_to

    answer = answer_to(tool, event, do, reason)
    if answer is not None:
        os.write(1, json.dumps(answer).encode())


def fall_back(tool: str, event: bytes, reason: str) -> None:
    """Let the tool ask in its own way."""
    write_answer(tool, event.decode(), "ask", f"{reason}; the tool asks instead")


# The cache


def cache_key(tool: str, where: bytes, payload: bytes) -> bytes:
    """What the rules of a call depend on: the tool's session and sub-agent, the directory, and variables."""
    session, sub = payload.partition(b'"session_id"')[2][:200].partition(b'"')[2].partition(b'"')[0], b""
    if b'"agent_id"' in payload:
        import json

        fields = json.loads(payload)
        sub = str(fields.get("agent_id")).encode() if isinstance(fields, dict) else b""
    variables = [os.environb.get(name, b"") for name in (b"CLIA_AGENT", b"CLIA_RUN", b"CLIA_CONFIG")]
    return b"\0".join([tool.encode(), where, session, sub, *variables]).replace(b"\n", b"?")


def cache_file(common: bytes, key: bytes) -> bytes:
    from binascii import crc32

    return os.path.join(common, b"clia", b"rules", b"%08x%08x" % (crc32(key), crc32(key[::-1])))


def signature(path: bytes, *, whole: bool = True) -> bytes:
    """What changes if a file or a listing changes; with ``whole`` false, only if another thing takes the place of it."""
    parts = []
    for look in (os.lstat, os.stat):
        try:
            status = look(path)
        except (OSError, ValueError):
            parts.append(b"-")
            continue
        facts = (status.st_ino, status.st_mode, status.st_uid)
        changing = (status.st_mtime_ns, status.st_ctime_ns, status.st_size) if whole else ()
        parts.append(b".".join(b"%d" % number for number in (*facts, *changing)))
    return b"/".join(parts)


def read_cache(common: bytes, key: bytes) -> tuple[bool, bytes] | None:
    """Whether permission requests are forwarded, and the rules as JSON; None if the cache is missing or out of date."""
    try:
        with open(cache_file(common, key), "rb", buffering=0) as file:
            content = file.read(_CACHE_MAX) or b""
    except OSError:
        return None
    header, _, rest = content.partition(b"\n\n")
    lines = header.split(b"\n")
    if lines[:2] != [HEADER, key] or len(lines) < _HEADER_LINES or not rest.endswith(b"\n"):
        return None
    until, forwards, *sources = lines[2:]
    import time  # the spool has loaded it

    if not until.isdigit() or time.time() > int(until):
        return None
    for source in sources:
        kind, expected, path = source.split(b" ", 2)
        if signature(path.replace(b"%0A", b"\n").replace(b"%25", b"%"), whole=kind == b"w") != expected:
            return None
    return forwards == b"1", rest[:-1]


def cache_content(key: bytes, until: int, forwards: bool, sources: Mapping[bytes, tuple[bool, bytes]], rules: bytes) -> bytes:
    """The content of a cache; ``sources``: path -> whether its content counts, and its signature."""
    lines = [HEADER, key, b"%d" % until, b"1" if forwards else b"0"]
    for path, (whole, facts) in sorted(sources.items()):
        lines.append(b"%s %s %s" % (b"w" if whole else b"p", facts, path.replace(b"%", b"%25").replace(b"\n", b"%0A")))
    return b"\n".join(lines) + b"\n\n" + rules + b"\n"


# Another process


def seconds_given() -> float:
    """How long the tool waits for this hook: the number after the tool's name; older settings have none."""
    word = sys.argv[3] if len(sys.argv) > 3 else ""
    return float(word) if word.isdigit() and int(word) else _DEFAULT_SECONDS


def _ask_elsewhere(tool: str, event: bytes, where: bytes, payload: bytes) -> None:
    """Become the process that resolves the rules and asks people; it reads the event from standard input."""
    try:
        _become(tool, where, payload)
    except OSError as err:
        fall_back(tool, event, f"clia could not evaluate the rules: {err.strerror}")


def _become(tool: str, where: bytes, payload: bytes) -> None:
    from tempfile import TemporaryFile  # rare: most calls are decided by the cache

    with TemporaryFile() as file:
        file.write(payload)
        file.flush()
        os.lseek(file.fileno(), 0, os.SEEK_SET)
        os.dup2(file.fileno(), 0)
    inherited = (b"GIT_COMMITTER_NAME", b"GIT_COMMITTER_EMAIL")
    variables = {name: value for name, value in os.environb.items() if name in inherited or not name.startswith(b"GIT_")}
    words = [os.fsencode(sys.executable), b"-P", b"-m", b"clia", b"hook", b"answer", tool.encode(), b"--path", where]
    os.execve(words[0], [*words, b"--seconds", b"%d" % int(seconds_given())], variables)  # noqa: S606  # clia itself

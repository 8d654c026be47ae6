"""Submodule paths from a ``.gitmodules`` file, read as git reads its configuration.

Invariant: only paths that stay below the declaring directory come out; everything else is a diagnostic.
"""

from __future__ import annotations

import re

from clia.identities.diagnostics import diagnostic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.identities.diagnostics import Diagnostic

_SECTION = re.compile(r'\[([A-Za-z0-9.-]+)(?:[ \t\r\f\v]+"((?:[^"\\\n]|\\[^\n])*)")?\]')
# Nearly every line of a real file; whatever it does not match is read character by character.
_SIMPLE = re.compile(r'[ \t]*(?:\[submodule "([^"\\\n]*)"\]|([A-Za-z][A-Za-z0-9-]*)[ \t]*=([^"\\#;\n]*))[ \t]*(?:\n|\Z)')
# What a path must not hold to be clean at first sight; most are.
_SUSPICIOUS = re.compile(r"\A(?:[-/]|\Z)|/\Z|//|(?:\A|/)\.|\.git|[\\:\0]", re.IGNORECASE)
_BLANKS = re.compile(r"\s+")
_KEY = re.compile(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*")
_ESCAPES = {"n": "\n", "t": "\t", "b": "\b", '"': '"', "\\": "\\"}


class _Bad(Exception):
    """A line that git would refuse."""


def submodule_paths(text: str, path: str) -> tuple[list[str], list[Diagnostic]]:
    """Relative submodule paths, sorted and each once, with what was refused."""
    try:
        declared = _declared(text)
    except _Bad as err:
        return [], [diagnostic("invalid-gitmodules", path, f"{path}: {err}")]
    found: set[str] = set()
    refused: list[Diagnostic] = []
    for name, value in sorted(declared.items()):
        clean = _clean(value)
        if clean is None:
            refused.append(diagnostic("unsafe-submodule-path", path, f"submodule {name!r}: path {value!r} is unsafe"))
        else:
            found.add(clean)
    return sorted(found), refused


def _clean(path: str) -> str | None:
    if not _SUSPICIOUS.search(path):
        return path
    if not path or path.startswith(("/", "-")) or "\0" in path or re.match(r"[A-Za-z]:|\\", path):
        return None
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not parts or any(part == ".." or part.lower() == ".git" for part in parts):
        return None
    return "/".join(parts)


def _declared(text: str) -> dict[str, str]:
    """Submodule name -> path; the last of several wins, as in git."""
    found: dict[str, str] = {}
    name: str | None = None
    at = 0
    text = text.replace("\r\n", "\n")
    while at < len(text):
        simple = _SIMPLE.match(text, at)
        if simple:
            named, key, value = simple.groups()
            if named is not None:
                name = named
            elif name is not None and key.lower() == "path":
                found[name] = value.strip()
            at = simple.end()
            continue
        char = text[at]
        blanks = _BLANKS.match(text, at)
        if blanks:
            at = blanks.end()
        elif char in "#;":
            at = _line_end(text, at)
        elif char == "[":
            match = _SECTION.match(text, at)
            if match is None:
                raise _Bad(_bad_line(text, at))
            name = _subsection(match)
            at = match.end()
        else:
            key, value, at = _variable(text, at)
            if name is not None and key == "path" and value is not None:
                found[name] = value
    return found


def _subsection(match: re.Match[str]) -> str | None:
    """The submodule's name, or None for a section that is about something else."""
    section, quoted = match.group(1), match.group(2)
    if section.lower() != "submodule" or quoted is None:
        return None
    return re.sub(r"\\(.)", r"\1", quoted)


def _variable(text: str, at: int) -> tuple[str, str | None, int]:
    match = _KEY.match(text, at)
    if match is None:
        raise _Bad(_bad_line(text, at))
    key, after = match.group(1).lower(), match.end()
    if after >= len(text) or text[after] == "\n":
        return key, None, _line_end(text, after)
    if text[after] != "=":
        raise _Bad(_bad_line(text, at))
    value, end = _value(text, after + 1)
    return key, value, end


def _value(text: str, at: int) -> tuple[str, int]:
    """One value: quotes, escapes, comments and continued lines; blanks at the ends are dropped unless quoted."""
    out: list[str] = []
    kept = 0  # what stands before here may not be trimmed, since it was quoted or is no blank
    quoted = False
    start = at
    while at < len(text) and (quoted or text[at] not in "\n#;"):
        char = text[at]
        if char == "\n":
            raise _Bad(_bad_line(text, start))
        if char == '"':
            quoted = not quoted
            kept = len(out)
        elif char == "\\":
            at += 1
            follower = text[at : at + 1]
            if follower != "\n":
                if follower not in _ESCAPES or not follower:
                    raise _Bad(_bad_line(text, start))
                out.append(_ESCAPES[follower])
                kept = len(out)
        elif not char.isspace() or quoted or out:
            out.append(char)
            kept = len(out) if quoted or not char.isspace() else kept
        at += 1
    if quoted:
        raise _Bad(_bad_line(text, start))
    return "".join(out[:kept]), _line_end(text, at)


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1


def _bad_line(text: str, at: int) -> str:
    return f"line {text.count(chr(10), 0, at) + 1} is not git configuration"

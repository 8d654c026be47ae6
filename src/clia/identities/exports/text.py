"""Text from documents, made safe for the file it goes into.

Invariant: whatever a document says, it stays text. It cannot open or close an HTML comment, a heading, a code fence or
front matter, cannot make a tool import a file, and holds nothing that a person cannot see or that no YAML may hold. The
tables are written out, so that the bytes do not depend on the Unicode version of the interpreter.
"""

from __future__ import annotations

import json
import re

# What shows nothing: controls, format characters, fillers, variation selectors (an emoji's own aside), tags, halves of pairs,
# and the two that are no characters: a YAML reader refuses the whole file for one of them.
_HIDDEN = (
    r"\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200c\u200e\u200f\u2028-\u202e"
    r"\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\U0001d173-\U0001d17a\U000e0000-\U000e0fff\ud800-\udfff"
)
_EMOJI = r"\u2190-\u2bff\U0001f000-\U0001faff"
_JOINER = "\u200d"
_UNSEEN = re.compile(rf"[{_HIDDEN}]|(?<![{_EMOJI}\ufe0f])\u200d|\u200d(?![{_EMOJI}])")

# What would make a line more than a line of a paragraph, in CommonMark or in a front matter parser.
_OPENER = re.compile(
    r"""
      \#{1,6}(?=\s|$)               # heading
    | [-+*](?=\s|$)                 # list
    | >                             # quotation
    | (?=(?P<fence>`|~)(?P=fence){2})       # code fence
    | (?=(?P<rule>[-_*])\s*(?:(?P=rule)\s*)+$)  # thematic break, underline of a heading, end of front matter
    | =+\s*$                        # underline of a heading
    | <                             # HTML
    | \[[^\]]*\]:                   # link definition: shows nothing
    | \+\+\+                        # TOML front matter
    """,
    re.VERBOSE,
)
_ORDERED = re.compile(r"(\d{1,9})(?=[.)](?:\s|$))")
# Claude Code, Gemini and Cursor read a file where a word starts with '@'.
_IMPORT = re.compile(r"(?<!\S)@")
# Claude Code runs what stands between such marks before the model reads the file.
_COMMAND = re.compile(r"!(?=`)|(?<=```)!|(?<=~~~)!")
# Some readers of front matter, the reference one for skills among them, end it at the first three dashes on any line.
_FENCE = re.compile(r"-(?=--)")


def visible(text: str) -> str:
    """The text with every character that shows nothing written out."""
    return _UNSEEN.sub(lambda found: f"\\u{{{ord(found.group()):x}}}", text)


def line(text: str) -> str:
    """The text on one line."""
    return visible(" ".join(text.split()))


def markdown_line(text: str) -> str:
    """One line of Markdown that is plain text of a paragraph or list item, wherever it stands."""
    safe = line(text).replace("<!--", "&lt;!--")
    safe = _IMPORT.sub(r"\\@", safe)
    if _OPENER.match(safe):
        return f"\\{safe}"
    return _ORDERED.sub(r"\1\\", safe, count=1) if _ORDERED.match(safe) else safe


def inert(text: str) -> str:
    """Markdown that people have written, line by line as it is, apart from what a tool would act on or a reader could not see."""
    lines = ("\t".join(visible(part) for part in each.split("\t")) for each in text.replace("\r\n", "\n").split("\n"))
    safe = "\n".join(lines).strip("\n").replace("<!--", "&lt;!--")
    return _IMPORT.sub(r"\\@", _COMMAND.sub(" ! ", safe)) + "\n"


def prose(text: str, indent: str = "") -> str:
    """The text's lines as one paragraph; those after the first are indented, to stay in their list item."""
    return f"\n{indent}".join(markdown_line(each) for each in text.splitlines() if each.strip())


def paragraphs(text: str) -> list[str]:
    """The text's paragraphs as they are: runs of lines that are not blank."""
    found: list[list[str]] = [[]]
    for each in text.splitlines():
        if each.strip():
            found[-1].append(each)
        elif found[-1]:
            found.append([])
    return ["\n".join(each) for each in found if each]


def code(text: str) -> str:
    """A code span. It holds no import either: Gemini pairs backticks over the whole file, and may take it for plain text."""
    safe = line(text).replace(" @", r" \u{40}").replace("`", r"\u{60}").replace("<!--", "&lt;!--")
    return f"`{safe}`"


def quoted(text: str) -> str:
    """A double-quoted string on one line, the same in JSON and in YAML; never three dashes in a row."""
    return _FENCE.sub(r"\\u002d", json.dumps(line(text), ensure_ascii=False))


def shortened(text: str, room: int) -> str:
    """One line of at most ``room`` UTF-16 units, as tools in JavaScript count; an ellipsis shows that it was cut."""
    said = line(text)
    units = said.encode("utf-16-le")
    if len(units) <= 2 * room:
        return said
    cut = units[: 2 * (room - 1)].decode("utf-16-le", "ignore")
    words = cut.rpartition(" ")[0]
    kept = words if 2 * len(words) > len(cut) else cut  # a text without spaces is cut in a word
    return f"{kept.rstrip(_JOINER)}…"

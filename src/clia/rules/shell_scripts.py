"""Shell scripts, read word by word: quotes, substitutions, redirections, here-documents.

Invariant: nothing is executed or expanded. A script that cannot be read raises ``UnreadableScript``.
"""

from __future__ import annotations

import re
from typing import Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

UNKNOWN = "\0"
"""A part of a word that only the shell knows."""
SEVERAL = UNKNOWN * 2
"""The same, where it may be several words, because it is not quoted."""
RESERVED = frozenset(
    ("if", "then", "else", "elif", "fi", "do", "done", "while", "until", "for", "select", "case", "esac", "in", "function", "{",
     "}", "!", "[[", "]]")
)  # fmt: skip
DEPTH_MAX = 12
_OPEN_MAX, _ARITHMETIC_MAX = 100, 2000  # a script that nests deeper is not readable; keeps the time linear
_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_TEST = re.compile(r"\[\[?(?=\s)")  # the command, not a file pattern
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "v": "\v"}
_CODED = re.compile(r"x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})")


class UnreadableScript(Exception):
    """The text ends inside of a quote or a substitution, or is nested too deeply."""


class CommandReader(Protocol):
    """Takes what a script runs."""

    is_plain: bool  # whether nothing is hidden so far
    files: list[str]  # targets of redirections

    def command(self, words: list[str], stdin: str | None, depth: int, *, from_pipe: bool = False) -> None:
        """A simple command."""

    def script(self, text: str, depth: int) -> None:
        """A script inside of the script."""


class ShellScript:
    """A reader of one shell script."""

    def __init__(self, text: str, reader: CommandReader, depth: int, start: int = 0, *, in_parentheses: bool = False) -> None:
        self._text = text
        self._at = start
        self._reader = reader
        self._depth = depth
        self._open = 1 if in_parentheses else 0  # parentheses to close; the last one ends a script in parentheses
        self._in_parentheses = in_parentheses
        self._words: list[str] = []
        self._stdin: str | None = None
        self._from_pipe = False
        self._heredocs: list[tuple[str, bool]] = []  # delimiters whose bodies follow the line, and whether they are quoted
        self._cases = 0  # in how many `case` commands: a pattern there ends in a parenthesis

    def read(self) -> int:
        """Read the script, and return the position behind it."""
        text = self._text
        while self._at < len(text):
            char = text[self._at]
            if self._in_parentheses and char == ")" and self._open == 1 and not self._is_pattern():
                self._end()
                return self._at + 1
            if char in " \t\r":
                self._at += 1
            elif char == "\\" and text.startswith("\\\n", self._at):
                self._at += 2
            elif char == "#":
                self._at = self._end_of_line()
            elif char in "\n;&|()":
                self._operator(char)
            elif char in "<>" or re.compile(r"\d+[<>]").match(text, self._at):
                self._redirection()
            else:
                self._words.append(self._word())
        if self._in_parentheses:
            raise UnreadableScript
        self._end()
        return self._at

    def _is_pattern(self) -> bool:
        """Whether a closing parenthesis ends a pattern of ``case``."""
        return self._cases > 0 or _opened_cases(self._words) > 0

    def _end_of_line(self) -> int:
        end = self._text.find("\n", self._at)
        return len(self._text) if end < 0 else end

    def _end(self, *, into_pipe: bool = False) -> None:
        """The end of a simple command."""
        words, stdin, from_pipe = self._words, self._stdin, self._from_pipe
        self._cases = max(0, self._cases + _opened_cases(words))
        self._words, self._stdin, self._from_pipe = [], None, into_pipe
        self._reader.command(words, stdin, self._depth, from_pipe=from_pipe)

    def _operator(self, char: str) -> None:
        if char == "&" and self._text.startswith(("&>", "&>>"), self._at):
            self._at += 1
            return self._redirection()
        if char == "\n":
            self._at += 1
            if self._heredocs:
                self._here_documents()
            return self._end()
        if self._is_arithmetic() and not self._words:
            return self._arithmetic()
        if char in "()":
            self._reader.is_plain = False
            ends_pattern = char == ")" and self._open == (1 if self._in_parentheses else 0)
            self._open += 1 if char == "(" else 0 if ends_pattern else -1
            if self._open > _OPEN_MAX:
                raise UnreadableScript
        is_pipe = char == "|" and not self._text.startswith("||", self._at)
        self._at += 2 if self._text[self._at : self._at + 2] in ("&&", "||", ";;", "|&") else 1
        return self._end(into_pipe=is_pipe)

    def _redirection(self) -> None:
        match = re.compile(r"\d*(<<<|<<-?|<>|<&|>&|>>|>\||<\(|>\(|<|>)").match(self._text, self._at)
        if match is None:
            raise UnreadableScript
        operator = match[1]
        if operator in ("<(", ">("):
            self._words.append(self._word())
            return
        if self._words and re.fullmatch(r"\{\w+\}", self._words[-1]) and self._text[self._at - 1] == "}":
            self._words.pop()  # the name of a file descriptor
        self._at = match.end()
        while self._text.startswith((" ", "\t"), self._at):
            self._at += 1
        before = self._at
        target = self._word()
        if operator.startswith("<<") and operator != "<<<":
            self._heredocs.append((target, self._text[before : before + 1] in "\\'\""))
        elif operator == "<<<":
            self._stdin = target
        elif not (operator in ("<&", ">&") and re.fullmatch(r"\d+-?|-", target)):
            self._reader.files.append(target)
            self._reader.is_plain = self._reader.is_plain and target == "/dev/null"

    def _here_documents(self) -> None:
        """The bodies of the here-documents of the line that ended."""
        for delimiter, quoted in self._heredocs:
            lines = []
            while self._at < len(self._text):
                end = self._end_of_line()
                line, self._at = self._text[self._at : end], min(end + 1, len(self._text))
                if line.strip("\t") == delimiter:
                    break
                lines.append(line)
            body = "\n".join(lines)
            self._stdin = f"{self._stdin}\n{body}" if self._stdin is not None else body
            if not quoted:
                ShellScript(body, self._reader, self._depth + 1).substitutions()
        self._heredocs = []
        self._reader.is_plain = False

    def substitutions(self) -> None:
        """Read only the commands that are substituted in a text, as in a here-document."""
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == "\\":
                self._at += 2
            elif char in "$`":
                self._dollar() if char == "$" else self._backticks()
            else:
                self._at += 1

    # Words

    def _word(self) -> str:
        """One word, unquoted; unknown parts are ``UNKNOWN``."""
        parts: list[str] = []
        text = self._text
        test = _TEST.match(text, self._at)
        if test is not None:
            self._at = test.end()
            return test[0]
        while self._at < len(text):
            char = text[self._at]
            if char in " \t\r\n;&|)" or (char in "<>(" and not self._starts_process(char)):
                break
            parts.append(self._part(char))
        if not parts:
            if self._at < len(text) and text[self._at] in "(<>":
                self._at += 1
                self._reader.is_plain = False
            elif self._at >= len(text):
                raise UnreadableScript
        is_split = SEVERAL in parts
        return re.sub(f"{UNKNOWN}+", lambda run: SEVERAL if is_split and len(run[0]) > 1 else UNKNOWN, "".join(parts))

    def _starts_process(self, char: str) -> bool:
        return char in "<>" and self._text.startswith("(", self._at + 1)

    def _part(self, char: str) -> str:
        if char in "<>":  # <(…)
            self._at += 1
            self._nested()
            return UNKNOWN
        if char == "\\":
            self._at += 2
            escaped = self._text[self._at - 1 : self._at]
            return "" if escaped == "\n" else escaped
        if char == "'":
            return self._until("'")
        if char == '"':
            return self._double_quoted()
        if char in "$`":
            value = self._dollar() if char == "$" else self._backticks()
            return SEVERAL if value == UNKNOWN else value
        self._at += 1
        if char == "{":
            return self._braces()
        return UNKNOWN if char in "*?[" else char

    def _braces(self) -> str:
        """A brace expansion is unknown; other braces stand for themselves."""
        match = re.compile(r"[^\s{}]*(,|\.\.)[^\s{}]*\}").match(self._text, self._at)
        if match is None:
            return "{"
        self._at = match.end()
        return UNKNOWN

    def _until(self, quote: str) -> str:
        start = self._at + 1
        end = self._text.find(quote, start)
        if end < 0:
            raise UnreadableScript
        self._at = end + 1
        return self._text[start:end]

    def _double_quoted(self) -> str:
        self._at += 1
        parts: list[str] = []
        while True:
            char = self._text[self._at : self._at + 1]
            if not char:
                raise UnreadableScript
            if char == '"':
                self._at += 1
                return "".join(parts)
            if char == "\\":
                following = self._text[self._at + 1 : self._at + 2]
                parts.append("" if following == "\n" else following if following in '$`"\\' else "\\" + following)
                self._at += 2
            elif char in "$`":
                start = self._at
                value = self._dollar(in_quotes=True) if char == "$" else self._backticks()
                parts.append(SEVERAL if value == UNKNOWN and "@" in self._text[start : self._at] else value)
            else:
                parts.append(char)
                self._at += 1

    def _dollar(self, *, in_quotes: bool = False) -> str:
        text, start = self._text, self._at
        self._at += 1
        following = text[self._at : self._at + 1]
        if following == "'" and not in_quotes:
            return self._ansi()
        if following == '"' and not in_quotes:
            return self._double_quoted()
        if following == "(":
            self._arithmetic() if self._is_arithmetic() else self._nested()
            return UNKNOWN
        if following == "{":
            self._parameter(in_quotes=in_quotes)
            return UNKNOWN
        name = _NAME.match(text, self._at)
        if name is None:
            return text[start : self._at]
        self._at = name.end()
        return UNKNOWN

    def _parameter(self, *, in_quotes: bool) -> None:
        """``${…}``, which may contain substitutions."""
        depth = 0
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == "\\":
                self._at += 2
                continue
            if char == "'" and depth:
                if in_quotes:
                    raise UnreadableScript  # in some expansions it is a quote, in others not
                self._until("'")
                continue
            if char == '"' and depth:
                self._double_quoted()
                continue
            if char == "$" and depth and self._text[self._at + 1 : self._at + 2] in ("(", "{"):
                self._dollar()
                continue
            if char == "`":
                self._backticks()
                continue
            depth += {"{": 1, "}": -1}.get(char, 0)
            self._at += 1
            if not depth:
                return
        raise UnreadableScript

    def _ansi(self) -> str:
        """``$'…'``, with its escapes."""
        self._at += 1
        parts = []
        while (char := self._text[self._at : self._at + 1]) != "'":
            if not char:
                raise UnreadableScript
            if char != "\\":
                parts.append(char)
                self._at += 1
                continue
            coded = _CODED.match(self._text, self._at + 1)
            if coded is not None:
                value = int(coded[4], 8) if coded[4] else int(coded[1] or coded[2] or coded[3], 16)
                parts.append(chr(value) if 0 < value < 0x110000 else UNKNOWN)
                self._at = coded.end()
            else:
                following = self._text[self._at + 1 : self._at + 2]
                parts.append(_ESCAPES.get(following, following))
                self._at += 2
        self._at += 1
        return "".join(parts)

    def _backticks(self) -> str:
        start = self._at + 1
        end = start
        while end < len(self._text) and self._text[end] != "`":
            end += 2 if self._text[end] == "\\" else 1
        if end >= len(self._text):
            raise UnreadableScript
        self._at = end + 1
        self._reader.script(re.sub(r"\\([`$\\])", r"\1", self._text[start:end]), self._depth + 1)
        return UNKNOWN

    def _nested(self) -> None:
        """A script in parentheses; the reader is at the opening one."""
        if self._depth >= DEPTH_MAX:
            raise UnreadableScript
        self._at = ShellScript(self._text, self._reader, self._depth + 1, self._at + 1, in_parentheses=True).read()

    def _is_arithmetic(self) -> bool:
        """Whether two parentheses open here and close together. Otherwise they are subshells."""
        if not self._text.startswith("((", self._at):
            return False
        depth = 0
        for at in range(self._at, min(len(self._text), self._at + _ARITHMETIC_MAX)):
            depth += {"(": 1, ")": -1}.get(self._text[at], 0)
            if depth == 1 and self._text[at] == ")":
                return self._text.startswith(")", at + 1)
        return False

    def _arithmetic(self) -> None:
        """``((…))``, which may contain substitutions."""
        start, depth = self._at, 0
        while self._at < len(self._text):
            depth += {"(": 1, ")": -1}.get(self._text[self._at], 0)
            self._at += 1
            if not depth:
                break
        else:
            raise UnreadableScript
        if self._text.count("'", start, self._at) or self._text.count('"', start, self._at) % 2:
            raise UnreadableScript  # a parenthesis may be quoted
        self._reader.is_plain = False
        ShellScript(self._text[start : self._at], self._reader, self._depth + 1).substitutions()


def _opened_cases(words: Sequence[str]) -> int:
    """How many `case` commands the words of a simple command open; negative if they close one."""
    at = 0
    while at < len(words) and words[at] in RESERVED - {"case", "esac"}:
        at += 1
    if at < len(words) and words[at] == "case":
        return 0 if "esac" in words[at:] else 1
    return -1 if at < len(words) and words[at] == "esac" else 0

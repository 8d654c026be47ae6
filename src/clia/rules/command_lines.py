"""Shell command lines, read as far as needed to say which programs they run.

Invariant: nothing is executed or expanded. A part whose value is known only to the shell (a variable, a substitution, a file
pattern) is ``UNKNOWN`` in its word, and a line that cannot be read is one unknown command. Shell text can always be disguised: what
is read here decides about prompts, and the server gate is the wall.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from clia.rules.model import INTERPRETERS, READS_COMMANDS, SHELLS, WRAPPERS
from clia.rules.shell_scripts import DEPTH_MAX, RESERVED, SEVERAL, UNKNOWN, ShellScript, UnreadableScript

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_LINE_MAX, _COMMANDS_MAX, _INNER_WORDS = 100_000, 500, 100
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\]|\0[^=\s]*\])?\+?=")
_RUN_BY_OTHERS = re.compile(r"(COMMAND|PAGER|EDITOR|VISUAL|ASKPASS|BROWSER|SSH|SHELL|ENV)$")
_TEXT_OPTION = re.compile(r"--?[\w-]*(?:command|exec|run|shell|filter|action|rsh)[\w-]*=(?:exec=)?(.+)", re.DOTALL)
_ATTACHED = re.compile(r"-[A-Za-z]*?[cSx](.+)", re.DOTALL)
_RUNS_REST = re.compile(r"run|foreach|-x|--exec|--[a-z]+-filter")
_CODE = re.compile(r"[\s()'\"`]")


class SimpleCommand(NamedTuple):
    """A program with its arguments, as a command line runs it."""

    words: tuple[str, ...]  # the program and its arguments, unquoted
    code: str = ""  # of an interpreter: the texts that it is given, which may be a program
    is_inner: bool = False  # run, or possibly run, by another command of the line: a shell or a wrapper


class ParsedCommand(NamedTuple):
    """Everything that a command line may run."""

    commands: tuple[SimpleCommand, ...]
    files: tuple[str, ...]  # targets of redirections
    is_plain: bool  # nothing is hidden: no expansion, assignment, control structure, script from a pipe or file that is written


def parse_command(line: str | Sequence[str]) -> ParsedCommand:
    """What a shell command line, or a list of words, runs."""
    reader = _LineReader()
    if isinstance(line, str):
        reader.script(line, 0)
    else:
        reader.command(list(line), None, 0)
    unique = tuple(dict.fromkeys(reader.commands))
    return ParsedCommand(unique, tuple(dict.fromkeys(reader.files)), reader.is_plain)


def program_of(word: str) -> str:
    """The name of a program without its directory; on Windows without `.exe`."""
    return re.split(r"[/\\]", word)[-1].removesuffix(".exe")


def program_name(word: str) -> str:
    """The name under which a program is known here: without case and version."""
    name = program_of(word).casefold()
    runners = SHELLS | INTERPRETERS | WRAPPERS
    return name if name in runners else next((short for short in (name.rstrip("0123456789.-"),) if short in runners), name)


class _LineReader:
    """Collects the commands of a line and of every script in it."""

    def __init__(self) -> None:
        self.commands: list[SimpleCommand] = []
        self.files: list[str] = []
        self.is_plain = True
        self._inside = 0  # in how many commands that run others

    def unknown(self) -> None:
        """Something runs, and it cannot be said what."""
        self.is_plain = False
        self._add((UNKNOWN,))

    def _add(self, words: Sequence[str], code: str = "") -> None:
        self.commands.append(SimpleCommand(tuple(words), code, self._inside > 0))

    def script(self, text: str, depth: int) -> None:
        """Read a script: the commands that it contains, at any depth."""
        if len(text) > _LINE_MAX or depth > DEPTH_MAX or len(self.commands) > _COMMANDS_MAX:
            return self.unknown()
        try:
            ShellScript(text, self, depth).read()
        except (UnreadableScript, RecursionError):
            self.unknown()
        return None

    def command(self, words: list[str], stdin: str | None, depth: int, *, from_pipe: bool = False) -> None:
        """One simple command, and those that it runs itself. ``stdin``: the text of a here-document."""
        words = self._without_prefix(words, depth)
        if not words:
            return None
        if len(self.commands) > _COMMANDS_MAX or depth > DEPTH_MAX:
            return self.unknown()
        if any(UNKNOWN in word for word in words):
            self.is_plain = False
        name = program_name(words[0])
        inline = name in INTERPRETERS
        code = "\n".join([word for word in words[1:] if _CODE.search(word)] + [stdin or ""]) if inline else ""
        self._add(words, code)
        self._inside += 1
        if name in SHELLS:
            self._shell(words, stdin, depth, from_pipe=from_pipe)
        elif inline:
            self.is_plain = self.is_plain and stdin is None and not from_pipe
        elif name in WRAPPERS:
            self._wrapper(words, depth)
        else:
            self._texts_of(name, words, depth)
        if name in READS_COMMANDS:
            self.script(stdin, depth + 1) if stdin is not None else self.unknown()
        self._inside -= 1
        return None

    def _without_prefix(self, words: list[str], depth: int) -> list[str]:
        """The words of a command without reserved words and assignments before it."""
        while words and words[0] in RESERVED:
            self.is_plain = False
            word, *words = words
            if word in ("for", "select", "case"):
                return []  # the words of the loop or the case; its body follows as commands of its own
            if word == "function":
                words = words[1:]  # its name; the body may follow in the same command
        while words and (assignment := _ASSIGNMENT.match(words[0])):
            self.is_plain = False
            if _RUN_BY_OTHERS.search(assignment[1]):
                self._text(words[0][assignment.end() :], depth)
            words = words[1:]
        return words

    def _text(self, text: str, depth: int) -> None:
        """A text that another program runs, as in ``PAGER='less -R'``."""
        self._inside += 1
        self.is_plain = False
        self.script(text.removeprefix("!"), depth + 1)
        self._inside -= 1

    def _texts_of(self, name: str, words: list[str], depth: int) -> None:
        """What a program other than a wrapper runs by its options: ``tar --to-command=…``, ``git -c alias.x=!…``, ``alias x=…``."""
        for at, word in enumerate(words[1:], 1):
            option, value = _TEXT_OPTION.fullmatch(word), word.partition("=")[2]
            if option is not None:
                self._text(option[1], depth)
            elif name == "alias" and value:
                self._text(value, depth)
            elif name == "git" and (word.startswith("!") or value.startswith("!")):
                self._text(value if value.startswith("!") else word, depth)
            elif name == "git" and _RUNS_REST.fullmatch(word):
                self.is_plain = False
                return self._wrapper(words[at:], depth)  # it reads all the rest
        return None

    def _shell(self, words: list[str], stdin: str | None, depth: int, *, from_pipe: bool) -> None:
        options = [at for at, word in enumerate(words) if at and re.fullmatch(r"[-+][A-Za-z]*c[A-Za-z]*", word)]
        operands = [word for word in words[1:] if not word.startswith(("-", "+"))]
        if options:
            # The script is the first operand; options such as `-o NAME` may come before it.
            for script in [word for word in words[options[0] + 1 :] if not word.startswith(("-", "+"))]:
                self.script(script, depth + 1)
        elif operands:
            self.command(operands, None, depth + 1)
        if stdin is not None:
            self.script(stdin, depth + 1)
        elif from_pipe or (not operands and not options):
            self.unknown()

    def _wrapper(self, words: list[str], depth: int) -> None:
        """Every rest of the arguments may be the inner command: which one it is depends on each wrapper's options."""
        if words[0] == "eval":
            self.script(" ".join(words[1:]), depth + 1)
        for at in range(1, len(words)):
            word = words[at]
            if word.startswith("-") and word != "-":
                attached = _ATTACHED.fullmatch(word)
                for text in (word.partition("=")[2], "" if attached is None else attached[1]):
                    if text:
                        self.script(text, depth + 1)
                continue
            if " " in word or "\n" in word:
                self.script(word, depth + 1)
            assignment = _ASSIGNMENT.match(word)
            if assignment is None and len(self.commands) <= _COMMANDS_MAX:
                self._inner(words[at:], depth)
            elif assignment is not None and _RUN_BY_OTHERS.search(assignment[1]):
                self._text(word[assignment.end() :], depth)

    def _inner(self, words: list[str], depth: int) -> None:
        words = words if len(words) <= _INNER_WORDS else [*words[:_INNER_WORDS], SEVERAL]
        name = program_name(words[0])
        if name in SHELLS or name in INTERPRETERS or name in ("git", "alias"):
            self.command(words, None, depth + 1)
        else:
            self._add(words)

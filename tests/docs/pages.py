"""Runs what a page of the documentation shows.

Invariant: every fenced block of a page is known to the runner, and a page is run from top to bottom in one shell that starts
in an empty directory, so that readers get the shown results.

The conventions, as in CONTRIBUTING.md:

- ``console``: a line that starts with ``$ `` is a command, and continues in lines right below it that start with ``> ``. The
  lines below are what it prints on both streams. ``…`` stands for any text inside a line, with the blanks beside it; a line
  that is ``…`` alone for any number of lines. Blanks at the end of a line do not count. A last line ``# exits 1`` says that
  the command ends with that code; without it, it must end with 0. A command that ends with ``&`` runs beside the page until the
  page ends: the lines below are the first that it prints, and the address in them is ``$FORGE`` from then on.
- ``python``: must run.
- ``json``, ``yaml``: must parse. A paragraph ``File `NAME`:`` above it writes it to that file.
- ``text``, ``sh``: for reading.

Steps that a reader performs with a mouse are in a block inside an HTML comment: it is run, and not shown.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from clia.cli.registry import TREE, Group
from support import warm

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ROOT = Path(__file__).resolve().parents[2]
LANGUAGES = ("console", "python", "json", "yaml", "text", "sh")
ANY = "…"
TIMEOUT = 300
_FENCE = re.compile(r"^(`{3,})(\S*)[^\n]*\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
_OPENING = re.compile(r"^[ \t]*(?:`{3}|~{3})", re.MULTILINE)
_FILE = re.compile(r"^File `(\S+)`:\n\n\Z", re.MULTILINE)
_EXITS = re.compile(r"# exits (\d+)")
_ANY_TEXT = re.compile(rf" *{ANY} *")
_COMMAND = re.compile(r"\bclia ([a-z-]+) *([a-z-]*)")
_END = "clia-end-of-block"
_MARK = "clia-step-done"


class Block(NamedTuple):
    language: str
    line: int  # where its text starts, counted from 1
    text: str
    file: str | None


class Step(NamedTuple):
    """One command of the shell and its expected output; None: not checked."""

    line: int
    script: str
    expected: list[str] | None
    code: int

    @property
    def beside(self) -> bool:
        """Whether it runs in the background."""
        return self.expected is not None and self.script.endswith(" &")


class Failure(NamedTuple):
    line: int
    problem: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.problem}"


def blocks(text: str) -> list[Block]:
    """Every fenced block; ``ValueError`` for a fence in a form that would be missed."""
    found_blocks = []
    for match in _FENCE.finditer(text):
        named = _FILE.search(text, 0, match.start())
        found_blocks.append(Block(match[2], text.count("\n", 0, match.start(3)) + 1, match[3], named[1] if named else None))
    outside = _FENCE.sub("", text)
    if _OPENING.search(outside):
        raise ValueError("a fence is indented, or does not end")
    return found_blocks


def steps(text: str) -> list[Step]:
    page_steps: list[Step] = []
    for block in blocks(text):
        if block.language == "console":
            page_steps += _commands(block)
        elif block.language == "python":
            page_steps.append(Step(block.line, f"python - <<'{_END}'\n{block.text}{_END}", None, 0))
        elif block.file is not None:
            script = f"mkdir -p \"$(dirname {block.file})\" && cat > {block.file} <<'{_END}'\n{block.text}{_END}"
            page_steps.append(Step(block.line, script, None, 0))
    return page_steps


def _commands(block: Block) -> list[Step]:
    command_steps: list[Step] = []
    for number, line in enumerate(block.text.splitlines(), block.line):
        last = command_steps[-1] if command_steps else None
        if line.startswith("$ "):
            command_steps.append(Step(number, line[2:], [], 0))
        elif last is None or last.expected is None:
            raise ValueError(f"line {number}: a console block starts with a command")
        elif not last.expected and line.startswith("> "):
            command_steps[-1] = last._replace(script=f"{last.script}\n{line[2:]}")
        elif exits := _EXITS.fullmatch(line):
            command_steps[-1] = last._replace(code=int(exits[1]))
        else:
            last.expected.append(line)
    return command_steps


def run(
    text: str, directory: Path, home: Path, more: Mapping[str, str] | None = None, cold: Iterable[str] | None = None
) -> list[Failure]:
    """Run all steps of a page in ``directory``; return where the result differs from the page.

    ``more`` are variables for the shell. With ``cold``, the first run of each of these commands starts the installed program;
    all others run in a process that is already loaded (support/warm.py). A page with ``command -v clia`` gets the installed one.
    """
    todo = steps(text)
    script = home.with_suffix(".sh")  # beside it, because a new user's home is empty
    parts = [f"{_beside(step, home) if step.beside else step.script}\nprintf '\\n{_MARK} %d\\n' \"$?\"\n" for step in todo]
    script.write_text("".join([*parts, "trap '' TERM\nkill 0\nwait\n"]), encoding="utf-8")
    variables = environment(home)
    if cold is not None and "command -v clia" not in text:
        programs = home.with_suffix(".bin")
        programs.mkdir()
        warm.stand_in(programs, cold)
        variables["PATH"] = os.pathsep.join([str(programs), variables["PATH"]])
    out = _printed(script, directory, variables | dict(more or {}))
    *outputs, rest = re.split(rf"\n{_MARK} (\d+)\n", out)
    failures = [
        failure
        for step, out, code in zip(todo, outputs[::2], outputs[1::2], strict=False)
        if (failure := judge(step, out, int(code)))
    ]
    if len(outputs) // 2 < len(todo):
        failures.append(Failure(todo[len(outputs) // 2].line, f"the shell stopped here:\n{rest}"))
    return failures


def _printed(script: Path, directory: Path, variables: Mapping[str, str]) -> str:
    """The output of a script in a shell with its own process group, which ends with all that it started."""
    with subprocess.Popen(
        ["sh", str(script)],
        cwd=directory,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        process_group=0,  # in the session of what runs commands for it, which joins this group
    ) as shell:
        try:
            return shell.communicate(timeout=TIMEOUT)[0]
        finally:
            with suppress(ProcessLookupError):  # usually the script has ended all that it started
                os.killpg(shell.pid, signal.SIGKILL)


def _beside(step: Step, home: Path) -> str:
    """A background command: it is ready when it has printed the lines of the page, or has ended."""
    out = shlex.quote(str(home.with_suffix(f".{step.line}.out")))
    count = len(step.expected or ())
    return "\n".join(
        [
            f": > {out}",  # the shell's child would make it too late for the first look
            f"{step.script.removesuffix('&')}>> {out} 2>&1 &",
            f'until [ "$(wc -l < {out})" -ge {count} ] || ! kill -0 $! 2>&-; do sleep 0.05; done',
            f"found=$(sed -n 's/.* at \\(http[^ ]*\\)$/\\1/p' {out}); export FORGE=\"${{found:-$FORGE}}\"",
            f"head -n {count} {out}",
        ]
    )


def judge(step: Step, out: str, code: int) -> Failure | None:
    if code != step.code:
        return Failure(step.line, f"{step.script}\nexits {code}, not {step.code}, and prints\n{out}")
    actual = [line.rstrip() for line in out.splitlines()]
    if step.expected is None or matches(step.expected, actual):
        return None
    diff = "\n".join(difflib.unified_diff(step.expected, actual, "the page", "the program", lineterm="", n=99))
    return Failure(step.line, f"{step.script}\nprints something else\n{diff}")


def matches(expected: list[str], actual: list[str]) -> bool:
    """Whether lines match those of the page, with wildcards."""
    parts = []
    for line in expected:
        inside = "[^\n]*".join(re.escape(part) for part in _ANY_TEXT.split(line.rstrip()))
        parts.append(r"(?:[^\n]*\n)*" if line.strip() == ANY else f"{inside}\n")
    return re.fullmatch("".join(parts), "".join(f"{line}\n" for line in actual)) is not None


def environment(home: Path) -> dict[str, str]:
    """The environment of a new user: the installed programs, git, a name, and no settings."""
    coverage = {key: value for key, value in os.environ.items() if key.startswith("COVERAGE_")}
    return {
        **coverage,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_AUTHOR_NAME": "You",
        "GIT_AUTHOR_EMAIL": "you@example.org",
        "GIT_COMMITTER_NAME": "You",
        "GIT_COMMITTER_EMAIL": "you@example.org",
    }


@contextmanager
def fresh() -> Iterator[tuple[Path, Path]]:
    """An empty working directory and an empty home. The names are short, because tables are as wide as their content."""
    base = Path(tempfile.mkdtemp(prefix="clia-", dir="/tmp" if Path("/tmp").is_dir() else None)).resolve()
    try:
        for name in ("work", "home"):
            (base / name).mkdir()
        yield base / "work", base / "home"
    finally:
        shutil.rmtree(base)


def documents() -> list[Path]:
    """Every page for readers in this repository."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def cold_commands() -> dict[Path, set[str]]:
    """The commands that each page is the first to show, such as ``session show``; their first run starts the installed program."""
    earlier: set[str] = set()
    commands: dict[Path, set[str]] = {}
    for page in documents():
        scripts = "\n".join(step.script for step in steps(page.read_text(encoding="utf-8")))
        commands[page] = {*map(_named, _COMMAND.findall(scripts))} - earlier
        earlier |= commands[page]
    return commands


def _named(words: tuple[str, str]) -> str:
    """The name of a command among the words that follow ``clia``."""
    return " ".join(words) if isinstance(TREE.commands.get(words[0]), Group) else words[0]


def is_generated(page: Path) -> bool:
    return page.read_text(encoding="utf-8").startswith("<!-- Generated ")

"""Runs what a page of the documentation shows.

Invariant: every fenced block of a page is known to the runner, and a page is run from top to bottom in one shell that starts
in an empty directory, so that what a reader sees is what happens.

The conventions, which CONTRIBUTING.md tells writers:

- ``console``: a line that starts with ``$ `` is a command, and goes on in lines right below it that start with ``> ``. The
  lines below are what it prints on both streams. ``…`` stands for any text inside a line, with the blanks beside it; a line
  that is ``…`` alone for any number of lines. Blanks at the end of a line do not count. A last line ``# exits 1`` says that
  the command ends with that code; without it, it must end with 0. A command that ends with ``&`` runs beside the page until the
  page ends: the lines below are the first that it prints, and the address in them is ``$FORGE`` from then on.
- ``python``: must run.
- ``json``, ``yaml``: must parse. The words ``File `NAME`:`` in a paragraph of their own above it put it into that file.
- ``text``, ``sh``: for reading.

What a reader does with a mouse stands in a block inside an HTML comment: it is run, and not shown.
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
    """One thing that the shell does, and what it must print; None: that is not looked at."""

    line: int
    script: str
    expected: list[str] | None
    code: int

    @property
    def beside(self) -> bool:
        """Whether it goes on while the page does."""
        return self.expected is not None and self.script.endswith(" &")


class Failure(NamedTuple):
    line: int
    what: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.what}"


def blocks(text: str) -> list[Block]:
    """Every fenced block; ``ValueError`` where a fence is written so that it would be missed."""
    found = []
    for match in _FENCE.finditer(text):
        named = _FILE.search(text, 0, match.start())
        found.append(Block(match[2], text.count("\n", 0, match.start(3)) + 1, match[3], named[1] if named else None))
    outside = _FENCE.sub("", text)
    if _OPENING.search(outside):
        raise ValueError("a fence is indented, or does not end")
    return found


def steps(text: str) -> list[Step]:
    found: list[Step] = []
    for block in blocks(text):
        if block.language == "console":
            found += _commands(block)
        elif block.language == "python":
            found.append(Step(block.line, f"python - <<'{_END}'\n{block.text}{_END}", None, 0))
        elif block.file is not None:
            script = f"mkdir -p \"$(dirname {block.file})\" && cat > {block.file} <<'{_END}'\n{block.text}{_END}"
            found.append(Step(block.line, script, None, 0))
    return found


def _commands(block: Block) -> list[Step]:
    found: list[Step] = []
    for number, line in enumerate(block.text.splitlines(), block.line):
        last = found[-1] if found else None
        if line.startswith("$ "):
            found.append(Step(number, line[2:], [], 0))
        elif last is None or last.expected is None:
            raise ValueError(f"line {number}: a console block starts with a command")
        elif not last.expected and line.startswith("> "):
            found[-1] = last._replace(script=f"{last.script}\n{line[2:]}")
        elif exits := _EXITS.fullmatch(line):
            found[-1] = last._replace(code=int(exits[1]))
        else:
            last.expected.append(line)
    return found


def run(
    text: str, directory: Path, home: Path, more: Mapping[str, str] | None = None, cold: Iterable[str] | None = None
) -> list[Failure]:
    """Run all steps of a page in ``directory``; return where the result differs from the page.

    ``more`` are variables for the shell. With ``cold``, the first run of each of these commands starts the installed program;
    all others run in a process that is already loaded (support/warm.py). A page with ``command -v clia`` gets the installed one.
    """
    todo = steps(text)
    script = home.with_suffix(".sh")  # beside it: a newcomer's home is empty
    parts = [f"{_beside(each, home) if each.beside else each.script}\nprintf '\\n{_MARK} %d\\n' \"$?\"\n" for each in todo]
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
        each for step, out, code in zip(todo, outputs[::2], outputs[1::2], strict=False) if (each := judge(step, out, int(code)))
    ]
    if len(outputs) // 2 < len(todo):
        failures.append(Failure(todo[len(outputs) // 2].line, f"the shell stopped here:\n{rest}"))
    return failures


def _printed(script: Path, directory: Path, variables: Mapping[str, str]) -> str:
    """What a shell prints that does a script, in a group of processes of its own; nothing that it started outlives it."""
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
            with suppress(ProcessLookupError):  # most often: the script ends all that it started
                os.killpg(shell.pid, signal.SIGKILL)


def _beside(step: Step, home: Path) -> str:
    """A command that goes on: done when it has printed as many lines as the page shows, or has ended."""
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
    shown = "\n".join(difflib.unified_diff(step.expected, actual, "the page", "the program", lineterm="", n=99))
    return Failure(step.line, f"{step.script}\nprints something else\n{shown}")


def matches(expected: list[str], actual: list[str]) -> bool:
    """Whether lines are as the page shows them, wildcards aside."""
    parts = []
    for line in expected:
        inside = "[^\n]*".join(re.escape(part) for part in _ANY_TEXT.split(line.rstrip()))
        parts.append(r"(?:[^\n]*\n)*" if line.strip() == ANY else f"{inside}\n")
    return re.fullmatch("".join(parts), "".join(f"{line}\n" for line in actual)) is not None


def environment(home: Path) -> dict[str, str]:
    """A newcomer's: the installed programs, git, a name, and no settings."""
    kept = {key: value for key, value in os.environ.items() if key.startswith("COVERAGE_")}
    return {
        **kept,
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
    """An empty directory to work in and an empty home. The names are short: tables are as wide as what stands in them."""
    base = Path(tempfile.mkdtemp(prefix="clia-", dir="/tmp" if Path("/tmp").is_dir() else None)).resolve()
    try:
        for name in ("work", "home"):
            (base / name).mkdir()
        yield base / "work", base / "home"
    finally:
        shutil.rmtree(base)


def documents() -> list[Path]:
    """Every page that people read in this repository."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def cold_commands() -> dict[Path, set[str]]:
    """The commands that each page is the first to show, as ``session show``: their first run starts the installed program."""
    seen: set[str] = set()
    found: dict[Path, set[str]] = {}
    for page in documents():
        scripts = "\n".join(step.script for step in steps(page.read_text(encoding="utf-8")))
        found[page] = {*map(_named, _COMMAND.findall(scripts))} - seen
        seen |= found[page]
    return found


def _named(words: tuple[str, str]) -> str:
    """The name of a command among the words that follow ``clia``."""
    return " ".join(words) if isinstance(TREE.commands.get(words[0]), Group) else words[0]


def is_generated(page: Path) -> bool:
    return page.read_text(encoding="utf-8").startswith("<!-- Generated ")

"""A command in a process that is already loaded does what the installed program does, and ends with its client."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from support import clia, installed, warm

if TYPE_CHECKING:
    from pathlib import Path

MORE_THAN_A_PIPE_HOLDS = b"x" * 2**18


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """The variables of a shell that has the stand-in on its path."""
    (tmp_path / "bin").mkdir()
    warm.stand_in(tmp_path / "bin", cold=["doctor", "agents schema"])
    return {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "LANG": "C.UTF-8", "COLUMNS": "60"}


@pytest.mark.parametrize(
    ("words", "env"),
    [
        (["--version"], {}),
        ([], {"COLUMNS": "60"}),
        (["agents", "frobnicate"], {}),
        (["spawn", "--nonsense", "--json"], {}),
        (["list"], {}),
        (["agents", "explain", "/role", "--slug", "é\udcff"], {}),
        (["agents", "lint"], {"LC_ALL": "POSIX", "PYTHONHASHSEED": "7"}),
    ],
    ids=str,
)
def test_a_command_has_the_same_output_and_exit_code(tmp_path: Path, words: list[str], env: dict[str, str]) -> None:
    assert clia(*words, cwd=tmp_path, env=env) == installed(*words, cwd=tmp_path, env=env)


def test_a_command_in_a_shell_has_its_streams_code_mask_variables_and_directory(tmp_path: Path, shell: dict[str, str]) -> None:
    script = """
        git init -q 'a b' && cd 'a b' && umask 077
        clia init > out; clia spawn scout -t Scout >> out
        printf 'fed' | clia commit scout finding -m fed --set x=- | grep -c .
        (clia show nobody 2>&1 >&3 | grep -c error) 3>&1
        clia show nobody 2> /dev/null; echo $?
        wc -l < out; stat -c %a .git/clia; git show agents/scout:x
        COLUMNS=40 clia trace purge 2>&1 | head -n 2 | wc -L
    """
    names = {f"GIT_{role}_{field}": "x@example.org" for role in ("AUTHOR", "COMMITTER") for field in ("NAME", "EMAIL")}
    answers: list[tuple[int, str, str]] = []
    for more in ({}, {"PATH": os.pathsep.join([os.path.dirname(warm.PROGRAM), os.environ["PATH"]])}):
        place = tmp_path / f"{len(answers)}"
        place.mkdir()
        result = subprocess.run(
            ["sh", "-c", script], cwd=place, env=shell | names | more, capture_output=True, text=True, check=False
        )
        answers.append((result.returncode, result.stdout, result.stderr))
    assert answers[0] == answers[1]
    assert "fed" in answers[0][1]
    assert answers[0][2] == ""


def test_a_program_in_a_new_session_reads_writes_and_ends_the_same(tmp_path: Path) -> None:
    """As the client of an MCP server starts it."""
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    assert clia("init", cwd=tmp_path).code == 0
    ran: list[tuple[int, bytes, bytes]] = []
    for words in (["commit", "nobody", "finding", "--set", "x=-"], ["hook", "rehearse", "codex", "--script", "-"]):
        for command in (warm.program(), warm.PROGRAM):
            result = subprocess.run(
                [command, *words], cwd=tmp_path, input=b"fed", capture_output=True, start_new_session=True, check=False
            )
            ran.append((result.returncode, result.stdout, result.stderr))
    assert ran[0] == ran[1]
    assert ran[2] == ran[3]
    assert b"nobody" in ran[0][2]
    assert b"JSON" in ran[2][2]


def test_input_reaches_a_command(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    assert clia("init", cwd=tmp_path).code == 0
    assert "not JSON" in clia("hook", "rehearse", "codex", "--script", "-", cwd=tmp_path, data=b"{").err


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_command_ends_with_its_client(tmp_path: Path, shell: dict[str, str], number: signal.Signals) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    assert clia("init", cwd=tmp_path).code == 0
    words = [str(tmp_path / "bin" / "clia"), "behaviour", "add", "plain", "-", "--kind", "prompt"]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, cwd=tmp_path, env=shell, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        os.write(process.stdin.fileno(), MORE_THAN_A_PIPE_HOLDS)  # it returns when the command reads, so the command runs
        process.send_signal(number)
        assert select.select([process.stdout], [], [], 60)[0], "the command holds this open as long as it runs"
        assert process.wait() == -number


def test_cold_commands_start_the_installed_program(tmp_path: Path, shell: dict[str, str]) -> None:
    """The first run of each named command, and every run with a variable that Python reads when it starts."""
    text = (tmp_path / "bin" / "clia").read_text(encoding="utf-8")
    (tmp_path / "bin" / "clia").write_text(text.replace(repr(warm.PROGRAM), repr("/bin/echo")), encoding="utf-8")
    for words, cold in (("doctor", True), ("agents schema agent", True), ("doctor", False), ("--version", False)):
        result = subprocess.run(["clia", *words.split()], env=shell, capture_output=True, text=True, check=True)
        assert (result.stdout == f"{words}\n") is cold
    result = subprocess.run(["clia", "list"], env=shell | {"PYTHONHASHSEED": "7"}, capture_output=True, text=True, check=True)
    assert result.stdout == "list\n"

"""The console program."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import clia as library
from clia.cli.registry import TREE, Group
from docs import pages
from support import clia as warm_clia
from support import git, program
from support import installed as clia

if TYPE_CHECKING:
    from support import Tree


def commands(group: Group = TREE, words: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    names = []
    for name, command in group.commands.items():
        names += commands(command, (*words, name)) if isinstance(command, Group) else [(*words, name)]
    return names


@cache
def started_by_pages() -> set[str]:
    """The commands for which the tests of the documentation start the installed program."""
    return set().union(*pages.cold_commands().values())


def test_version_is_printed() -> None:
    assert clia("--version") == (0, f"clia {library.__version__}\n", "")


def test_without_a_command_the_commands_are_listed() -> None:
    ran = clia()
    assert ran.code == 2
    assert "agents" in ran.out
    assert clia("agents", "--help").code == 0


def test_an_unknown_command_is_bad_input() -> None:
    ran = clia("agents", "frobnicate")
    assert ran.code == 2
    assert "frobnicate" in ran.err
    assert clia("agents", "profile").code == 2
    assert clia("agents", "profile", "--slug", "x", "--frobnicate").code == 2


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_has_help_and_json(words: tuple[str, ...]) -> None:
    run = warm_clia if " ".join(words) in started_by_pages() else clia
    ran = run(*words, "--help")
    assert ran.code == 0
    assert "--json" in ran.out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "tcsh"])
def test_completion_scripts_have_the_commands(shell: str) -> None:
    ran = clia("completion", shell)
    assert ran.code == 0
    assert "consolidate" in ran.out
    assert "--write-scope" in ran.out or "write-scope" in ran.out


def test_the_bash_completion_script_completes() -> None:
    script = (
        'source /dev/stdin <<< "$("$0" completion bash)"; COMP_WORDS=(clia agents pro); COMP_CWORD=2; '
        'COMPREPLY=(); $(complete -p clia | sed "s/.*-F \\([^ ]*\\).*/\\1/"); echo "${COMPREPLY[@]}"'
    )
    result = subprocess.run(["bash", "-c", script, program()], capture_output=True, text=True, check=False)
    assert "profile" in result.stdout.split(), result


@pytest.mark.parametrize("command", ["log", "land", "commit", "trace show"])
def test_the_bash_completion_script_completes_names_of_agents(tmp_path: Path, command: str) -> None:
    git("init", "-q", "-b", "main", cwd=tmp_path)
    git("commit", "-q", "--allow-empty", "-m", "x", cwd=tmp_path)
    git("branch", "agents/scout", cwd=tmp_path)
    words = ["clia", *command.split(), "sc"]
    script = (
        f'source /dev/stdin <<< "$("$0" completion bash)"; COMP_WORDS=({" ".join(words)}); COMP_CWORD={len(words) - 1}; '
        'COMPREPLY=(); $(complete -p clia | sed "s/.*-F \\([^ ]*\\).*/\\1/"); echo "${COMPREPLY[@]}"'
    )
    result = subprocess.run(["bash", "-c", script, program()], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.stdout.split() == ["scout"], result


def test_the_powershell_script_has_commands_options_and_names() -> None:
    script = clia("completion", "powershell").out
    tree = json.loads(re.search(r"\$tree = '(.*)' \| ConvertFrom-Json", script)[1].replace("''", "'"))  # type: ignore[index]
    assert "--onto" in tree["commands"]["land"]["options"]
    assert tree["commands"]["land"]["refs"] == "refs/heads/agents"
    assert "add" in tree["commands"]["trace"]["commands"]
    assert script.count("{") == script.count("}")


def test_a_link_named_after_an_agent_is_that_agents_program(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", "cadence", title="Cadence")
    tree.agent("w", "scout", title="Scout")
    link = tree.root / "cadence-agent-cli"
    link.symlink_to(program())

    assert clia("profile", "--json", cwd=tree.root / "w", executable=str(link)).json()["title"] == "Cadence"
    assert clia("profile", "--json", "--agent-slug", "scout", cwd=tree.root / "w", executable=str(link)).json()["title"] == "Scout"
    assert clia("plan", "--json", cwd=tree.root / "w", executable=str(link)).code == 0
    wrote = clia("journal", "--note", "from my own program", "--json", cwd=tree.root / "w", executable=str(link))
    assert "cadence" in wrote.json()["path"]
    assert "usage: cadence-agent-cli" in clia("--help", executable=str(link)).out


def test_clia_agent_cli_is_the_same_program() -> None:
    assert clia("--version", executable=program("clia-agent-cli")) == clia("--version")


def test_an_agents_program_can_be_built_in_code(tree: Tree, capfd: pytest.CaptureFixture[str]) -> None:
    tree.repository("w")
    tree.agent("w", "cadence", title="Cadence")
    run = library.agent_cli("cadence")
    assert run(["profile", "--json", "--path", tree.path("w")]) == 0
    assert json.loads(capfd.readouterr().out)["title"] == "Cadence"
    assert run(["profile", "--json", "--path", tree.path("none")]) == 2
    with pytest.raises(library.errors.InvalidInput):
        library.agent_cli("../x")


def test_a_closed_pipe_is_not_an_error(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", x=["line"] * 20000)
    command = '"$0" agents profile --slug scout --json --path "$1" | head -1; exit ${PIPESTATUS[0]}'
    result = subprocess.run(["bash", "-c", command, program(), tree.path("w")], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "{\n", "")


def test_text_from_documents_cannot_drive_the_terminal(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", title="\x1b]0;owned\x07\x1b[31mred", guardrails=["a\u202eb", "c\u200bd"], role="🧑\u200d💻 coder")
    out = clia("agents", "profile", "--slug", "scout", "--path", tree.path("w"), env={"FORCE_COLOR": "1"}).out
    assert "\x1b]0;" not in out
    assert "\\u{1b}]0;owned\\u{7}\\u{1b}[31mred" in out
    assert "a\\u{202e}b" in out
    assert "c\\u{200b}d" in out
    assert "🧑\u200d💻 coder" in out


def test_output_is_utf8_in_every_locale(tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", title="é 🎛️")
    for extra in ({"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}):
        for json_too in ((), ("--json",)):
            ran = clia("agents", "profile", "--slug", "scout", "--path", tree.path("w"), *json_too, env=extra)
            assert ran.code == 0, ran
            assert "é 🎛️" in ran.out


def test_a_bug_is_reported_in_a_sentence_and_with_a_traceback_on_request(tree: Tree) -> None:
    sabotage = "import sys, clia.cli.main, clia.identities.lineage as module\nmodule.lineage = lambda *_, **__: 1 / 0\n"
    sabotage += "sys.exit(clia.cli.main.main(sys.argv[1:]))"
    words = [sys.executable, "-c", sabotage, "agents", "profile", "--slug", "x"]
    quiet = subprocess.run(words, capture_output=True, text=True, check=False)
    assert quiet.returncode == 1
    assert "a bug in clia: ZeroDivisionError" in quiet.stderr
    assert "Traceback" not in quiet.stderr
    loud = subprocess.run(words, capture_output=True, text=True, check=False, env=os.environ | {"CLIA_DEBUG": "1"})
    assert "Traceback" in loud.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the sources and installed beside the locked packages."""
    root = Path(__file__).resolve().parents[2]
    work = tmp_path_factory.mktemp("wheel")
    for name in ("src", "tools", "pyproject.toml", "README.md", "LICENSE"):
        source = root / name
        if source.is_dir():
            shutil.copytree(source, work / "tree" / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (work / "tree").mkdir(exist_ok=True)
            shutil.copy(source, work / "tree" / name)
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(work)],
        cwd=work / "tree",
        check=True,
        capture_output=True,
    )
    (built,) = work.glob("*.whl")
    target = work / "installed"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(target), str(built)]
    subprocess.run(install, check=True, capture_output=True)
    return target


def test_the_built_wheel_works_by_itself(wheel: Path, tree: Tree) -> None:
    tree.repository("w")
    tree.agent("w", title="From the wheel")
    environment = {"PYTHONPATH": str(wheel)}
    script = str(wheel / "bin" / "clia")
    ran = clia("agents", "profile", "--slug", "scout", "--json", "--path", tree.path("w"), env=environment, executable=script)
    assert ran.json()["title"] == "From the wheel"
    assert clia("agents", "schema", "agent", env=environment, executable=script).json()["$schema"]
    assert clia("agents", "lint", "--path", tree.path("w"), env=environment, executable=script).code == 0
    assert (wheel / "clia" / "py.typed").exists()


def test_an_invalid_option_is_reported_as_json() -> None:
    ran = clia("spawn", "--nonsense", "--json")
    assert ran.code == 2
    assert json.loads(ran.err)["error"]["code"] == "usage"
    assert clia("spawn", "--nonsense").err == "error: usage: missing argument NAME\n  hint: clia spawn --help\n"

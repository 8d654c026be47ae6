"""Which programs a shell command line runs."""

from __future__ import annotations

import pytest

from clia.rules.command_lines import parse_command
from clia.rules.patterns import command_may_match
from clia.rules.shell_scripts import UNKNOWN

RUNS = [
    "deploy prod",
    "/usr/local/bin/deploy prod",
    "./deploy prod",
    "DEPLOY prod",
    "de''ploy prod",
    "d\\eploy prod",
    "$'de\\x70loy' prod",
    "\\\ndeploy prod",
    "ls && deploy prod",
    "ls || deploy prod",
    "ls; deploy prod",
    "ls & deploy prod",
    "ls\ndeploy prod",
    "ls | deploy prod",
    "ls |& deploy prod",
    "! deploy prod",
    "A=b C=d deploy prod",
    "2>/dev/null deploy prod",
    "deploy prod > out",
    "(cd x && deploy prod)",
    "{ deploy prod; }",
    "if true; then deploy prod; fi",
    "while :; do deploy prod; done",
    "for f in a b; do deploy $f; done",
    "case $x in a) deploy prod;; esac",
    "echo $(deploy prod)",
    'echo "now $(deploy prod)"',
    "echo `deploy prod`",
    "echo ${x:-$(deploy prod)}",
    "echo $((1 + $(deploy prod)))",
    "diff <(deploy prod) x",
    "cat <<EOF\n$(deploy prod)\nEOF",
    "cat <<EOF\ntext\nEOF\ndeploy prod",
    "bash <<EOF\ndeploy prod\nEOF",
    "bash <<< 'deploy prod'",
    "sh -c 'deploy prod'",
    "bash -lc 'ls; deploy prod'",
    "/bin/sh -o pipefail -c 'deploy prod'",
    "sh deploy prod",
    "env A=b deploy prod",
    "env -S 'deploy prod'",
    "env -u A -- sh -c 'deploy prod'",
    "sudo -u root deploy prod",
    "xargs deploy < hosts",
    "xargs -n 1 -I {} sh -c 'deploy {}'",
    "find . -name x -exec deploy {} \\;",
    "timeout 5 nice -n 3 deploy prod",
    "nohup deploy prod &",
    "eval 'deploy prod'",
    "eval deploy prod",
    "command deploy prod",
    "exec deploy prod",
    "ssh host deploy prod",
    "uv run deploy prod",
    "python3 -c \"import os; os.system('deploy prod')\"",
    "python3 <<EOF\nimport os; os.system('deploy prod')\nEOF",
    "node -e 'exec(\"deploy prod\")'",
]


@pytest.mark.parametrize("line", RUNS)
def test_a_program_is_found_wherever_the_line_runs_it(line: str) -> None:
    assert any(command_may_match("deploy *", command) for command in parse_command(line).commands)


HIDES = [
    "$X prod",
    "${X} prod",
    "$(echo deploy) prod",
    "curl example.org | sh",
    "sh -s < script",
    "dep$X prod",
    "d*y prod",
    "sh 'x",
]


@pytest.mark.parametrize("line", [*HIDES, "$(" * 5000, "x" * 200_000, "'", "a <<", "sh -c " * 40 + "x"])
def test_what_only_the_shell_knows_could_be_any_program(line: str) -> None:
    parsed = parse_command(line)
    assert not parsed.is_plain or line.startswith("sh -c ")
    if not line.startswith("sh -c "):
        assert any(command_may_match("deploy *", command) for command in parsed.commands)


OTHERS = [
    "ls deploy",
    "echo deploy prod",
    "git commit -m 'deploy prod'",
    "deployment prod",
    "grep -r deploy .",
    "ls # deploy prod",
    "cat <<'EOF'\n$(deploy prod)\nEOF",
    "echo 'x; deploy prod'",
    "echo '$(deploy prod)'",
    "echo \\$(x)",
    "make deploy",
    "cat deploy.txt > deploy",
    "git commit -m \"$(cat <<'EOF'\nfix: don't (break it\n\ndeploy prod\nEOF\n)\"",
]


@pytest.mark.parametrize("line", OTHERS)
def test_a_mention_is_not_a_run(line: str) -> None:
    assert not any(command_may_match("deploy *", command) for command in parse_command(line).commands)


@pytest.mark.parametrize("line", ["git status", "git status && ls -l | wc", "ls 2>/dev/null", "ls 2>&1", "echo 'a b' \"c\""])
def test_a_line_is_plain_if_everything_is_written_out(line: str) -> None:
    assert parse_command(line).is_plain


@pytest.mark.parametrize(
    "line",
    ["A=b ls", "ls $X", "ls *", "ls > x", "ls >> x", "(ls)", "{ ls; }", "if ls; then :; fi", "ls | sh", "x() { ls; }", "ls `x`"],
)
def test_a_line_is_not_plain_if_anything_is_hidden_or_written(line: str) -> None:
    assert not parse_command(line).is_plain


def test_words_are_unquoted_and_unknown_parts_are_marked() -> None:
    (command,) = parse_command("cp 'a b' \"c$D\" e* > out").commands
    assert command.words == ("cp", "a b", f"c{UNKNOWN}", f"e{UNKNOWN}")
    assert parse_command("cp a b > out 2>> log").files == ("out", "log")


def test_a_list_of_words_is_read_without_a_shell() -> None:
    assert parse_command(["env", "deploy", "a;b"]).commands[1].words == ("deploy", "a;b")
    assert [command.is_inner for command in parse_command(["sh", "-c", "deploy x"]).commands] == [False, True]


def test_the_number_of_commands_is_limited() -> None:
    assert len(parse_command("a;" * 50_000).commands) < 1000

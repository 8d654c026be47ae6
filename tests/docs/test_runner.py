"""The runner of pages finds the problems of a page."""

from __future__ import annotations

import os

import pytest

from docs import pages
from support import program


def failures(text: str) -> list[str]:
    with pages.fresh() as (work, home):
        return [str(failure) for failure in pages.run(text, work, home)]


def console(*lines: str) -> str:
    return "\n".join(["# A page", "", "```console", *lines, "```", ""])


def test_a_correct_page_passes() -> None:
    assert failures(console("$ echo one; echo two >&2", "one", "two", "$ true")) == []


def test_a_page_gets_the_variables_of_a_server() -> None:
    with pages.fresh() as (work, home):
        assert pages.run(console("$ echo $PGHOST", "nearby"), work, home, {"PGHOST": "nearby"}) == []


def test_a_wrong_output_is_found_and_shown() -> None:
    (failure,) = failures(console("$ echo two", "one"))
    assert failure.startswith("line 4: echo two")
    assert "-one" in failure
    assert "+two" in failure


@pytest.mark.parametrize(("command", "expected"), [("echo one; echo two", ["one"]), ("true", ["one"]), ("echo one", [])])
def test_missing_and_additional_lines_are_found(command: str, expected: list[str]) -> None:
    assert len(failures(console(f"$ {command}", *expected))) == 1


def test_a_failing_command_is_found_even_with_the_right_output() -> None:
    (failure,) = failures(console("$ echo one; (exit 3)", "one"))
    assert "exits 3, not 0" in failure


def test_another_exit_code_must_be_stated_and_must_occur() -> None:
    assert failures(console("$ sh -c 'exit 3'", "# exits 3")) == []
    assert "exits 0, not 3" in failures(console("$ true", "# exits 3"))[0]


def test_commands_after_a_failure_are_still_checked() -> None:
    assert len(failures(console("$ false", "$ echo two", "one"))) == 2


def test_a_shell_that_stops_is_found() -> None:
    (failure,) = failures(console("$ exit 0", "$ echo one", "one"))
    assert "the shell stopped here" in failure


def test_the_directory_and_variables_last_for_one_page() -> None:
    assert failures(console("$ mkdir a && cd a && name=x", '$ echo "$(basename "$PWD") $name"', "a x")) == []
    assert failures(console("$ ls", '$ echo "<$name>"', "<>")) == []


def test_a_wildcard_stands_for_text_in_one_line_and_alone_for_lines() -> None:
    assert pages.matches(["a … c"], ["a b b c"])
    assert pages.matches(["│ …     │"], ["│ 2026 │"])
    assert not pages.matches(["a … c"], ["a b", "c"])
    assert pages.matches(["a", "…", "d"], ["a", "b", "c", "d"])
    assert pages.matches(["a", "…"], ["a"])
    assert not pages.matches(["a", "…", "d"], ["a", "b", "c"])
    assert not pages.matches(["a.c"], ["abc"])


def test_a_command_continues_in_lines_with_an_angle_bracket() -> None:
    assert failures(console("$ cat <<END", "> one", "> two", "> END", "one", "two")) == []


def test_a_background_command_is_waited_for_and_its_address_is_set() -> None:
    served = (
        """python -c 'print("serves at http://x.example.org"); print("ready")' &"""  # starts more slowly than the shell continues
    )
    page = console(f"$ {served}", "serves at …", "ready", "$ echo $FORGE", "http://x.example.org")
    assert failures(page) == []
    assert "+ready" in failures(page.replace("\nready\n", "\nsteady\n"))[0]


def test_a_background_command_that_ends_too_early_is_found() -> None:
    (failure,) = failures(console("$ echo one &", "one", "two"))
    assert "-two" in failure


def test_all_processes_end_with_the_page() -> None:
    with pages.fresh() as (work, home):
        page = console("$ mkfifo ../fifo", "$ sh -c 'echo $$ > ../pid; echo up; exec cat ../fifo' &", "up")
        assert pages.run(page, work, home) == []
        number = int((work.parent / "pid").read_text(encoding="utf-8"))
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


def test_a_block_in_a_comment_is_run() -> None:
    assert failures(f"<!--\n{console('$ touch a')}-->\n" + console("$ ls", "a")) == []


def test_python_blocks_run_in_the_directory_of_the_page() -> None:
    page = console("$ mkdir a && cd a") + "```python\nimport pathlib\n\nassert pathlib.Path.cwd().name == '{}'\n```\n"
    assert failures(page.format("a")) == []
    assert "AssertionError" in failures(page.format("b"))[0]


def test_a_named_block_is_written_to_its_file_unchanged() -> None:
    content = '{"cost": "$5"}'
    page = f"File `a/b.json`:\n\n```json\n{content}\n```\n"
    assert failures(page + console("$ cat a/b.json", content)) == []
    assert len(failures(page + console("$ cat a/b.json", "{}"))) == 1


@pytest.mark.parametrize("text", ["- item\n\n  ```console\n  $ false\n  ```\n", "```console\n$ false\n", "~~~\n$ false\n~~~\n"])
def test_a_fence_that_would_be_missed_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="fence"):
        pages.steps(text)


def test_three_backticks_inside_a_line_are_not_a_fence() -> None:
    assert [block.language for block in pages.blocks("Use ```` ```x ```` so:\n\n```text\none\n```\n")] == ["text"]


def test_output_without_a_command_is_refused() -> None:
    with pytest.raises(ValueError, match="starts with a command"):
        pages.steps(console("one"))


def test_pages_run_in_the_environment_of_a_new_user() -> None:
    page = console("$ ls -A", "$ ls -A ~", "$ git var GIT_AUTHOR_IDENT | cut -d' ' -f1", "You", "$ command -v clia")
    assert failures(page.replace("-v clia", f"-v clia\n{program()}")) == []

"""The operator's configuration is read completely, or refused with the name of the setting."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from clia.behaviours.suggesting import Policy
from clia.errors import InvalidDocument, NotFound
from clia.facade.config import Config, FlowLimits, Llm, ProgramRule, WorkerOptions, read_config

if TYPE_CHECKING:
    from pathlib import Path

WHOLE = """
[answers.human]
schema = { type = "string", enum = ["yes", "no"] }

[flows]
turn_seconds = 2
memory_mb = 32

[worker]
lease_seconds = 10
attempts = 3
backoff_seconds = 0.5
backoff_max_seconds = 60
concurrency = 8
poll_seconds = 0.1
grace_seconds = 2
timeout_seconds = 30
behaviours_seconds = 15
hub_seconds = 3

[effects.llm]
url = "https://models.example/v1/"
model = "small"
api_key_env = "MODELS_KEY"
timeout_seconds = 20

[effects.command.programs.claude]
run = ["claude", "-p"]
timeout_seconds = 900
environment = ["ANTHROPIC_BASE_URL"]
kind = "refactor"

[effects.command.programs.tests]
run = ["make", "test"]

[effects.mail]
server = "mail.example"
timeout_seconds = 5

[behaviours.review]
measure = "kept"
least = 40
error = 0.01
adopt = true

[behaviours."*"]
least = 30
"""


def write_config(tmp_path: Path, text: str | bytes) -> str:
    path = tmp_path / "config.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def test_every_setting_of_a_file_is_read(tmp_path: Path) -> None:
    path = write_config(tmp_path, WHOLE)
    config = read_config(path)
    assert config.answers == {"human": {"type": "string", "enum": ["yes", "no"]}}
    assert config.flows == FlowLimits(2.0, 32)
    assert config.worker == WorkerOptions(10.0, 3, 0.5, 60.0, 8, 0.1, 2.0, 30.0, 15.0, 3.0)
    assert config.llm == Llm("https://models.example/v1", "small", "MODELS_KEY", 20.0)
    assert config.programs == {
        "claude": ProgramRule(("claude", "-p"), 900.0, ("ANTHROPIC_BASE_URL",), "refactor"),
        "tests": ProgramRule(("make", "test")),
    }
    assert config.effects == {"mail": {"server": "mail.example", "timeout_seconds": 5}}
    assert config.behaviours == {"review": Policy("kept", 40, 0.01, adopt=True), "*": Policy(least=30)}
    assert config.path == path


def test_without_a_file_the_defaults_apply_unless_it_was_requested(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.toml")
    assert read_config(None) == read_config(missing) == Config()
    with pytest.raises(NotFound) as caught:
        read_config(missing, required=True)
    assert caught.value.code == "no-such-config"
    assert caught.value.fields == {"path": missing}


def test_an_empty_file_gives_the_defaults(tmp_path: Path) -> None:
    assert read_config(write_config(tmp_path, "")) == Config(path=str(tmp_path / "config.toml"))


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("colour = 1", "colour"),
        ("[worker]\nlease = 3", "worker.lease"),
        ("[worker]\nattempts = 0", "worker.attempts"),
        ("[worker]\nattempts = 2.0", "worker.attempts"),
        ("[worker]\nattempts = true", "worker.attempts"),
        ("[worker]\nlease_seconds = -1", "worker.lease_seconds"),
        ("[worker]\nlease_seconds = nan", "worker.lease_seconds"),
        ("[worker]\nlease_seconds = inf", "worker.lease_seconds"),
        ('[worker]\nlease_seconds = "3"', "worker.lease_seconds"),
        (f"[worker]\nlease_seconds = {'9' * 400}", "worker.lease_seconds"),
        ("[worker]\nlease_seconds = 1e300", "worker.lease_seconds"),
        ("[worker]\npoll_seconds = 315360001", "worker.poll_seconds"),
        (f"[worker]\nconcurrency = {'9' * 30}", "worker.concurrency"),
        ("[worker]\nattempts = 1000000001", "worker.attempts"),
        ("[flows]\nturn_seconds = 1e300", "flows.turn_seconds"),
        (f"[flows]\nmemory_mb = {'9' * 30}", "flows.memory_mb"),
        ("worker = 3", "worker"),
        ("[flows]\nturn = 3", "flows.turn"),
        ("answers = []", "answers"),
        ("[answers]\nhuman = 1", "answers.human"),
        ("[answers.human]", "answers.human.schema"),
        ("[answers.human]\nschema = true", "answers.human.schema"),
        ("[answers.human]\nschema = {}\nkind = 1", "answers.human.kind"),
        ("[effects.llm]", "effects.llm.url"),
        ('[effects.llm]\nurl = "ftp://x"', "effects.llm.url"),
        ('[effects.llm]\nurl = "https://me:secret@x"', "effects.llm.url"),
        ('[effects.llm]\nurl = "https://x/?key=1"', "effects.llm.url"),
        ('[effects.llm]\nurl = "http://[::1"', "effects.llm.url"),
        ('[effects.llm]\nurl = "http://x:99999999"', "effects.llm.url"),
        ('[effects.llm]\nurl = "http://x:0"', "effects.llm.url"),
        ('[effects.llm]\nurl = "http://:80"', "effects.llm.url"),
        ('[effects.llm]\nurl = "http://x\\n/y"', "effects.llm.url"),
        ('[effects.llm]\nurl = "http://x/é"', "effects.llm.url"),
        ('[effects.llm]\nurl = "http://x/a b"', "effects.llm.url"),
        ('[effects.llm]\nurl = "http://x"\napi_key = "sk"', "effects.llm.api_key"),
        ('[effects.llm]\nurl = "http://x"\nmodel = ""', "effects.llm.model"),
        ('[effects.command.programs.x]\nrun = "ls"', "effects.command.programs.x.run"),
        ("[effects.command.programs.x]\nrun = []", "effects.command.programs.x.run"),
        ("[effects.command.programs.x]\nrun = [1]", "effects.command.programs.x.run"),
        ('[effects.command.programs.x]\nrun = ["ls"]\nshell = true', "effects.command.programs.x.shell"),
        ("[effects.command]\nprogram = 1", "effects.command.program"),
        ("[worker]\nbehaviours_seconds = 0", "worker.behaviours_seconds"),
        ("[behaviours]\nreview = 1", "behaviours.review"),
        ("[behaviours.review]\nmost = 1", "behaviours.review.most"),
        ('[behaviours.review]\nmeasure = "beauty"', "behaviours.review.measure"),
        ('[behaviours.review]\nmeasure = ["kept"]', "behaviours.review.measure"),
        ("[behaviours.review]\nleast = 0", "behaviours.review.least"),
        ("[behaviours.review]\nerror = 2", "behaviours.review.error"),
        ("[behaviours.review]\nerror = nan", "behaviours.review.error"),
        ("[behaviours.review]\nerror = true", "behaviours.review.error"),
        ('[behaviours."*"]\nadopt = "yes"', "behaviours.*.adopt"),
        ('[behaviours."A B"]\nadopt = true', "behaviours.A B"),
        ("[effects.mail]\ntimeout_seconds = 0", "effects.mail.timeout_seconds"),
        ("[effects.mail]\ntimeout_seconds = 1e300", "effects.mail.timeout_seconds"),
        ("[effects]\nmail = 1", "effects.mail"),
    ],
)
def test_an_invalid_setting_is_refused_by_name(tmp_path: Path, text: str, field: str) -> None:
    path = write_config(tmp_path, text)
    with pytest.raises(InvalidDocument) as caught:
        read_config(path)
    assert caught.value.code == "invalid-config"
    assert caught.value.fields == {"path": path, "field": field}
    assert path in caught.value.message
    assert field in caught.value.message
    assert "secret" not in caught.value.message


@pytest.mark.parametrize("data", [b"[worker", b"\xff\xfe", b"a = 1\na = 2", b"a = " + b"9" * 5000, b"x" * (1024 * 1024 + 1)])
def test_invalid_toml_is_refused_with_its_path(tmp_path: Path, data: bytes) -> None:
    path = write_config(tmp_path, data)
    with pytest.raises(InvalidDocument) as caught:
        read_config(path)
    assert caught.value.fields == {"path": path}


def test_the_largest_numbers_are_accepted(tmp_path: Path) -> None:
    config = read_config(write_config(tmp_path, "[worker]\nlease_seconds = 315360000\nattempts = 1000000000"))
    assert (config.worker.lease_seconds, config.worker.attempts) == (315360000.0, 1000000000)


def test_a_directory_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidDocument, match="cannot be read"):
        read_config(str(tmp_path))

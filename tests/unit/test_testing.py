"""The fake effects of ``clia.testing``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clia.errors import InvalidInput
from clia.testing import ScriptedEffect, command_result, llm_result, work
from support.effects import made_space

if TYPE_CHECKING:
    from pathlib import Path

FLOW = """
def main(input):
    plan = request("llm", {"prompt": input})
    request("timer", {"seconds": 86400})
    done = request("command", {"program": "agent", "stdin": plan["text"]})
    try:
        request("llm", {"prompt": "more"})
    except RuntimeError as err:
        return [plan["text"], done["exit_code"], done["output"], str(err)]
"""


def test_a_flow_runs_with_scripted_effects_and_a_timer_that_is_due_at_once(tmp_path: Path) -> None:
    with made_space(tmp_path / "space") as space:
        space.sessions.define("plan", FLOW)
        space.start("scout", "plan", "Fix it")
        llm, command = ScriptedEffect(llm_result("Edit a file.")), ScriptedEffect(command_result("ok\n", 3))
        status = work(space, {"llm": llm, "command": command})
        assert (status.answered, status.given_up) == (2, 1)
        assert space.session("scout").result == ["Edit a file.", 3, "ok\n", "no prepared answer left for llm 1.4"]
        assert (llm.payloads, command.payloads) == (
            [{"prompt": "Fix it"}, {"prompt": "more"}],
            [{"program": "agent", "stdin": "Edit a file."}],
        )


def test_an_exception_in_a_script_fails_the_request(tmp_path: Path) -> None:
    with made_space(tmp_path / "space") as space:
        space.sessions.define("one", 'def main(input):\n    return request("llm", {})\n')
        space.start("scout", "one")
        work(space, {"llm": ScriptedEffect(InvalidInput("no credit"))})
        assert "no credit" in str(space.session("scout").failure)

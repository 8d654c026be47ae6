"""The plug-in for Amp, which has no server that could be tested with: its documented events, sent by a script."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import clia.capture
from support.real_tool_setups import succeeded

if TYPE_CHECKING:
    from support.real_tools import Computer

PLUGIN = Path(clia.capture.__file__).parent / "installation/plugins" / "amp.ts"
SCRIPT = """
const { default: plugin } = await import(process.argv[1])
const handlers = {}
plugin({ on: (name, handler) => (handlers[name] = handler) })
const thread = { id: "T-0c4ce0a1" }
const call = { thread, tool: "create_file", input: { path: "notes.txt" }, toolUseID: "toolu_1" }
handlers["session.start"]({ thread })
handlers["agent.start"]({ thread, message: "Write notes." })
const decision = handlers["tool.call"](call)
const { writeFileSync } = await import("node:fs")
writeFileSync("notes.txt", "one\\n")
handlers["tool.result"]({ ...call, status: "done", output: "written" })
handlers["agent.end"]({ thread, messages: [{ role: "assistant", content: [{ type: "text", text: "Done." }] }] })
console.log(JSON.stringify(decision))
"""


def test_the_plug_in_for_amp_reports_a_thread_and_allows_its_calls(computer: Computer) -> None:
    computer.install("amp")
    plugin = computer.root / ".amp/plugins/clia.ts"
    assert plugin.read_bytes() == PLUGIN.read_bytes()
    ended = succeeded(computer.run(["node", "--input-type=module", "-e", SCRIPT, str(plugin)]))
    assert ended.out == '{"action":"allow"}\n'
    agent = computer.record().only()
    assert agent.name == "amp-t0c4ce0a"
    assert agent.changes[-1] == ("Write notes.", {"notes.txt"})
    assert [(kind, text) for kind, text in agent.entries if kind != "note"] == [
        ("prompt", "Write notes."),
        ("tool-call", "create_file: notes.txt"),
        ("tool-result", "written"),
        ("said", "Done."),
    ]

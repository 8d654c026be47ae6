"""Build the plug-in for Claude Code: the marketplace ``build/plugin`` with the plug-in ``build/plugin/clia``.

The same version of clia gives the same bytes, and nothing of an older build remains. The hooks are those of ``clia hook install``.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from clia import __version__
from clia.capture.installation.hook_tools import SERVER, TOOLS, command_of

TARGET = Path(__file__).resolve().parent.parent / "build" / "plugin"
TOOL = TOOLS["claude-code"]
ABOUT = "Records what Claude Code does in a git repository: prompts, tool calls, sub-agents and commits, as a space of clia."
AUTHOR = {"name": "The clia authors"}

README = f"""# clia for Claude Code

{ABOUT}

Requirements: `clia` on the PATH of the user who starts Claude Code (`pip install clia-agents`), and a repository that is a space
(`clia init`). In any other repository the hooks do nothing.

    /plugin marketplace add PATH-OF-THE-FOLDER-ABOVE
    /plugin install clia@clia

- `hooks/hooks.json` runs `{command_of(TOOL, SERVER)}` for {len(TOOL.events)} events of Claude Code {TOOL.version}.
  It saves the event and exits with 0; it never stops, changes or answers anything.
- `.mcp.json` gives Claude the tools of `clia mcp`.
- `skills/clia` tells Claude when to use them.

`clia doctor` reports whether events arrive, and if not, why. Use either the plug-in or `clia hook install`: with both, each event
arrives twice.
"""

WHEN = (
    "Keep the record of an agent's work in this git repository with clia. Use it to find out who you are and what is planned here, "
    "to record a decision or a finding, to ask a person for a decision, and to see what other agents did."
)

SKILL = f"""---
name: {SERVER}
description: {WHEN}
---

# The record of this repository

This repository may be a space of clia: one branch for each agent, `agents/NAME`, and every action a commit with its trace. Your
prompts, tool calls and file changes are recorded by hooks; do not record them again. If `clia list` reports `no-such-space`, this
repository is not a space, and none of this applies.

The tools of the MCP server `clia`:

| tool | when |
| --- | --- |
| `whoami` | first: your title, duties and limits here, merged from every enclosing directory |
| `plan` | before you choose what to do: the merged agenda |
| `journal` | when you have learned something that the next agent here should know |
| `trace` | when you have decided something: what and why, in one or two sentences |
| `commit` | when a piece of work is done, with its kind: `finding`, `refactor`, `test`, … |
| `request_decision` | when a person must choose: one question, the choices, what you know; `decision` returns the answer |
| `pending` | questions that wait for a person |
| `agents`, `log`, `show`, `diff` | what others did, before you do it again |
| `spawn`, `merge` | create a sub-agent with its own branch, and merge its work |

Rules:

1. A question stays open until a person answers. Continue with what does not depend on it; never answer it yourself.
2. Write nothing secret into a trace, a journal or a question. Redaction removes only what looks like a secret.
3. Never move the branches `agents/…` or the refs `refs/clia/…` and `refs/notes/clia/…` with git. Use clia's commands.
4. An error has a code and hints. After `stale-ref`, read again, then decide again.

Without the MCP server the same verbs are commands: `clia --help`.
"""


def files() -> dict[str, str]:
    """Every file of the marketplace, by its path below it."""
    described = {"name": SERVER, "version": __version__, "description": ABOUT, "author": AUTHOR}
    marketplace = {
        "name": SERVER,
        "owner": AUTHOR,
        "description": "The plug-in of clia, as this checkout builds it.",
        "plugins": [{**described, "source": f"./{SERVER}"}],
    }
    return {
        ".claude-plugin/marketplace.json": _json(marketplace),
        f"{SERVER}/.claude-plugin/plugin.json": _json({**described, "license": "MIT", "keywords": ["agents", "git", "audit"]}),
        f"{SERVER}/hooks/hooks.json": _json({"description": ABOUT, "hooks": TOOL.hooks(command_of(TOOL, SERVER))}),
        f"{SERVER}/.mcp.json": _json({"mcpServers": {SERVER: {"type": "stdio", "command": SERVER, "args": ["mcp"]}}}),
        f"{SERVER}/skills/{SERVER}/SKILL.md": SKILL,
        f"{SERVER}/README.md": README,
    }


def build(target: Path) -> None:
    """Rebuild both folders. Everything else in ``target`` is kept; a folder that is not a plug-in is not replaced."""
    if (target / SERVER).exists() and not (target / SERVER / ".claude-plugin" / "plugin.json").is_file():
        raise SystemExit(f"{target / SERVER} exists and is not a plug-in")
    for name in (".claude-plugin", SERVER):
        shutil.rmtree(target / name, ignore_errors=True)
    for name, text in files().items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def main(words: list[str]) -> int:
    if len(words) > 1 or any(word.startswith("-") for word in words):
        print("usage: plugin.py [DIRECTORY]", file=sys.stderr)
        return 2
    target = Path(words[0]) if words else TARGET
    build(target)
    print(f"plug-in: {target / SERVER}")
    print(f"in Claude Code: /plugin marketplace add {target}, then /plugin install {SERVER}@{SERVER}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

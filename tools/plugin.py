"""The plug-in for Claude Code: ``build/plugin`` is a marketplace of one, and ``build/plugin/clia`` the plug-in.

Invariant: the same version of clia gives the same bytes; nothing is left of an older build. The hooks are those of
``clia hook install``: both come from one table.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from clia import __version__
from clia.capture.hook_tools import SERVER, TOOLS, command_of

TARGET = Path(__file__).resolve().parent.parent / "build" / "plugin"
TOOL = TOOLS["claude-code"]
ABOUT = "Records what Claude Code does in a git repository: prompts, tool calls, sub-agents and commits, as a space of clia."
AUTHOR = {"name": "The clia authors"}

README = f"""# clia for Claude Code

{ABOUT}

What it needs: `clia` on the PATH of whoever starts Claude Code (`pip install clia`), and a repository that is a space
(`clia init`). In any other repository its hooks do nothing.

    /plugin marketplace add PATH-OF-THE-FOLDER-ABOVE
    /plugin install clia@clia

- `hooks/hooks.json` runs `{command_of(TOOL, SERVER)}` for {len(TOOL.events)} events of Claude Code {TOOL.version}.
  It puts the event down and ends with 0; it never stops, changes or answers anything.
- `.mcp.json` gives Claude the tools of `clia mcp`.
- `skills/clia` tells Claude when to use them.

`clia doctor` says whether events arrive, and if not, why. Use the plug-in or `clia hook install`, not both: with both each event
comes twice.
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
prompts, tool calls and file changes are recorded by hooks; do not record them again. `clia list` shows whether it is a space: where
it says `no-such-space`, leave all of this.

The tools of the MCP server `clia`:

| tool | when |
| --- | --- |
| `whoami` | first: your title, duties and limits here, merged from every directory above |
| `plan` | before you choose what to do: the agenda that holds here |
| `journal` | when you learned something that the next agent here should know |
| `trace` | when you decided something: what, and why, in one or two sentences |
| `commit` | when a piece of work is done and should stand by itself, with its kind: `finding`, `refactor`, `test`, … |
| `request_decision` | when a person must choose: one question, the choices, what you know; then `decision` tells the answer |
| `pending` | what waits for a person now |
| `agents`, `log`, `show`, `diff` | what others did, before you do it again |
| `spawn`, `merge` | a sub-agent with a branch of its own, and taking in its work |

Rules:

1. A question that was asked stays open until a person answers. Go on with what does not depend on it; never answer it yourself.
2. Write nothing secret into a trace, a journal or a question. What looks like a secret is taken out, but not everything does.
3. Never move the branches `agents/…` or the refs `refs/clia/…` and `refs/notes/clia/…` with git. The commands of clia do it.
4. An error names its code and what to do. If it says that the world moved (`stale-ref`), look again, then decide again.

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
    """Makes both folders anew; what else lies in ``target`` stays, and so does a folder that no build of ours made."""
    if (target / SERVER).exists() and not (target / SERVER / ".claude-plugin" / "plugin.json").is_file():
        raise SystemExit(f"{target / SERVER} is there already, and is no plug-in")
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

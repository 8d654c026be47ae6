"""``clia demo``: a small shop with agents at work, and the forge that shows it."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import tempfile
from typing import NamedTuple

from clia.cli.command import command, flag, opt
from clia.cli.output import emit_json, write
from clia.errors import InvalidInput, require_extra

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Annotated

    from clia.facade.space import Space


PERSON = ("Demo", "demo@example.org")
PORT = 8337
_FILES = {"stock.txt": "apples 3\npears 5\n", "prices.txt": "apple 1.20\npear 0.90\n"}
_SELL = """\
def main(input):
    question = f"Sell {input} apples to the school, at 1.10 each?"
    if request("human", {"question": question, "choices": ["yes", "no"]}) == "no":
        return "kept"
    commit = request("commit", {"changes": {"sold.txt": f"apples {input}\\\\n"}, "message": f"Sold {input} apples"})
    return commit["commit"]
"""
_QUESTIONS = (
    ("scout", {"question": "Three pears are rotten. May I throw them away?", "choices": ["yes", "no", "wait"]}),
    ("scout", {"question": "What does an apple cost next week?", "schema": {"type": "number", "minimum": 0}}),
    ("checker", {"question": "The scale is broken. What should I use instead?"}),
)
_TRY = (
    ("status", "what is going on"),
    ("log scout", "what an agent did"),
    ("trace show scout", "why: what it said and saw, without secrets"),
    ("why stock.txt:1", "who wrote a line, who approved it, and whether that verifies"),
    ("inbox", "what waits for you"),
    ("decide lead yes -m 'A fair price'", "answer; then see: clia log lead"),
)


class Demo(NamedTuple):
    """The demo that was created."""

    directory: str  # the repository
    questions: int  # questions that wait for a person


@command("demo")
def demo(
    json_output: bool,
    directory: str | None = opt("DIR", "new directory for the demo (default: a temporary one)"),
    port: int | None = opt("PORT", "port of the forge (default: 8337, or a free one)", type=int),
    no_serve: bool = flag("create the demo only"),
) -> Annotated[int, Demo]:
    """Create a small shop with agents and open questions, and serve it until Ctrl-C."""
    require_extra("flows")
    if not no_serve:
        require_extra("forge")
    if directory is not None and os.path.exists(directory):
        raise InvalidInput(f"{directory} already exists", code="directory-exists", fields={"path": directory})
    root = os.path.join(tempfile.mkdtemp(prefix="clia-demo-"), "shop") if directory is None else os.path.abspath(directory)
    questions = plant(root)
    if json_output:
        emit_json(Demo(root, questions))
    else:
        _show(root, questions)
    return 0 if no_serve else _serve(root, port)


def plant(root: str) -> int:
    """Create the shop; returns the number of questions that wait."""
    from clia.facade.settings import Settings
    from clia.facade.setup import set_up

    new_repository(root, _FILES, "Stock and prices")
    with set_up(root, settings=Settings(person=PERSON, durable=False)).space as space:
        _work(space)
        return len(space.sessions.pending())


def new_repository(root: str, files: Mapping[str, str], subject: str) -> None:
    """Create a repository with one commit, of a person of its own."""
    os.makedirs(root)
    _git(root, "init", "--quiet", "--initial-branch=main")
    for key, value in zip(("user.name", "user.email"), PERSON, strict=True):
        _git(root, "config", key, value)
    for name, text in files.items():
        with open(os.path.join(root, name), "w", encoding="utf-8") as file:
            file.write(text)
    _git(root, "add", ".")
    _git(root, "commit", "--quiet", "--no-verify", "--no-gpg-sign", "--message", subject)


def _work(space: Space) -> None:
    from clia.values.typed_objects import Briefing

    space.spawn_at("scout", Briefing("Count the apples", "Look into every box, and report what is wrong."), "main")
    space.traces.add("scout", "console", f"$ open box 7 --key ghp_{'Zx9' * 12}\nbox 7 holds one more apple")
    changes: dict[str, bytes | None] = {"stock.txt": b"apples 4\npears 5\n"}
    space.commit_with_trace("scout", "finding", changes=changes, message="One more apple in box 7")
    space.spawn_from("checker", Briefing("Check the count", "Count again, without looking at the result."), "scout")
    space.traces.add("checker", "console", "counted twice: 4 apples, 5 pears")
    space.commit_with_trace("checker", "test", changes={"checked.txt": b"apples 4, pears 5\n"}, message="The count is right")
    space.merge("scout", "checker", message="Take the check over")
    space.land("scout", "main")
    space.spawn_at("lead", Briefing("Sell the apples", "Ask before anything is sold."), "main")
    space.sessions.define("sell", _SELL, why="Ask, then sell")
    space.sessions.start("lead", "sell", 4)
    for agent, question in _QUESTIONS:
        space.sessions.ask(agent, question)


def _git(root: str, *words: str) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    subprocess.run(["git", *words], cwd=root, env=environment, check=True, stdout=subprocess.DEVNULL)


def _show(root: str, questions: int) -> None:
    write(f"a shop with three agents, in {root}\n\n  cd {shlex.quote(root)}\n")
    for words, text in _TRY:
        write(f"  clia {words:<36}{text}\n")
    write(f"\n{questions} questions wait for you: answer them here, or in the browser with the link below\n\n")


def _serve(root: str, port: int | None) -> int:
    from clia.cli.main import run_group
    from clia.cli.registry import TREE

    if port is None:
        with socket.socket() as tried:
            port = 0 if tried.connect_ex(("127.0.0.1", PORT)) == 0 else PORT
    return run_group(["serve", "--port", str(port), "--path", root, "--quiet"], TREE, "clia")

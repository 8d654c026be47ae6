"""What new users get wrong, with the exact messages: ``tests/fixtures/wrong_inputs.txt``.

After a change of messages, write the file again with ``CLIA_GOLDEN=write``, and read the difference.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import clia as library
from support import clia, git, installed, program
from support.spaces import settings

if TYPE_CHECKING:
    from collections.abc import Iterator

GOLDEN = Path(__file__).resolve().parents[1] / "fixtures" / "wrong_inputs.txt"
NOBODY = {"GIT_COMMITTER_NAME": "", "GIT_COMMITTER_EMAIL": "", "EMAIL": "", "GIT_CONFIG_NOSYSTEM": "1", "HOME": "/nonexistent"}
FLOW = 'def main(input):\n    return request("human", {"question": "Sell?", "choices": ["yes", "no"]})\n'
IN_SHOP = (
    "spwan x",
    "comit scout finding",
    "trace ad scout hello",
    "agents profle --slug scout",
    "spawn --titel Count counter",
    "spawn",
    "spawn Scout --title Count",
    "spawn counter",
    "spawn scout --title Count",
    "spawn mine --title Mine",
    "spawn counter --title Count --from scot",
    "spawn counter --title Count --at nowhere",
    "commit scout fnding --set a=broken.py -m Four",
    "commit scot finding -m Four",
    "commit scout finding --dir nowhere",
    "commit scout finding --set stock.txt",
    "commit scout finding --set stock.txt=nowhere.txt",
    "land",
    "land scot",
    "land scout --onto mian",
    "land scout --onto agents/scout",
    "land scout --ff -m Counted",
    "land scout --ff --squash",
    "blame main stok.txt",
    "log scot",
    "show 1234567",
    "diff scout --stt",
    "merge scout scout",
    "archive scot",
    "checkout scout stock.txt",
    "trace show mian",
    "decide scot yes",
    "decide scout yes --request 9.9",
    "decide seller maybe",
    "decide scout",
    "session start scout sel",
    "session show scot",
    "flow define broken broken.py",
    "flow show sel",
    "publish",
    "publish scout",
    "publish scout --heads both",
    "types --add review --parent comit",
    "hook install claude",
    "run tester make test",
    "run tester -- no-such-program",
    "serve --port 99999",
    "user link ada",
    "help landin",
    "completion basch",
    "status --jsn",
    "spwan x --json",
    "spawn --json",
)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shop with an agent, a repository without space, one without commits, one of another format, and no repository."""
    top = tmp_path_factory.mktemp("wrong")
    for name in ("plain", "empty", "nothing"):
        (top / name).mkdir()
    (top / "nothing" / "notes.txt").write_text("x\n", encoding="utf-8")
    git("init", "-q", "-b", "main", cwd=top / "plain")
    git("commit", "-q", "--allow-empty", "-m", "first", cwd=top / "plain")
    git("init", "-q", "-b", "main", cwd=top / "empty")
    git("init", "-q", "--object-format=sha256", "sha256", cwd=top)
    git("init", "-q", "-b", "main", "shop", cwd=top)
    shop = top / "shop"
    (shop / "stock.txt").write_text("apples 3\n", encoding="utf-8")
    git("add", ".", cwd=shop)
    git("commit", "-q", "-m", "Stock", cwd=shop)
    (shop / "broken.py").write_text("def main(input):\n    return 1 +\n", encoding="utf-8")
    with library.init(shop, settings=settings()) as space:
        space.spawn_at("scout", library.Briefing("Count"), "main")
        space.commit("scout", "finding", changes={"stock.txt": b"apples 4\n"})
        space.spawn_at("seller", library.Briefing("Sell"), "main")
        space.define("sell", FLOW)
        space.start("seller", "sell")
    git("branch", "agents/mine", "main", cwd=shop)
    git("init", "-q", "-b", "trunk", "detached", cwd=top)
    git("commit", "-q", "--allow-empty", "-m", "first", cwd=top / "detached")
    git("checkout", "-q", "--detach", cwd=top / "detached")
    with library.init(top / "detached", settings=settings()) as space:
        space.spawn_at("scout", library.Briefing("Count"), "HEAD")
    return top


def shown(places: Path) -> Iterator[tuple[str, str]]:
    """Each case with what it prints."""
    for words in IN_SHOP:
        yield f"$ clia {words}", said(places, "shop", *words.split())
    yield "outside of a repository: $ clia list", said(places, "nothing", "list")
    yield "outside of a repository: $ clia init", said(places, "nothing", "init")
    yield "without a space: $ clia list", said(places, "plain", "list")
    yield "without a space: $ clia land scout", said(places, "plain", "land", "scout")
    yield "detached HEAD, no main: $ clia land scout", said(places, "detached", "land", "scout")
    yield "SHA-256: $ clia init", said(places, "sha256", "init")
    yield "no identity: $ clia init", said(places, "empty", "init", env=NOBODY)
    yield (
        "no identity: $ clia commit scout finding",
        said(places, "shop", "commit", "scout", "finding", "--set", "a=broken.py", env=NOBODY),
    )
    yield "no identity: $ clia list --json", str(len(installed("list", "--json", cwd=places / "shop", env=NOBODY).json()))
    latin = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    yield "a locale without UTF-8: $ clia log zażółć", said(places, "shop", "log", "zażółć", env=latin)
    yield "60 columns: $ clia trace add --help", installed("trace", "add", "--help", cwd=places / "shop", env={"COLUMNS": "60"}).out
    yield (
        "60 columns: $ clia list",
        re.sub(r"\d{4}-\d\d-\d\d|\d\d:\d\d", "DATE", clia("list", cwd=places / "shop", env={"COLUMNS": "60"}).out),
    )


def said(places: Path, where: str, *words: str, env: dict[str, str] | None = None) -> str:
    ran = (installed if env else clia)(*words, cwd=places / where, env=env)
    text = f"{ran.out}{ran.err}".replace(str(places.resolve()), "/home/you").replace(str(places), "/home/you")
    text = re.sub(r"\b[0-9a-f]{10,40}\b", "ID", text)
    return f"{text}exit {ran.code}\n"


def test_wrong_inputs_print_what_the_golden_file_has(places: Path) -> None:
    refs = git("for-each-ref", cwd=places / "shop")
    text = "\n".join(f"{title}\n{output}" for title, output in shown(places))
    if os.environ.get("CLIA_GOLDEN") == "write":
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")
    assert "error: bug" not in text
    assert "Traceback" not in text
    own = [line for line in refs.splitlines() if "agents/tester" not in line]
    after = [line for line in git("for-each-ref", cwd=places / "shop").splitlines() if "tester" not in line]
    assert {line for line in after if "refs/heads/" in line} == {line for line in own if "refs/heads/" in line}


def test_ctrl_c_ends_quietly(places: Path) -> None:
    words = [program(), "status", "--watch", "--json"]
    environment = os.environ | {"GIT_COMMITTER_NAME": "Tess", "GIT_COMMITTER_EMAIL": "tess@example.org"}
    with subprocess.Popen(
        words, cwd=places / "shop", env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline() == "{\n"
        watching.send_signal(signal.SIGINT)
        _, err = watching.communicate()
    assert (watching.returncode, err) == (130, "")


def test_libgit2_does_not_read_sha256_repositories_yet(places: Path) -> None:
    """Fails with the first pygit2 that does: then clia can support them."""
    import pygit2

    with pytest.raises(pygit2.GitError, match="object format"):
        pygit2.Repository(str(places / "sha256"))

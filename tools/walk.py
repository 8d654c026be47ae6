"""``make walk``: which modules of clia six everyday journeys import and execute, and in which order.

Each journey runs one real command (or one API request) in its own process under a profiler. ``--source DIR`` measures
another checkout with the same tool; ``--json`` prints the numbers for a program.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from contextlib import contextmanager
from inspect import CO_OPTIMIZED
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

PYTHON = sys.executable
ROOT = Path(__file__).resolve().parent.parent
_READY_SECONDS = 60


class Journey(NamedTuple):
    """What one journey loaded and ran."""

    name: str
    imported: int
    executed: int
    crossings: int  # calls from one module of clia into another
    path: list[str]  # modules in the order in which their code first ran


class Profiler:
    """Counts modules of clia whose functions run, in every thread. What runs while a module is imported does not count."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.path: dict[str, None] = {}
        self.crossings = 0

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        del arg
        if event != "call" or not frame.f_code.co_flags & CO_OPTIMIZED:  # the body of a module or class
            return
        module = frame.f_globals.get("__name__", "")
        if not is_ours(module):
            return
        caller = frame.f_back.f_globals.get("__name__", "") if frame.f_back else ""
        crosses = caller != module and is_ours(caller)
        if (crosses or module not in self.path) and not is_import(frame):
            self.path.setdefault(module)
            self.crossings += crosses


def is_import(frame: FrameType | None) -> bool:
    """Whether a frame runs because a module of clia is being imported."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and is_ours(frame.f_globals.get("__name__", "")):
            return True
        frame = frame.f_back
    return False


def is_ours(module: str) -> bool:
    return module == "clia" or module.startswith("clia.")


def profiled(target: str, words: Sequence[str]) -> int:
    """Run ``clia WORDS`` under the profiler and write the counts to ``target``. SIGUSR1 starts the count again."""
    profiler = Profiler()
    signal.signal(signal.SIGUSR1, lambda *_: profiler.reset())
    sys.argv = ["clia", *words]
    from clia.cli.entry import run

    threading.setprofile(profiler)
    sys.setprofile(profiler)
    code: object = 1
    try:
        code = run()
    except SystemExit as end:
        code = end.code
    finally:
        sys.setprofile(None)
        imported = sum(is_ours(name) for name in sys.modules)
        counts = {"imported": imported, "crossings": profiler.crossings, "path": list(profiler.path)}
        Path(target).write_text(json.dumps(counts), encoding="utf-8")
    return code if isinstance(code, int) else 0 if code is None else 1


class Walk:
    """The journeys, in a temporary directory."""

    def __init__(self, source: Path, home: Path) -> None:
        self._home = home
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("CLIA_", "GIT_"))}
        self._environment = clean | {
            "PYTHONPATH": str(source / "src"),
            "HOME": str(home),
            "CLIA_HOOK_INGEST": "off",
        }
        (home / ".gitconfig").write_text("[user]\n\tname = Tess\n\temail = tess@example.org\n", encoding="utf-8")
        self._space = self._new_space("shop")

    def _new_space(self, name: str) -> Path:
        directory = self._home / name
        directory.mkdir()
        self._run(["git", "init", "-q", "-b", "main"], directory)
        (directory / "readme.txt").write_text("a shop\n", encoding="utf-8")
        self._run(["git", "add", "."], directory)
        self._run(["git", "commit", "-qm", "Start"], directory)
        self._clia(directory, "init")
        return directory

    def _run(self, words: Sequence[str], directory: Path) -> str:
        process = subprocess.run(words, cwd=directory, env=self._environment, capture_output=True, text=True, check=False)
        if process.returncode:
            raise SystemExit(f"walk: {' '.join(words)} failed:\n{process.stderr}")
        return process.stdout

    def _clia(self, directory: Path, *words: str) -> str:
        return self._run([PYTHON, "-m", "clia", *words], directory)

    def _journey(self, name: str, directory: Path, *words: str) -> Journey:
        target = self._home / f"{name}.json"
        self._run([PYTHON, __file__, "--profiled", str(target), *words], directory)
        return _journey(name, target)

    def commit(self) -> Journey:
        self._clia(self._space, "spawn", "scout", "--title", "Count the stock")
        (self._home / "stock.txt").write_text("12 boxes\n", encoding="utf-8")
        return self._journey("commit", self._space, "commit", "scout", "finding", "--set", f"stock.txt={self._home}/stock.txt")

    def api_commit(self) -> Journey:
        self._clia(self._space, "user", "add", "tess", "--role", "admin")
        token = json.loads(self._clia(self._space, "user", "token", "tess", "--json"))["token"]
        target = self._home / "api.json"
        with self._server(target) as (process, address):
            space = json.loads(_request(f"{address}/api/v1/spaces", token))
            name = (space["items"] if isinstance(space, dict) else space)[0]["name"]
            url = f"{address}/api/v1/spaces/{name}/agents/scout/commits"
            process.send_signal(signal.SIGUSR1)
            _request(url, token, {"kind": "finding", "changes": {"api.txt": "13 boxes\n"}})
        return _journey("API commit", target)

    @contextmanager
    def _server(self, target: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
        words = [PYTHON, __file__, "--profiled", str(target), "serve", "--port", "0"]
        with subprocess.Popen(
            words, cwd=self._space, env=self._environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as process:
            try:
                yield process, _address(process)
            finally:
                process.send_signal(signal.SIGINT)
                process.wait(_READY_SECONDS)

    def ingest(self) -> Journey:
        self._clia(self._space, "hook", "rehearse", "claude-code", "--path", ".", "--seed", "1")
        return self._journey("ingest", self._space, "ingest")

    def decide(self) -> Journey:
        self._clia(self._space, "ask", "scout", "Go on?", "--choices", "yes,no")
        return self._journey("decide", self._space, "decide", "scout", "yes")

    def profile(self) -> Journey:
        self._clia(self._space, "agents", "init", "scout")
        return self._journey("profile", self._space, "agents", "profile", "--slug", "scout", "--json")

    def sync(self) -> Journey:
        bank = self._new_space("bank")
        self._clia(self._space, "peer", "add", "bank", "--key", self._clia(bank, "key", "show").strip())
        self._clia(self._space, "peer", "share", "bank", "--agent", "scout")
        self._clia(self._space, "announce", "bank")
        self._clia(bank, "peer", "add", "shop", "--key", self._clia(self._space, "key", "show").strip(), "--url", str(self._space))
        self._clia(bank, "cap", "grant", "shop", "--follow")
        return self._journey("sync", bank, "sync")

    def journeys(self) -> list[Journey]:
        steps: list[Callable[[], Journey]] = [self.commit, self.api_commit, self.ingest, self.decide, self.profile, self.sync]
        return [step() for step in steps]


def _journey(name: str, target: Path) -> Journey:
    counts = json.loads(target.read_text(encoding="utf-8"))
    return Journey(name, counts["imported"], len(counts["path"]), counts["crossings"], counts["path"])


def _address(process: subprocess.Popen[str]) -> str:
    """The address for programs of a server, which prints the one for browsers when it is ready."""
    assert process.stdout is not None  # noqa: S101  # opened with a pipe
    printed = []
    deadline = time.monotonic() + _READY_SECONDS
    for line in process.stdout:
        printed.append(line)
        for word in line.split():
            if word.startswith("http://"):
                return f"http://127.0.0.1:{urlsplit(word.rstrip('.,')).port}"
        if time.monotonic() > deadline:
            break
    raise SystemExit("walk: the server did not start:\n" + "".join(printed))


def _request(url: str, token: str, body: dict[str, Any] | None = None) -> bytes:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=_READY_SECONDS) as response:  # noqa: S310  # our own address
        content: bytes = response.read()
    return content


def import_count(source: Path, module: str) -> int:
    """The number of clia modules that importing one of them loads."""
    code = f"import sys, {module}; print(sum(name == 'clia' or name.startswith('clia.') for name in sys.modules))"
    environment = dict(os.environ) | {"PYTHONPATH": str(source / "src")}
    process = subprocess.run([PYTHON, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return int(process.stdout)


def size(source: Path) -> tuple[int, int]:
    """Source files and lines."""
    files = sorted((source / "src" / "clia").rglob("*.py"))
    return len(files), sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)


def show(journeys: Sequence[Journey], client: int, files: int, lines: int, *, paths: bool) -> None:
    print(f"{'journey':12}{'imported':>10}{'executed':>10}{'crossings':>11}")
    for journey in journeys:
        print(f"{journey.name:12}{journey.imported:>10}{journey.executed:>10}{journey.crossings:>11}")
    print(f"\nimport clia.client: {client} modules\nsource: {files} files, {lines:,} lines")
    for journey in journeys if paths else ():
        print(f"\n{journey.name}:\n  " + "\n  ".join(journey.path))


def main() -> int:
    if sys.argv[1:2] == ["--profiled"]:
        return profiled(sys.argv[2], sys.argv[3:])
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", default=str(ROOT), metavar="DIR", help="checkout to measure (default: this one)")
    parser.add_argument("--json", action="store_true", help="print JSON for a program")
    parser.add_argument("--brief", action="store_true", help="print the table without the paths")
    args = parser.parse_args()
    source = Path(args.source).resolve()
    with tempfile.TemporaryDirectory() as home:
        journeys = Walk(source, Path(home)).journeys()
    client, (files, lines) = import_count(source, "clia.client"), size(source)
    if args.json:
        rows = [journey._asdict() for journey in journeys]
        print(json.dumps({"journeys": rows, "client": client, "files": files, "lines": lines}, indent=2))
    else:
        show(journeys, client, files, lines, paths=not args.brief)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Jobs that fork, each in a process of its own in which no flow has run yet.

Invariant: one process has loaded what jobs need, and does nothing but fork: nothing that a job did is there for the next. To load
it anew for each would take as long as many a job.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import traceback
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Done(NamedTuple):
    code: int
    out: str
    err: str


class Nursery:
    """The process that forks; it ends with whoever made it."""

    def __init__(self, module: str) -> None:
        path = [str(Path(__file__).parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
        self._out, self._err = TemporaryFile("w+"), TemporaryFile("w+")  # noqa: SIM115  # closed when this is
        handles = [str(each.fileno()) for each in (self._out, self._err)]
        command = [sys.executable, "-c", f"from {__name__} import serve; serve()", module, *handles]
        pass_on = [int(each) for each in handles]
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, pass_fds=pass_on
        )
        atexit.register(self.close)

    def run(self, module: str, name: str, words: Sequence[Any]) -> Done:
        """Calls a function by its name; what it printed, and how it ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        for each in (self._out, self._err):
            each.seek(0)
            each.truncate()
        self._process.stdin.write(json.dumps([module, name, list(words), dict(os.environ)]) + "\n")
        code = int(self._process.stdout.readline())
        return Done(code, _read(self._out), _read(self._err))

    def close(self) -> None:
        self._process.communicate()
        self._out.close()
        self._err.close()


def _read(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def serve() -> None:
    """Forks for each line that comes, and says how what it forked ended."""
    import_module(sys.argv[1])
    out, err = map(int, sys.argv[2:])
    for line in sys.stdin:
        child = os.fork()
        if not child:
            module, name, words, environment = json.loads(line)
            _live(module, name, words, environment, out, err)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201  # that is how one process tells another


def _live(module: str, name: str, words: Sequence[Any], environment: Mapping[str, str], out: int, err: int) -> None:
    code = 1
    try:
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.environ.clear()
        os.environ.update(environment)
        getattr(import_module(module), name)(*words)
        code = 0
    except BaseException:  # noqa: BLE001  # whoever asked is told
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

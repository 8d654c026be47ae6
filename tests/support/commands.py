"""Commands of clia, run in this process because starting one takes long."""

from __future__ import annotations

import json
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING, Any

from clia.cli.main import main
from support import Ran

if TYPE_CHECKING:
    from pathlib import Path


class Commands:
    """Commands on one repository."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def where(self, words: tuple[str, ...]) -> list[str]:
        """The arguments that name the repository."""
        return [str(self.root)] if words[0] == "init" else ["--path", str(self.root)]

    def run(self, *words: str) -> Ran:
        out, err = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            try:
                code = main([*words, *self.where(words)])
            except SystemExit as leaving:  # as argparse does
                code = int(str(leaving.code))
        return Ran(code, out.getvalue(), err.getvalue())

    def __call__(self, *words: str, code: int = 0) -> str:
        ran = self.run(*words)
        assert ran.code == code, ran
        return ran.out

    def json(self, *words: str, code: int = 0) -> Any:
        ran = self.run(*words, "--json")
        assert (ran.code, ran.err) == (code, ""), ran
        return ran.json()

    def refused(self, *words: str, code: int = 2) -> dict[str, Any]:
        """The error of a command, whose standard output must be empty."""
        ran = self.run(*words, "--json")
        assert (ran.code, ran.out) == (code, ""), ran
        error: dict[str, Any] = json.loads(ran.err)["error"]
        return error

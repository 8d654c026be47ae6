from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from clia.forge.address_file import address_of, mark, unmark

if TYPE_CHECKING:
    from pathlib import Path

    import clia


def test_the_address_of_a_forge_is_known_while_it_runs(repo: Path, space: clia.Space) -> None:
    """A killed forge leaves its file behind, which names a process that no longer exists."""
    assert address_of(space.home) is None
    mark(space.home, "http://127.0.0.1:8337/s/repo")
    assert address_of(space.home) == "http://127.0.0.1:8337/s/repo"
    unmark(space.home)
    assert address_of(space.home) is None
    code = "import sys, clia; from clia.forge.address_file import mark; mark(clia.open(sys.argv[1]).home, 'http://127.0.0.1:1/s/x')"
    subprocess.run([sys.executable, "-c", code, str(repo)], check=True)
    assert os.path.isfile(repo / ".git" / "clia" / "forge.json")
    assert address_of(space.home) is None
    (repo / ".git" / "clia" / "forge.json").write_text('{"address": 7, "pid": 1}')
    assert address_of(space.home) is None

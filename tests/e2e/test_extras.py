"""The distribution: what the base install and each extra bring, and what commands say if an extra is missing.

The light tests hide every module that an install would not have. A soak builds the wheel and installs it into new environments.
"""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from importlib.metadata import distribution, packages_distributions
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement

from clia.cli.registry import TREE, Command, Group
from clia.errors import EXTRAS
from support import git

ROOT = Path(__file__).resolve().parents[2]
PACKAGES_MAX, BYTES_MAX = 12, 60_000_000
RUNNER = """
import sys
sys.modules |= dict.fromkeys(sys.argv[1].split(","))  # None: as if not installed
sys.argv = ["clia", *sys.argv[2:]]
"""
COMMAND = f"{RUNNER}\nfrom clia.cli.main import main\nsys.exit(main(sys.argv[1:]))\n"
IMPORTS = f"""{RUNNER}
from importlib import import_module
for module in sys.argv[1:]:
    import_module(module)
"""
PERSON = {"GIT_COMMITTER_NAME": "Tess", "GIT_COMMITTER_EMAIL": "tess@example.org"}


class Install(NamedTuple):
    """The distributions that an install of clia brings, with their sizes."""

    sizes: dict[str, int]

    @property
    def hidden(self) -> str:
        """The modules of this environment that the install does not have."""
        has = {normal(name) for name in self.sizes}
        return ",".join(
            sorted(
                module
                for module, owners in packages_distributions().items()
                if module != "clia" and not {normal(owner) for owner in owners} & has
            )
        )


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def install(extra: str = "") -> Install:
    """The closure of the requirements, from the metadata of what is installed here."""
    waiting, sizes = [("clia-agents", frozenset({extra}))], dict[str, int]()
    visited: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in visited:
            continue
        visited.add((name, extras))
        package = distribution(name)
        sizes[name] = sum(file.size or 0 for file in package.files or () if file.suffix != ".pyc")
        for line in package.requires or ():
            needed = Requirement(line)
            if needed.marker is None or any(needed.marker.evaluate({"extra": chosen}) for chosen in (extras or {""})):
                waiting.append((normal(needed.name), frozenset(needed.extras)))
    # Other processes write bytecode meanwhile, first to files that they rename.
    sources = [path for path in (ROOT / "src").rglob("*") if "__pycache__" not in path.parts and path.is_file()]
    sizes["clia-agents"] = sum(path.stat().st_size for path in sources)
    return Install(sizes)


def commands(group: Group = TREE) -> list[Command]:
    entries: list[Command] = []
    for entry in group.commands.values():
        entries += commands(entry) if isinstance(entry, Group) else [entry]
    return entries


def run(program: str, chosen: Install, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(cwd or ROOT), "NO_COLOR": "1", "COLUMNS": "100", **PERSON}
    command = [sys.executable, "-c", program, chosen.hidden, *words]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def test_the_base_install_is_small() -> None:
    sizes = install().sizes
    assert len(sizes) <= PACKAGES_MAX, sorted(sizes)
    assert sum(sizes.values()) <= BYTES_MAX, sizes


def test_the_metadata_declares_the_extras_of_the_messages() -> None:
    declared = set(distribution("clia-agents").metadata.get_all("Provides-Extra") or ())
    assert declared == {*EXTRAS, "all", "bench"}
    for extra, modules in EXTRAS.items():
        hidden = install(extra).hidden.split(",")
        assert not set(modules) & set(hidden), extra


def test_every_command_can_be_imported_with_the_base_install() -> None:
    result = run(IMPORTS, install(), *sorted({command.module for command in commands()}))
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("extra", "modules"),
    [
        ("flows", "clia.engine.monty"),
        ("forge", "clia.forge.server clia.forge.app"),
        ("mcp", "clia.mcp.server"),
        ("federation", "clia.federation.signing"),
        ("postgres", "clia.store.postgres_store"),
        ("otlp", "clia.telemetry.otlp"),
    ],
)
def test_an_extra_has_what_its_commands_import(extra: str, modules: str) -> None:
    result = run(IMPORTS, install(extra), *modules.split())
    assert result.returncode == 0, result.stderr


def test_the_base_install_does_the_work_of_agents(tmp_path: Path) -> None:
    git("init", "-q", "-b", "main", "shop", cwd=tmp_path)
    shop = tmp_path / "shop"
    (shop / "stock.txt").write_text("apples 3\n", encoding="utf-8")
    git("add", ".", cwd=shop)
    git("commit", "-qm", "Stock", cwd=shop)
    four = tmp_path / "four.txt"
    four.write_text("apples 4\n", encoding="utf-8")
    for words in (
        "init",
        "spawn scout --title Count",
        "trace add scout looked",
        f"commit scout finding --set stock.txt={four} --trace -m Four",
        "run counter --quiet --parent scout -- wc -l stock.txt",
        "land scout",
        "blame main stock.txt",
        "log scout",
        "show main",
        "trace show scout",
        "list",
        "verify",
        "doctor",
        "agents init root --guardrail Careful.",
        "agents init scout --role Explorer",
        "agents profile --slug scout",
        "agents explain /role --slug scout",
        "agents export --slug scout --to codex-agent",
        "agents doctor",
        "hook install claude-code --yes",
        "hook rehearse claude-code --path . --seed 1 --stop-after 8",
        "ingest",
        "completion bash",
    ):
        result = run(COMMAND, install(), *words.split(), cwd=shop)
        assert result.returncode == 0, (words, result.stdout, result.stderr)


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        ("serve", "forge"),
        ("mcp", "mcp"),
        ("ask scout Why?", "flows"),
        ("flow define count count.py", "flows"),
        ("agents lint", "lint"),
        ("key show", "federation"),
    ],
)
def test_a_command_without_its_extra_says_which_to_install(tmp_path: Path, words: str, extra: str) -> None:
    git("init", "-q", "-b", "main", cwd=tmp_path)
    (tmp_path / "count.py").write_text("def main(input):\n    return 1\n", encoding="utf-8")
    for prepare in ("init", "spawn scout --empty --title Count"):
        assert run(COMMAND, install(), *prepare.split(), cwd=tmp_path).returncode == 0
    result = run(COMMAND, install(), *words.split(), cwd=tmp_path)
    assert (result.returncode, result.stderr) == (
        2,
        f"error: missing-extra: this needs the extra {extra}, which is not installed\n  hint: pip install 'clia-agents[{extra}]'\n",
    )


@pytest.mark.parametrize("extra", ["", *EXTRAS, "all"])
def test_the_wheel_installs_into_a_new_environment(tmp_path: Path, extra: str, soak: bool) -> None:
    if not soak:
        pytest.skip("in a soak")
    uv = str(Path(sys.executable).parent / "uv")
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)], cwd=ROOT, check=True)
    (wheel,) = tmp_path.glob("clia_agents-*.whl")
    subprocess.run([uv, "venv", "--quiet", str(tmp_path / "venv")], check=True)
    target = f"{wheel}[{extra}]" if extra else str(wheel)
    subprocess.run([uv, "pip", "install", "--quiet", "--python", str(python), target], check=True)
    subprocess.run([uv, "pip", "check", "--quiet", "--python", str(python)], check=True)
    listing = subprocess.run(
        [uv, "pip", "freeze", "--python", str(python)], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    assert {normal(re.split(r"==| @ ", line)[0]) for line in listing} == set(install(extra).sizes)
    modules = sorted({command.module for command in commands()})
    subprocess.run(
        [str(python), "-c", "import sys, importlib; [importlib.import_module(m) for m in sys.argv[1:]]", *modules], check=True
    )
    subprocess.run([str(python.with_name("clia")), "--version"], check=True)

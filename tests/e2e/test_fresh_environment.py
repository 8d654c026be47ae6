"""A new user: the built wheel in a new environment, the commands of the README, and the demo up to the inbox page.

Nothing of this machine but Python, git and the shell is visible: an empty home, and a minimal ``PATH``.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

ROOT = Path(__file__).resolve().parents[2]
PERSON = (("user.name", "You"), ("user.email", "you@example.org"))


@pytest.fixture
def fresh(tmp_path: Path, soak: bool) -> dict[str, str]:
    """The variables of a new user who has installed the wheel with all extras."""
    if not soak:
        pytest.skip("in a soak")
    uv = str(Path(sys.executable).parent / "uv")
    place = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)], cwd=ROOT, check=True)
    (wheel,) = tmp_path.glob("clia_agents-*.whl")
    subprocess.run([uv, "venv", "--quiet", str(place)], check=True)
    subprocess.run([uv, "pip", "install", "--quiet", "--python", str(place / "bin" / "python"), f"{wheel}[all]"], check=True)
    (tmp_path / "home").mkdir()
    variables = {"PATH": f"{place}/bin:/usr/bin:/bin", "HOME": str(tmp_path / "home"), "LANG": "C.UTF-8"}
    for key, value in PERSON:
        subprocess.run(["git", "config", "--global", key, value], env=variables, check=True)
    return variables


def first_commands() -> str:
    """The commands of the README's first section with commands, as a script."""
    section = (ROOT / "README.md").read_text("utf-8").split("\n## Five commands\n")[1].split("\n## ")[0]
    blocks = re.findall(r"^```console\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    return "\n".join(line[2:] for block in blocks for line in block.splitlines() if line.startswith(("$ ", "> ")))


def test_the_commands_of_the_readme_work_for_a_new_user(fresh: dict[str, str], tmp_path: Path) -> None:
    script = first_commands()
    assert script.count("clia ") >= 5
    words = ["/bin/bash", "-euo", "pipefail", "-c", script]
    ran = subprocess.run(words, cwd=tmp_path / "home", env=fresh, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, (ran.stdout, ran.stderr)
    assert "everything is signed and logged" in ran.stdout
    assert "ghp_" not in ran.stdout.split("landed scout")[1]


def test_the_demo_leads_a_new_user_to_the_inbox(fresh: dict[str, str], tmp_path: Path) -> None:
    with subprocess.Popen(["clia", "demo", "--port", "0"], cwd=tmp_path, env=fresh, stdout=subprocess.PIPE, text=True) as served:
        assert served.stdout is not None
        try:
            link = next(line.split()[-1] for line in served.stdout if "login?key=" in line)
            address = urlsplit(link)  # its host is a name below localhost, which not every resolver knows
            base = f"http://127.0.0.1:{address.port}"
            with httpx.Client(headers={"host": address.netloc}) as browser:  # keeps the cookies of the login
                answer = browser.get(f"{base}{address.path}?{address.query}")
                token = re.search(r'name="key" value="([^"]+)"', answer.text)
                if token is not None:  # the page asks to confirm the login
                    answer = browser.post(f"{base}/login", data={"key": token[1]})
                inbox = browser.get(f"{base}/inbox")
        finally:
            served.send_signal(signal.SIGINT)
    assert inbox.status_code == 200, (answer.status_code, inbox.status_code, answer.text[:500])
    assert "Three pears are rotten" in inbox.text

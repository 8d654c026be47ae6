"""``clia demo``: a shop with agents, and the forge that shows it."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx

import clia as library
from support import clia, program

if TYPE_CHECKING:
    from pathlib import Path


def test_the_demo_has_work_to_look_at_and_questions_to_answer(tmp_path: Path) -> None:
    ran = clia("demo", "--no-serve", "--directory", str(tmp_path / "shop"), env={"HOME": str(tmp_path)})
    assert (ran.code, ran.err) == (0, "")
    assert len(ran.out.splitlines()) <= 40
    commands = re.findall(r"^  clia (.*?)  ", ran.out, re.MULTILINE)
    assert len(commands) == 6
    for words in commands:
        shown = clia(*shlex.split(words), cwd=tmp_path / "shop")
        assert (shown.code, shown.err) == (0, ""), (words, shown)
        assert "ghp_" not in shown.out
    with library.open(tmp_path / "shop") as space:
        assert len(space.sessions.pending()) == 4
        assert space.verify().clean
        assert "One more apple" in space.show("main").message


def test_the_demo_serves_a_login_link(tmp_path: Path) -> None:
    words = [program(), "demo", "--port", "0", "--directory", str(tmp_path / "shop")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as served:
        assert served.stdout is not None
        lines, link = [], ""
        try:
            for line in served.stdout:
                lines.append(line)
                if "login?key=" in line:
                    link = line.split()[-1]
                    break
            address = urlsplit(link)  # its host is a name below localhost, which not every resolver knows
            local = address._replace(netloc=f"127.0.0.1:{address.port}").geturl()
            page = httpx.get(local, headers={"host": address.netloc})
        finally:
            served.send_signal(signal.SIGINT)
    assert len(lines) <= 40
    assert page.status_code in (200, 303)


def test_an_existing_directory_is_left_alone(tmp_path: Path) -> None:
    ran = clia("demo", "--no-serve", "--directory", str(tmp_path))
    assert (ran.code, ran.err) == (2, f"error: directory-exists: {tmp_path} already exists\n")
    assert list(tmp_path.iterdir()) == []

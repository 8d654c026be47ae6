"""Real git servers for hubs: a bare repository, reached by its path, over HTTP with a password, over
ssh by a real sshd, and through gitolite, which has access rules for refs.

None is a daemon: a thread of the test process answers HTTP, and one sshd answers each ssh connection and ends with it.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socketserver
import subprocess
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from support import git
from support.git_servers import serving, stock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PASSWORD = "pass-phrase"  # noqa: S105  # a made-up one
_SSHD, _GITOLITE = Path("/usr/sbin/sshd"), Path("/usr/share/gitolite3/gitolite-shell")
_CONFIG = """\
HostKey {top}/host
AuthorizedKeysFile {top}/authorized
AcceptEnv GIT_PROTOCOL
StrictModes no
UsePAM no
UseDNS no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
MaxStartups 200
PrintMotd no
KexAlgorithms curve25519-sha256
SetEnv SHLVL=2
"""
"""The last line keeps bash from reading the user's login files."""
_RULES = """\
repo gitolite-admin
    RW+ = tess

repo hub
    RW+ = tess

repo branches
    RW+ refs/heads/ = tess
    R = tess
"""
"""The configuration of gitolite: one repository where all refs can move, and one where only branches can."""


class NoServer(Exception):
    """A server that is not installed; tests that need it fail with this error."""


class Hub(NamedTuple):
    """The address of a repository, its path, and the environment variables that its clients need."""

    url: str
    repository: Path
    environment: dict[str, str] = {}  # noqa: RUF012  # it is never changed


def bare(path: Path, **options: str) -> Path:
    """An empty bare repository; ``receive_denyDeletes="true"`` is git's setting ``receive.denyDeletes``."""
    git("init", "--quiet", "--bare", "--initial-branch=main", str(path), cwd=path.parent)
    for name, value in {"http_receivepack": "true", **options}.items():
        git("config", name.replace("_", "."), value, cwd=path)
    return path


@contextmanager
def by_path(top: Path) -> Iterator[Hub]:
    repository = bare(top / "hub.git")
    yield Hub(str(repository), repository)


@contextmanager
def by_http(top: Path, *, newest: bool = True) -> Iterator[Hub]:
    """With a password; ``newest``: whether the server supports more than the first protocol of git."""
    repository = bare(top / "hub.git")
    ask = top / "ask"  # the program that git asks for a password
    ask.write_text('#!/bin/sh\necho "$HUB_PASSWORD"\n')
    ask.chmod(0o755)
    with serving(stock(top, newest=newest, login=f"tess:{PASSWORD}")) as address:
        yield Hub(f"{address.replace('//', '//tess@')}/hub.git", repository, {"GIT_ASKPASS": str(ask), "HUB_PASSWORD": PASSWORD})


@contextmanager
def by_ssh(top: Path) -> Iterator[Hub]:
    repository = bare(top / "hub.git")
    with _sshd(top) as (port, environment):
        yield Hub(f"ssh://{_me()}@127.0.0.1:{port}{repository}", repository, environment)


@contextmanager
def by_gitolite(top: Path) -> Iterator[Hub]:
    """A repository of gitolite where all refs can move; beside it is ``branches``, where only branches can."""
    if not _GITOLITE.exists():
        raise NoServer("gitolite was not found: tools/test_services.sh installs it (Debian: apt-get install gitolite3)")
    home = top / "home"
    home.mkdir()
    with _sshd(top, f'command="env HOME={home} {_GITOLITE} tess",restrict ') as (port, environment):
        environment_here = {"PATH": os.environ["PATH"], "HOME": str(home), "USER": _me(), "GIT_CONFIG_SYSTEM": os.devnull}
        shutil.copy(top / "tess.pub", home / "tess.pub")
        _done(["gitolite", "setup", "-pk", "tess.pub"], cwd=home, env=environment_here)
        (home / ".gitolite/conf/gitolite.conf").write_text(_RULES)
        _done(["gitolite", "compile"], cwd=home, env=environment_here)
        _done(["gitolite", "trigger", "POST_COMPILE"], cwd=home, env=environment_here)
        yield Hub(f"ssh://{_me()}@127.0.0.1:{port}/hub", home / "repositories/hub.git", environment)


HUBS: dict[str, Callable[[Path], Any]] = {"path": by_path, "http": by_http, "ssh": by_ssh, "gitolite": by_gitolite}
"""By name: a context manager with a ``Hub`` below an existing directory."""


@contextmanager
def _sshd(top: Path, before_key: str = "") -> Iterator[tuple[int, dict[str, str]]]:
    """An sshd for one user; its port, and the environment variables for git."""
    if not _SSHD.exists():
        raise NoServer("sshd was not found: tools/test_services.sh installs it (Debian: apt-get install openssh-server)")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # usually created by the service
    for name in ("host", "tess"):
        _done(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(top / name)])
    (top / "authorized").write_text(before_key + (top / "tess.pub").read_text())
    (top / "known").write_text(f"hub {(top / 'host.pub').read_text()}")
    (top / "config").write_text(_CONFIG.format(top=top))
    words = [
        *("ssh", "-F", os.devnull, "-i", str(top / "tess"), "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes"),
        *("-o", "HostKeyAlias=hub", "-o", f"UserKnownHostsFile={top / 'known'}", "-o", "StrictHostKeyChecking=yes"),
    ]
    with _Connections(top) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server.server_address[1], {"GIT_SSH_COMMAND": " ".join(words)}
        finally:
            server.shutdown()
            thread.join()
            server.cut()


class _Connections(socketserver.ThreadingTCPServer):
    """One `sshd -i` for each connection, with the connection as its standard input and output."""

    daemon_threads = True

    def __init__(self, top: Path) -> None:
        super().__init__(("127.0.0.1", 0), socketserver.BaseRequestHandler)
        self._top = top
        self._running: set[subprocess.Popen[bytes]] = set()

    def finish_request(self, request: Any, client_address: Any) -> None:
        with open(self._top / "sshd.log", "ab") as log:
            words = [str(_SSHD), "-i", "-e", "-f", str(self._top / "config")]
            running = subprocess.Popen(words, stdin=request, stdout=request, stderr=log)
        self._running.add(running)
        running.wait()
        self._running.discard(running)

    def cut(self) -> None:
        for process in list(self._running):
            process.kill()


def kill_next_push(hub: Hub, *, landed: bool, then: str = ":") -> None:
    """Kill the receiver of the next push before the refs move, or after it and before its answer; run ``then`` before the kill.

    Not for gitolite, which uses the hooks itself.
    """
    name, when = ("reference-transaction", "committed") if landed else ("pre-receive", "")
    hook = hub.repository / "hooks" / name
    # The parent of a hook is git receive-pack, which then neither cleans up nor answers.
    hook.write_text(f'#!/bin/sh\n[ "$1" = "{when}" ] || exit 0\nrm "$0"\n{then}\nkill -9 $PPID\n')
    hook.chmod(0o755)


@contextmanager
def away(hub: Hub) -> Iterator[None]:
    """Move the repository away while the block runs."""
    elsewhere = hub.repository.with_name("away.git")
    hub.repository.rename(elsewhere)
    try:
        yield
    finally:
        elsewhere.rename(hub.repository)


def _me() -> str:
    return pwd.getpwuid(os.geteuid()).pw_name


def _done(words: list[str], **more: Any) -> None:
    result = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, **more)
    if result.returncode:
        raise NoServer(f"{' '.join(words)} failed: {result.stdout}{result.stderr}")

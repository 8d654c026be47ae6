"""A throw-away PostgreSQL server for a run of the tests.

The first test that needs it starts it, all workers share it, and it ends with the run, even if the run is killed: a
watcher waits for the process that runs the tests. Each worker has its own database, each test a schema.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import subprocess
import uuid
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

DIRECTORY, RUN = "CLIA_TEST_POSTGRES", "CLIA_TEST_RUN"
_PROGRAMS = ("initdb", "postgres", "pg_ctl")
_numbers = count(1)
# No durability is needed.
SETTINGS = "-c listen_addresses='' -c fsync=off -c synchronous_commit=off -c full_page_writes=off -c max_connections=200"
_WATCHER = '(tail --pid="$1" -f /dev/null; "$2/pg_ctl" stop -m immediate -D "$3/data"; rm -rf "$3") >/dev/null 2>&1 &'


class NoPostgres(Exception):
    """The reason why there is no server; tests that need one fail with it."""


def announce() -> None:
    """Set the location of this run's server, also for the workers; does not start it."""
    os.environ[RUN] = str(os.getpid())
    os.environ[DIRECTORY] = f"/tmp/clia-pg-{uuid.uuid4().hex[:12]}"  # short: the path of a socket has 107 bytes


def stop() -> None:
    directory = os.environ.pop(DIRECTORY)
    if Path(directory, "data/postmaster.pid").exists():
        run([str(binaries() / "pg_ctl"), "stop", "-m", "immediate", "-D", f"{directory}/data"], directory)
    shutil.rmtree(directory, ignore_errors=True)


def fresh() -> str:
    """The address of a new, empty schema."""
    import psycopg  # 430 ms, and most tests need no server

    directory = os.environ[DIRECTORY]
    os.makedirs(directory, mode=0o700, exist_ok=True)
    with open(f"{directory}/lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not Path(directory, "started").exists():
            start(directory)
            Path(directory, "started").touch()
    worker, schema = os.environ.get("PYTEST_XDIST_WORKER", "alone"), f"s{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(f"host={directory} user=clia dbname=postgres", autocommit=True) as admin:
        if not admin.execute("SELECT 1 FROM pg_database WHERE datname = %s", [worker]).fetchone():
            admin.execute(f'CREATE DATABASE "{worker}"')
    with psycopg.connect(f"host={directory} user=clia dbname={worker}", autocommit=True) as admin:
        admin.execute(f'CREATE SCHEMA "{schema}"')
    return f"host={directory} user=clia dbname={worker} options='-c search_path={schema}'"


@cache
def binaries() -> Path:
    """The directory of the server's programs that work; a wrapper on the path may not."""
    on_path = [Path(program).resolve().parent for program in map(shutil.which, _PROGRAMS) if program]
    packaged = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda bin_path: int(bin_path.parent.name), reverse=True)
    for directory in [*on_path, *packaged]:
        if all(_works(directory / program) for program in _PROGRAMS):
            return directory
    raise NoPostgres("no PostgreSQL server was found: tools/test_services.sh installs one (Debian: apt-get install postgresql)")


def _works(program: Path) -> bool:
    try:
        result = subprocess.run([str(program), "--version"], capture_output=True, check=False, **_user())
    except OSError:
        return False
    return bool(result.returncode == 0)


def start(directory: str) -> None:
    programs = binaries()
    user = _user()
    if user:
        os.chown(directory, user["user"], user["group"])
    data = f"{directory}/data"
    command = ["initdb", "-D", data, "-U", "clia", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
    run([str(programs / command[0]), *command[1:]], directory)
    run(
        [str(programs / "pg_ctl"), "start", "-w", "-D", data, "-l", f"{directory}/log", "-o", f"{SETTINGS} -k {directory}"],
        directory,
    )
    watched = os.environ[RUN]
    subprocess.run(
        ["sh", "-c", _WATCHER, "sh", watched, str(programs), directory], cwd="/", check=True, start_new_session=True, **user
    )


def run(words: list[str], directory: str) -> None:
    with open(f"{directory}/{Path(words[0]).name}.out", "w+") as out:
        result = subprocess.run(words, cwd=directory, stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False, **_user())
        out.seek(0)
        if result.returncode:
            raise NoPostgres(f"{' '.join(words)} failed: {out.read()}")


def _user() -> dict[str, Any]:
    """PostgreSQL refuses to run as root."""
    if os.geteuid():
        return {}
    for name in ("postgres", "nobody"):
        try:
            account = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": account.pw_uid, "group": account.pw_gid}
    raise NoPostgres("PostgreSQL refuses to run as root, and there is neither a user postgres nor nobody")

"""Verifying the signatures of many commits on all processors.

A worker is a process that reads ids of commits and prints those whose signature is valid. It reads the repository itself, so only
ids are sent. What a worker does not print, for whatever reason, the caller verifies again, and finds out why.
"""

from __future__ import annotations

import os
import subprocess
import sys
from threading import Thread

from clia.errors import BadSignature
from clia.trust.raw_commits import raw_commit
from clia.trust.ssh_signatures import GIT, verify_signature

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MANY = 4000
"""From this many commits on, processes are faster than one: each needs 0.3 s to start."""
WORKERS_MAX = 16


def verified_in_parallel(path: str, cids: Sequence[str]) -> set[str]:
    """Those of the commits of a repository whose signature is valid, as far as workers could tell."""
    count = min(WORKERS_MAX, _processors())
    if count < 2 or len(cids) < MANY:
        return set()
    verified: list[str] = []
    threads = [Thread(target=_run, args=(path, cids[number::count], verified)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return set(verified)


def _run(path: str, cids: Sequence[str], verified: list[str]) -> None:
    try:
        result = subprocess.run(
            [sys.executable, "-P", "-m", __name__, path],
            input="\n".join(cids),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=False,
        )
    except OSError:
        return
    verified += result.stdout.split()


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def verified_commits(path: str, cids: Iterable[str]) -> Iterator[str]:
    """The commits whose signature is valid."""
    import pygit2

    repository = pygit2.Repository(path)
    for cid in cids:
        try:
            commit = raw_commit(cid, bytes(repository.read(pygit2.Oid(hex=cid))[1]))
            verify_signature(str(commit.signature), commit.signed, GIT)
        except (BadSignature, ValueError, KeyError, pygit2.GitError):
            continue
        yield cid


if __name__ == "__main__":
    for valid_cid in verified_commits(sys.argv[1], sys.stdin.read().split()):
        sys.stdout.write(f"{valid_cid}\n")

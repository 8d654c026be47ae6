"""The log of a machine, read and written with plain git and a key, also in the form of earlier versions."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from clia.facade.backends import connect
from clia.testing import Settings
from clia.trust.machine_keys import read_key
from clia.trust.machine_log import LOG, LOG_END, LogEnd, first_digest, line_digest, read_line, read_machine_log, write_line
from clia.trust.raw_commits import LOG_HEADER
from clia.values.canonical import canonical_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from clia.trust.machine_log import LogEntry, MachineLog
    from clia.trust.ssh_signatures import SshSigner

LOGS = "refs/clia/log/"
_ENVIRONMENT = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "PATH": os.environ["PATH"]}
_STAMP = "Ada <ada@example.org> 1700000000 +0000"


def plain_git(root: Path, *words: str, data: bytes = b"") -> str:
    result = subprocess.run(["git", *words], cwd=root, input=data, capture_output=True, env=_ENVIRONMENT, check=False)
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout.decode().strip()


def log_refs(root: Path) -> list[str]:
    return plain_git(root, "for-each-ref", "--format=%(refname)", LOGS).split()


def log_at(root: Path, ref: str | None = None) -> MachineLog:
    """The log at a ref; by default the only one."""
    (ref,) = [ref] if ref is not None else log_refs(root)
    tip = plain_git(root, "rev-parse", ref)
    return read_machine_log(connect(str(root), Settings(durable=False)).objects, ref.removeprefix(LOGS), tip)


def logged_ids(root: Path) -> set[str]:
    """The values that all logs give refs."""
    moves = (move for ref in log_refs(root) for entry in log_at(root, ref).entries for move in entry.moves)
    return {move.new for move in moves if move.new is not None}


def key_of(root: Path) -> SshSigner:
    return read_key(str(root / ".git/clia/signing/machine"))


def chained(machine: str, entries: Iterable[LogEntry]) -> list[bytes]:
    """The lines of entries, each naming the one before."""
    digest, lines = first_digest(machine), list[bytes]()
    for entry in entries:
        lines.append(write_line(digest, entry))
        digest = line_digest(lines[-1])
    return lines


def write_log(root: Path, machine: str, lines: Sequence[bytes], signer: SshSigner | None, parents: Sequence[str] = ()) -> str:
    """Write the commit of a log with these lines; the ref stays."""
    data = log_data(plain_git(root, "mktree"), machine, lines, signer, parents)
    return plain_git(root, "hash-object", "-t", "commit", "-w", "--stdin", data=data)


def log_data(
    tree: str, machine: str, lines: Sequence[bytes], signer: SshSigner | None = None, parents: Sequence[str] = ()
) -> bytes:
    """The bytes of the commit of a log."""
    end = LogEnd(machine, len(lines), line_digest(lines[-1]))
    head = "".join([f"tree {tree}\n", *(f"parent {cid}\n" for cid in parents), f"author {_STAMP}\ncommitter {_STAMP}\n"]).encode()
    head += f"{LOG_HEADER} ".encode() + b"\n ".join(lines)
    return _signed(head, f"log\n\n{LOG_END}: {end.text}\n", signer)


def _signed(head: bytes, message: str, signer: SshSigner | None) -> bytes:
    signature = b""
    if signer is not None:
        text = signer.sign(head + b"\n\n" + message.encode()).strip().replace("\n", "\n ")
        signature = f"\ngpgsig {text}".encode()
    return head + signature + b"\n\n" + message.encode()


def link_log(root: Path, ref: str, entries: Sequence[LogEntry], signer: SshSigner) -> str:
    """Give a log the form of earlier versions: a commit for each entry, linked as a history."""
    tree, tip = plain_git(root, "mktree"), ""
    for entry in entries:
        body = {"keys": entry.keys, "moves": [list(move) for move in entry.moves], "notes": list(entry.notes)}
        stamp = f"Ada <ada@example.org> {entry.at} +0000"
        parent = f"parent {tip}\n" if tip else ""
        head = f"tree {tree}\n{parent}author {stamp}\ncommitter {stamp}".encode()
        data = _signed(head, f"log\n\n{LOG}: {canonical_bytes(body).decode()}\n", signer)
        tip = plain_git(root, "hash-object", "-t", "commit", "-w", "--stdin", data=data)
    plain_git(root, "update-ref", ref, tip)
    return tip


def entries_of(lines: Iterable[bytes]) -> list[LogEntry]:
    return [read_line(line) for line in lines]


def superseded_commits(root: Path) -> list[str]:
    """The former commits of this clone's log that are listed, oldest first."""
    (path,) = (root / ".git/clia/signing").glob("tips-*")
    return [line.split()[1] for line in path.read_text().splitlines()][:-1]

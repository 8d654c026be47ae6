"""Commits as bytes: headers, message and signature, exactly as they are stored.

Invariant: what is read depends on the object only. ``refs/replace``, grafts and the boundary of a shallow clone have no effect.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from clia.values.commit_messages import PREFIX, parse

_HEADER = "gpgsig"
LOG_HEADER = "clia-log"
"""The header of a log's commit that has the newest entries, one a line. Git does not show it."""
_STAMP = re.compile(rb"(.*) <([^<>\n]*)> (-?\d{1,18}) [+-]\d{4}")
_PLAIN = ("tree", "parent", "author", "committer", "encoding", _HEADER, LOG_HEADER)


class RawCommit(NamedTuple):
    """A commit, read from its bytes."""

    cid: str
    tree: str
    parents: tuple[str, ...]
    author: str  # name
    committer: str  # name
    email: str  # of the committer
    at: int  # of the committer
    text: str  # the message without trailers
    trailers: list[tuple[str, str]]
    signature: str | None  # None: it has none
    signed: bytes  # what the signature is over
    strange: str | None = None  # a header that git or clia would not write
    log: tuple[bytes, ...] | None = None  # the newest entries of a log; None: it is not the commit of a log

    def trailer(self, key: str) -> str | None:
        """The value of a trailer; None unless there is exactly one."""
        values = [value for name, value in self.trailers if name == key]
        return values[0] if len(values) == 1 else None

    def repeated(self, prefix: str, allowed: tuple[str, ...]) -> str | None:
        """A trailer of clia that occurs more often than it may."""
        names = [name for name, _ in self.trailers if name.startswith(prefix) and name not in allowed]
        return next((name for name in names if names.count(name) > 1), None)


def raw_commit(cid: str, data: bytes) -> RawCommit:
    """Read a commit's bytes; ``ValueError`` if they are not those of a commit."""
    head, _, message = data.partition(b"\n\n")
    headers = _headers(head)
    names = [name for name, _ in headers]
    values = dict(reversed(headers))  # the first of several counts
    author, committer = (_STAMP.fullmatch(values.get(name, b"")) for name in ("author", "committer"))
    if author is None or committer is None or "tree" not in values:
        raise ValueError(f"{cid} is not a commit")
    signature, log = values.get(_HEADER), values.get(LOG_HEADER)
    text, trailers = parse(message.decode("utf-8", "replace"))
    return RawCommit(
        cid,
        values["tree"].decode("ascii", "replace"),
        tuple(value.decode("ascii", "replace") for name, value in headers if name == "parent"),
        author[1].decode("utf-8", "replace"),
        committer[1].decode("utf-8", "replace"),
        committer[2].decode("utf-8", "replace"),
        int(committer[3]),
        text,
        trailers,
        None if signature is None else signature.decode("ascii", "replace"),
        data if signature is None else _without_signature(head) + b"\n\n" + message,
        next((name for name in names if name not in _PLAIN or (name != "parent" and names.count(name) > 1)), None),
        None if log is None else tuple(log.split(b"\n")),
    )


def _headers(head: bytes) -> list[tuple[str, bytes]]:
    headers: list[tuple[str, bytes]] = []
    for line in head.split(b"\n"):
        if line.startswith(b" ") and headers:
            name, value = headers[-1]
            headers[-1] = name, value + b"\n" + line[1:]
        else:
            key, _, value = line.partition(b" ")
            headers.append((key.decode("ascii", "replace"), value))
    return headers


def _without_signature(head: bytes) -> bytes:
    lines, remaining, inside = head.split(b"\n"), [], False
    for line in lines:
        inside = line.startswith(_HEADER.encode() + b" ") or (inside and line.startswith(b" "))
        if not inside:
            remaining.append(line)
    return b"\n".join(remaining)


def is_of_clia(commit: RawCommit) -> bool:
    """Whether clia wrote a commit of a branch, or the commit claims it."""
    return any(key.startswith(PREFIX) for key, _ in commit.trailers)

"""A copy of everything that refs and reflogs reach, as a bare repository that stock git can read.

Invariant: the copy has the values that the refs had at one moment, whatever moves meanwhile. Objects are immutable, and a reflog is
cut after the value of its ref, so both can be read later. The refs of idle agents are copied under the names that they have in the
archive repository; where both repositories have a ref, the archived value gets another name.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import NamedTuple

from clia.errors import GitError
from clia.git.archive import SUPERSEDED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from clia.git.repository import Git

PARTS = ("objects/pack", "objects/info", "refs/heads", "refs/tags")
"""Directories that git expects in a repository."""
_HEADER = "# pack-refs with: peeled fully-peeled sorted \n"
_NOTHING = "0" * 40
_TAG = 4


class RefValues(NamedTuple):
    """The refs of a repository and of its archive repository at one moment."""

    present: tuple[tuple[str, str, str], ...]  # name, value, and the name that a symbolic ref has as its target
    archived: tuple[tuple[str, str], ...]
    head: str  # the content of HEAD

    def all(self) -> dict[str, str]:
        """Return the values of all refs, with other names for archived ones that the repository has, too."""
        values = {name: cid for name, cid, _ in self.present}
        for name, cid in self.archived:
            if values.get(name, cid) == cid:
                values[name] = cid
            else:
                values[f"{SUPERSEDED}{name.removeprefix('refs/')}/{cid}"] = cid
        return values


def read_refs(git: Git) -> RefValues:
    """Read all refs."""
    out = git.command.run("for-each-ref", "--format=%(refname)%00%(objectname)%00%(symref)")
    lines = (line.split("\0") for line in os.fsdecode(out).splitlines())
    archive = git.refs.archive
    archived = tuple(archive.under("refs/")) if archive.exists() else ()
    with open(os.path.join(git.handle.common_dir, "HEAD"), encoding="utf-8", errors="surrogateescape") as file:
        head = file.read()
    return RefValues(tuple((name, cid, target) for name, cid, target in lines), archived, head)


class RepositoryCopy(NamedTuple):
    """Writes a copy of a repository to a directory."""

    git: Git
    values: RefValues
    directory: str

    def write(self, more: Iterable[str]) -> None:
        """Write the copy. ``more``: other commits to copy if the repository has them."""
        for part in PARTS:
            os.makedirs(os.path.join(self.directory, *part.split("/")), exist_ok=True)
        refs = self.values.all()
        logged = self._copy_logs(refs)
        required = {*refs.values(), *([self.values.head.strip()] if not self.values.head.startswith("ref:") else ())}
        odb = self.git.handle.repo.odb
        self._pack(required, {cid for cid in (*logged, *more) if cid not in required and odb.exists(cid)})
        self._write_refs(refs)
        with suppress(FileNotFoundError), open(os.path.join(self.git.handle.common_dir, "shallow"), "rb") as file:
            self._put("shallow", file.read())
        self._put("config", self._config().encode("utf-8"))
        self._put("HEAD", os.fsencode(self.values.head))

    def _pack(self, required: set[str], logged: set[str]) -> None:
        """Pack what commits reach. Objects that only reflogs reach may be incomplete, because git prunes them eventually."""
        partial = self.git.handle.is_partial()
        stem = os.path.join(self.directory, "objects", "pack", "pack")
        words = ["pack-objects", "--revs", "-q", "--delta-base-offset", "--window=0"]  # deltas that exist are reused
        words += ["--missing=allow-promisor"] if partial else []
        try:
            out = self._run(words, stem, required | logged)
        except GitError:
            if not logged:
                raise
            out = self._run(words, stem, required)
        if partial:
            self._put(f"objects/pack/pack-{out}.promisor", b"")

    def _run(self, words: list[str], stem: str, cids: set[str]) -> str:
        data = "".join(f"{cid}\n" for cid in sorted(cids)).encode("ascii")
        return self.git.command.run(*words, stem, data=data).decode("ascii").strip()

    def _write_refs(self, refs: dict[str, str]) -> None:
        symbolic = {name: target for name, _, target in self.values.present if target}
        lines = [line for name in sorted(refs, key=os.fsencode) if name not in symbolic for line in self._packed(name, refs[name])]
        self._put("packed-refs", os.fsencode(_HEADER + "".join(lines)))
        for name, target in symbolic.items():
            self._put(name, os.fsencode(f"ref: {target}\n"))

    def _packed(self, name: str, cid: str) -> Iterator[str]:
        """Yield the lines of a ref in the packed file; the second one has what an annotated tag is for."""
        yield f"{cid} {name}\n"
        repo = self.git.handle.repo
        with suppress(KeyError):  # a partial clone may lack the object
            if not name.startswith("refs/heads/") and int(repo.odb.read_header(cid)[0]) == _TAG:
                yield f"^{repo[cid].peel(None).id}\n"

    def _copy_logs(self, refs: dict[str, str]) -> set[str]:
        """Copy the reflogs; return the commits that they name."""
        head = self.values.head.strip()
        target = head.removeprefix("ref:").strip()
        head_cid = refs.get(target) if head.startswith("ref:") else head
        cids: set[str] = set()
        folders = [os.path.join(self.git.handle.common_dir, "logs"), self.git.refs.archive.logs]
        for name, cid in (*refs.items(), ("HEAD", head_cid)):
            log = _read_first([os.path.join(folder, *name.split("/")) for folder in folders])
            part = _until(log, cid) if log else b""
            if part:
                self._put(f"logs/{name}", part)
                cids.update(word.decode("ascii", "replace") for line in part.splitlines() for word in line.split()[:2])
        return {cid for cid in cids if len(cid) == len(_NOTHING) and cid != _NOTHING and set(cid) <= set("0123456789abcdef")}

    def _config(self) -> str:
        """The configuration of the copy: that of a bare repository, and where a partial clone gets what it lacks."""
        config = self.git.handle.repo.config
        remotes = [entry.name[7:-9] for entry in config if entry.name.startswith("remote.") and entry.name.endswith(".promisor")]
        if not remotes:
            return "[core]\n\trepositoryformatversion = 0\n\tbare = true\n"
        extension = f"[extensions]\n\tpartialClone = {remotes[0]}\n"
        sections = "".join(f'[remote "{name}"]\n\turl = {config[f"remote.{name}.url"]}\n\tpromisor = true\n' for name in remotes)
        return f"[core]\n\trepositoryformatversion = 1\n\tbare = true\n{extension}{sections}"

    def _put(self, name: str, data: bytes) -> None:
        path = os.path.join(self.directory, *name.split("/"))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)


def _read_first(paths: Iterable[str]) -> bytes:
    for path in paths:
        with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError), open(path, "rb") as file:
            return file.read()
    return b""


def _until(log: bytes, cid: str | None) -> bytes:
    """Return a reflog up to the last move to a value; all of it if there is none."""
    lines = log.splitlines(keepends=True)
    ends = [number for number, line in enumerate(lines, 1) if cid is not None and line[41:81] == cid.encode("ascii")]
    return b"".join(lines[: ends[-1]] if ends else lines)

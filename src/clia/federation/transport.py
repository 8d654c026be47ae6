"""The git transport to other spaces: quarantines for what they send, and views of what they may fetch.

Invariant: a quarantine leaves nothing behind; the next one removes those of killed processes, and never one in use. A view is a
repository with exactly the refs announced to its audience, and it changes atomically.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import ExitStack, contextmanager, suppress

from clia.errors import CliaError, FileError, NotFound, TransportError
from clia.git.command import refused_transport, run_limited, without_credentials
from clia.git.quarantine import FORGE, GitQuarantine, RemoteAddress, first_line, kind_of
from clia.git.records import TransferLimits, UploadCommand
from clia.store.private_files import FileLocks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from clia.git.command import GitCommand, GitResult
    from clia.git.libgit2 import GitHandle

_LOCK = "lock"
_PUSH = ("push", "--atomic", "--no-verify", "--no-follow-tags", "--no-recurse-submodules", "--quiet", "--")
_PUSH_LIMITS = TransferLimits(1 << 50, 3600.0)  # our own data: any size, but limited in time
_REFS_PER_PUSH = 1000  # limited by the length of a command line


@contextmanager
def _writing(path: str) -> Iterator[None]:
    """Translate the errors of writing files."""
    try:
        yield
    except OSError as err:
        message = f"cannot write in {path}: {err.strerror}"
        raise FileError(message, fields={"path": path, "reason": err.strerror}) from None


class GitTransport:
    """Reaches other spaces over git and HTTP."""

    def __init__(self, handle: GitHandle, command: GitCommand) -> None:
        self._handle = handle
        self._command = command

    @contextmanager
    def open(self, url: str, token: str | None = None, announced: str | None = None) -> Iterator[GitQuarantine]:
        """Open a quarantine for what comes from a URL.

        ``token``: the fetch token for a clia forge. ``announced``: prefix of the refs that the other side may know we have.
        """
        top = os.path.join(self._handle.common_dir, "clia", "quarantine")
        with ExitStack() as stack:
            with _writing(top):
                where = self._new_quarantine(top, stack)
            yield GitQuarantine(RemoteAddress(url, token if FORGE in url else None, announced), where, self._handle, self._command)

    def _new_quarantine(self, top: str, stack: ExitStack) -> str:
        """Create the directory of a quarantine, which ``stack`` removes, and remove those of dead processes."""
        with FileLocks(top).hold(_LOCK):  # a new quarantine must not look abandoned
            for directory in filter(os.path.isdir, (os.path.join(top, name) for name in os.listdir(top))):
                with FileLocks(directory).attempt(_LOCK) as free:  # of a dead process
                    if free:
                        shutil.rmtree(directory, ignore_errors=True)
            where = tempfile.mkdtemp(dir=top)
            stack.callback(shutil.rmtree, where, ignore_errors=True)
            stack.enter_context(FileLocks(where).hold(_LOCK))
        self._make_borrowing(where)
        return where

    def notify(self, url: str, token: str) -> bool:
        """Notify a clia forge that there is news; return whether it accepted. Never raises: the other side polls later."""
        if FORGE not in url or not url.startswith(("http://", "https://")):
            return False
        from clia.http_client import HttpClient

        inbox = url.partition(FORGE)[0] + f"{FORGE}inbox"
        try:
            answer = HttpClient().post(inbox, {"content-type": "application/jose"}, token.encode("ascii"), seconds=5.0, limit=65536)
        except CliaError:
            return False
        return answer.status in (200, 202, 204)

    def show(self, audience: str, refs: Mapping[str, str]) -> None:
        """Publish exactly these names and targets for an audience, all at once; missing targets are left out."""
        where, repo = self.view(audience), self._handle.repo
        present = sorted((ref, cid) for ref, cid in refs.items() if kind_of(repo, cid) is not None)  # a purge removes objects
        with _writing(where):
            if not os.path.isdir(where):
                self._make_view(where)
            handle, draft = tempfile.mkstemp(dir=where, prefix="packed-refs.")
            try:
                with open(handle, "w", encoding="ascii") as file:
                    file.write("# pack-refs with: sorted \n")
                    file.writelines(f"{cid} {ref}\n" for ref, cid in present)
                    file.flush()
                    if self._handle.durable:
                        os.fsync(handle)
                os.replace(draft, os.path.join(where, "packed-refs"))
            except BaseException:
                os.unlink(draft)
                raise

    def _make_view(self, where: str) -> None:
        os.makedirs(os.path.dirname(where), exist_ok=True)
        new = tempfile.mkdtemp(dir=os.path.dirname(where))
        try:
            self._make_borrowing(new)
            os.rename(new, where)
        except OSError:
            shutil.rmtree(new, ignore_errors=True)
            if not os.path.isdir(where):  # no other process created it first
                raise

    def view(self, audience: str) -> str:
        """The path of the repository that an audience may fetch from."""
        return os.path.join(self._handle.common_dir, "clia", "shared", f"{audience}.git")

    def _make_borrowing(self, where: str) -> None:
        """Create a bare repository that borrows our objects and has the same file permissions."""
        config = self._handle.repo.config  # has no get() with a default
        shared = config["core.sharedrepository"] if "core.sharedrepository" in config else "umask"  # noqa: SIM401  # as said
        for folder in ("objects/info", "objects/pack", "refs"):
            os.makedirs(os.path.join(where, *folder.split("/")))
        for name, text in (
            ("objects/info/alternates", f"{os.path.join(self._handle.common_dir, 'objects')}\n"),
            ("config", f"[core]\n\trepositoryformatversion = 0\n\tbare = true\n\tsharedRepository = {shared}\n"),
            ("HEAD", "ref: refs/heads/none\n"),
        ):
            with open(os.path.join(where, *name.split("/")), "w", encoding="utf-8") as file:
                file.write(text)

    def upload(self, audience: str, *, advertise: bool) -> UploadCommand:
        """Return the command that serves an audience's fetch over HTTP: the ref advertisement, or a request."""
        # The requested protocol version is not passed on. In version 0 git checks that refs reach each requested commit;
        # version 2 serves any object of the repository, which borrows all objects of this space.
        settings = ("-c", "uploadpack.allowReachableSHA1InWant=true", "-c", "safe.directory=*")
        mode = ("--stateless-rpc", "--advertise-refs") if advertise else ("--stateless-rpc",)
        _, environment = self._command.whole()
        ours = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
        return UploadCommand(("git", *settings, "upload-pack", "--strict", *mode, self.view(audience)), environment | ours)

    def check_remote(self, remote: str) -> None:
        """Raise ``NotFound`` (no-such-remote) if git has no such remote."""
        remotes = self._command.run("remote").decode("utf-8", "replace").split()
        if remote not in remotes:
            hints = [f"remotes here: {', '.join(remotes) or 'none'}"]
            raise NotFound(f"no remote {remote!r}", code="no-such-remote", hints=hints, fields={"remote": remote})

    def push(self, audience: str, remote: str) -> None:
        """Push what ``show`` published for an audience to a git remote. ``TransportError`` if it is refused."""
        self.check_remote(remote)
        listed: dict[str, str] = {}
        with suppress(FileNotFoundError), open(os.path.join(self.view(audience), "packed-refs"), encoding="ascii") as file:
            listed = {ref: cid for cid, ref in (line.split() for line in file if not line.startswith("#"))}
        # Announced refs may be forced or removed. The chain is never forced and goes last, after the commits it names.
        announced = f"refs/clia/announced/{audience}/"
        listing = self._talk(remote, "ls-remote", "--refs", "--", remote, f"{announced}*").out.decode("utf-8", "replace")
        stale = (line.partition("\t")[2] for line in listing.splitlines())
        moves = [f":{ref}" for ref in stale if ref.startswith(announced) and ref not in listed]
        moves += [f"+{cid}:{ref}" for ref, cid in listed.items() if ref.startswith(announced)]
        last = [f"{cid}:{ref}" for ref, cid in listed.items() if not ref.startswith(announced)]
        parts = [moves[at : at + _REFS_PER_PUSH] for at in range(0, len(moves), _REFS_PER_PUSH)]
        for refspecs in (*parts, last):
            if refspecs:
                self._talk(remote, *_PUSH, remote, *refspecs)

    def _talk(self, remote: str, *words: str) -> GitResult:
        command, environment = self._command.whole(*words)
        environment = {**environment, **self._command.reaching}
        result = run_limited(command, environment, self._handle.work_dir or self._handle.git_dir, _PUSH_LIMITS)
        if result.code or result.late:
            reason = f"it took longer than {_PUSH_LIMITS.seconds:g} seconds" if result.late else without_credentials(result.err)
            refused = refused_transport(reason)
            if refused is not None:
                raise refused
            message = f"git could not push to {remote}: {first_line(reason)}"
            raise TransportError(message, fields={"remote": remote, "reason": reason})
        return result

"""The key of this clone, the *machine*: it signs every commit that clia writes here.

The private key is an OpenSSH file beside the store, ``clia/signing/machine``, or elsewhere, as git's configuration says:
``clia.signingKey`` is the path of another file, ``clia.signingCommand`` a command that reads data and prints its SSH signature.
In a repository that a group shares, its members share the machine and its key.

A new clone of a space that signs gets a key of its own with its first commit; it counts once it is enrolled.

Invariant: in a space that signs, a commit is signed or not written. A key that was here and is lost is not replaced. A key file
that others can read, that is damaged or has a passphrase is an error that names the file.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from contextlib import suppress

from clia.errors import Conflict, FileError, NotFound
from clia.store import private_files
from clia.trust.ssh_format import LockedKey, PublicKey, private_key_file, read_private_key
from clia.trust.ssh_signatures import GIT, signer_of
from clia.values.commit_messages import parse
from clia.values.refs import KEYS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from clia.errors import CliaError
    from clia.git.repository import Git
    from clia.trust.ssh_signatures import SshSigner

ENTRY = "Clia-Keys"
"""The trailer of an entry of the chain of keys."""
AGENT_KEY = "CLIA_AGENT_KEY"
"""Names the file of an agent's key to the programs of a run."""
KEY_FILE = "machine"
KEY_SETTING, COMMAND_SETTING = "clia.signingKey", "clia.signingCommand"
_KEY_FILE_MAX = 16 * 1024
_OTHERS = 0o077
_COMMAND_SECONDS = 60
_CREATE_HINT = "create one with: clia key init"


class MachineKey:
    """The machine's key, read when the first commit is signed and again when its file changes.

    ``signs`` tells whether the space's commits must be signed; it is only asked if there is no key.
    """

    def __init__(
        self,
        directory: str,
        setting: Callable[[str], str | None],
        signs: Callable[[], bool],
        run: Callable[[str, bytes], str] | None = None,
    ) -> None:
        self.directory = directory
        self._own_path = os.path.join(directory, KEY_FILE)
        self._setting = setting
        self._signs = signs
        self._run = run
        self._loaded: tuple[tuple[int, int, int], SshSigner] | None = None

    @property
    def path(self) -> str:
        """The file of the private key."""
        return self._setting(KEY_SETTING) or self._own_path

    def sign(self, data: bytes) -> str | None:
        """The signature of a commit; None in a space that does not sign."""
        command = self._setting(COMMAND_SETTING)
        if command is not None and self._run is not None:
            return self._run(command, data).strip() if self._signs() else None
        signer = self._signer()
        return None if signer is None else signer.sign(data, GIT)

    def certifier(self) -> SshSigner | None:
        """The key itself, to certify others; None in a space that does not sign, and if a command has the key."""
        return None if self._setting(COMMAND_SETTING) is not None or not self._signs() else self._signer()

    def problem(self) -> CliaError | None:
        """Why nothing can be signed now, in a space that signs; None if it can. The operator's command is not tried."""
        if self._setting(COMMAND_SETTING) is not None or not self._signs():
            return None
        try:
            if self._read() is None and (self.path != self._own_path or os.path.isdir(os.path.dirname(self._own_path))):
                return self._missing()
        except FileError as err:
            return err
        return None

    def exists(self) -> bool:
        return self._setting(COMMAND_SETTING) is not None or os.path.exists(self.path)

    def public(self) -> PublicKey:
        """The public key; ``NotFound`` if this clone has no key."""
        command = self._setting(COMMAND_SETTING)
        if command is not None and self._run is not None:
            return _key_of(self._run(command, b""))
        signer = self._read()
        if signer is None:
            raise self._missing()
        return signer.public

    def signer(self) -> SshSigner:
        """The key itself, for signatures in other formats than git's; ``NotFound`` if this clone has none."""
        if self._setting(COMMAND_SETTING) is not None:
            message = "the operator's command signs for this clone, and makes SSH signatures only"
            hints = ["sign with a key in a file: --key FILE"]
            raise Conflict(message, code="key-not-ours", hints=hints, fields={"setting": COMMAND_SETTING})
        signer = self._read()
        if signer is None:
            raise self._missing()
        return signer

    def name(self) -> str:
        """The name of this machine, derived from its key: it needs no question, and is the same everywhere."""
        return machine_name(self.public())

    def make(self) -> PublicKey:
        """Create the key, unless there is one; another process may create it at the same time."""
        if not self.exists():
            write_key(self._own_path, secrets.token_bytes(32))
        return self.public()

    def keep_next(self, seed: bytes) -> None:
        """Keep the key that will replace this one, until it is enrolled."""
        if self.path != self._own_path or self._setting(COMMAND_SETTING) is not None:
            message = "the operator supplies the key of this clone, so clia cannot replace it"
            hints = ["enrol the new key, revoke the old one, and change the setting", f"see {KEY_SETTING} and {COMMAND_SETTING}"]
            raise Conflict(message, code="key-not-ours", hints=hints)
        write_key(f"{self._own_path}.next", seed, replace=True)

    def take_next(self) -> None:
        """Put the next key in the place of this one."""
        try:
            os.replace(f"{self._own_path}.next", self._own_path)
        except OSError as err:
            raise FileError(f"{self._own_path}: {err.strerror}", fields={"path": self._own_path}) from None

    def finish_rotation(self, entries: Callable[[], str]) -> None:
        """Take the next key if it was enrolled and the process died then. ``entries`` returns the newest commit of the chain."""
        path = f"{self._own_path}.next"
        if os.path.exists(path) and read_key(path).public.text in entries():
            self.take_next()

    def _signer(self) -> SshSigner | None:
        signer = self._read()
        if signer is None and self._signs():
            if self.path != self._own_path or os.path.isdir(os.path.dirname(self._own_path)):
                raise self._missing()
            self.make()  # a new clone of a space that signs
            signer = self._read()
        return signer

    def _missing(self) -> NotFound:
        message = f"this clone has no key to sign with: {self.path} is missing"
        hints = [_CREATE_HINT, "nothing is recorded without a signature, because the commits of this space are signed"]
        return NotFound(message, code="no-signing-key", hints=hints, fields={"path": self.path})

    def _read(self) -> SshSigner | None:
        path = self.path
        try:
            status = os.stat(path)
        except OSError:
            return None
        state = (status.st_mtime_ns, status.st_ino, status.st_mode)
        if self._loaded is None or self._loaded[0] != state:
            self._loaded = state, read_key(path)
        return self._loaded[1]


def machine_name(key: PublicKey) -> str:
    return f"machine-{hashlib.sha256(key.blob).hexdigest()[:12]}"


def machine_key_of(git: Git) -> MachineKey:
    """The machine's key of a repository."""
    return MachineKey(os.path.join(git.handle.common_dir, "clia", "signing"), git.setting, lambda: signs(git), _run_command)


def signs(git: Git) -> bool:
    """Whether a space's commits are signed: its chain of keys has an entry."""
    tip = git.refs.get(KEYS)
    commits = () if tip is None else git.graph.first_parents(tip)
    return any(key == ENTRY for commit in commits for key, _ in parse(commit.message)[1])


def _run_command(command: str, data: bytes) -> str:
    """The output of the operator's command that signs."""
    import shlex
    import subprocess  # few spaces have such a command

    fields = {"command": command}
    try:
        result = subprocess.run(shlex.split(command), input=data, capture_output=True, check=False, timeout=_COMMAND_SECONDS)
    except (OSError, ValueError, subprocess.TimeoutExpired) as err:
        raise FileError(f"{COMMAND_SETTING} failed: {err}", code="signing-command-failed", fields=fields) from None
    if result.returncode:
        reason = result.stderr.decode("utf-8", "replace").strip() or f"exit code {result.returncode}"
        raise FileError(f"{COMMAND_SETTING} failed: {reason}", code="signing-command-failed", fields=fields)
    return result.stdout.decode("ascii", "replace")


def read_key(path: str) -> SshSigner:
    """Read a private key; ``FileError`` if it cannot be used, and why."""
    fields = {"path": path}
    try:
        with open(path, encoding="ascii") as file:
            mode, text = os.fstat(file.fileno()).st_mode, file.read(_KEY_FILE_MAX)
        directory = os.stat(os.path.dirname(path) or ".").st_mode
        if mode & _OTHERS & ~(directory if directory & stat.S_ISGID else 0):
            hints = [f"chmod 600 {path}; if it leaked: clia key rotate --machine"]
            raise FileError(f"{path} can be read by others", code="key-exposed", hints=hints, fields=fields)
        return signer_of(read_private_key(text)[0])
    except LockedKey:
        hints = ["use a key without a passphrase, or git config clia.signingCommand for a command that signs with an agent"]
        message = f"{path} is locked with a passphrase, so nothing can be signed with it"
        raise FileError(message, code="signing-key-locked", hints=hints, fields=fields) from None
    except (OSError, ValueError) as err:
        reason = err.strerror if isinstance(err, OSError) else str(err)
        hints = ["restore it from a backup, or move it aside; then: clia key init"]
        message = f"the key to sign with cannot be read: {path}: {reason}"
        raise FileError(message, code="signing-key-unreadable", hints=hints, fields=fields) from None


def write_key(path: str, seed: bytes, *, replace: bool = False) -> None:
    """Write a private key completely or not at all, readable by its owner only. Without ``replace``, one that exists stays."""
    text = private_key_file(seed, signer_of(seed).public.blob[-32:], "clia")
    temporary = f"{path}.{secrets.token_hex(8)}.new"
    try:
        private_files.make_directory(os.path.dirname(path))
        handle = private_files.open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW)
        with open(handle, "wb") as out:
            out.write(text.encode("ascii"))
            out.flush()
            os.fsync(out.fileno())
        if replace:
            os.replace(temporary, path)
        else:
            with suppress(FileExistsError):
                os.link(temporary, path)
            os.unlink(temporary)
        directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_CLOEXEC)
        os.fsync(directory)
        os.close(directory)
    except OSError as err:
        raise FileError(f"{path}: {err.strerror}", fields={"path": path, "reason": err.strerror}) from None


def _key_of(signature: str) -> PublicKey:
    """The key that a command signed with."""
    from clia.trust.ssh_signatures import verify_signature

    return verify_signature(signature, b"", GIT).key

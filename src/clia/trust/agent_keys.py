"""Keys of agents' sessions: an agent's own commits are signed with a key that the machine's key certifies for it.

A key belongs to one run, MCP server or worker. Its private half is in that process, or in a file that the run gives to its
program (``CLIA_AGENT_KEY``, readable by its owner only). The machine's key certifies it for one agent, for this machine and space,
for a day at most. When the run ends, an event of the agent ends the key. Other commands sign with the machine's key: certifying a
key would cost them as much as their commit.

Invariant: a key signs commits of its agent only, and no decision. Without a key that is valid, the machine's key signs.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import secrets
from contextlib import suppress
from typing import NamedTuple

from clia.errors import CliaError, FileError
from clia.store import private_files
from clia.trust.ssh_signatures import GIT, SshSigner, certified, signer_of
from clia.values.commit_messages import parse
from clia.values.people import AGENT_DOMAIN
from clia.values.refs import SPACE, is_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from clia.git.repository import Git
    from clia.trust.machine_keys import MachineKey

DIRECTORY = "agents"
SPACE_TRAILER = "Clia-Space"
KEY_ENDED = "key-ended"
"""The event that ends a key: what is logged after it does not count."""
SECONDS = 24 * 3600
_MARGIN = 600
"""A key is used until this many seconds before it expires, because its commits are logged after they are signed."""
_FILE_MAX = 16 * 1024
_COMMITTER = re.compile(rb"^committer .* (\d{1,12}) [+-]\d{4}$", re.MULTILINE)
_OWN = re.compile(r"^Clia-Agent: (\S+)$", re.MULTILINE)
_DECISION = "\nClia-Type: decision\n"


class AgentKey(NamedTuple):
    """A certified key."""

    agent: str
    signer: SshSigner
    since: int
    until: int

    def is_valid_at(self, at: int) -> bool:
        return self.since <= at < self.until - _MARGIN


class AgentKeys:
    """The agents' keys of this process.

    ``path``: the file of a run's key; ``certify``: create a key for each agent that commits.
    """

    def __init__(self, path: str | None = None, *, certify: bool = False) -> None:
        self.path = path
        self._certify = certify
        self._keys: dict[str, AgentKey | None] = {}
        self._from: str | None = None

    def for_commit(self, data: bytes, certify: Callable[[str, int], AgentKey | None]) -> AgentKey | None:
        """The key for a commit's bytes; None: the machine signs it."""
        if self.path is None and not self._certify:
            return None
        agent, at = _agent_and_time(data)
        if agent is None:
            return None
        key = self._keys.get(agent)
        if (key is None or not key.is_valid_at(at)) and self._certify:
            key = self._keys[agent] = certify(agent, at)
        elif self.path is not None and self._from != self.path:
            self._from = self.path
            key = read_agent_key(self.path)
            self._keys = {} if key is None else {key.agent: key}
        key = self._keys.get(agent)
        return key if key is not None and key.is_valid_at(at) else None

    def end(self) -> list[AgentKey]:
        """Forget all keys; returns those that were certified here."""
        keys = [key for key in self._keys.values() if key is not None] if self._certify else []
        self._keys = {}
        return keys


def _agent_and_time(data: bytes) -> tuple[str | None, int]:
    """The agent whose own commit this is, and when it is written."""
    time = _COMMITTER.search(data)
    text = data.partition(b"\n\n")[2].decode("utf-8", "replace")
    names = _OWN.findall(text)
    if time is None or len(names) != 1 or not is_name(names[0]) or _DECISION in text:
        return None, 0
    return names[0], int(time[1])


def certify(machine: MachineKey, space: str, agent: str, at: int) -> tuple[AgentKey | None, bytes]:
    """A new key for an agent, certified by the machine's key, and its seed; None if that key cannot certify: a command has it."""
    issuer, seed = machine.certifier(), secrets.token_bytes(32)
    if issuer is None:
        return None, b""
    valid, name = (at - 60, at + SECONDS), key_id(agent, machine.name(), space)
    blob = certified(issuer, signer_of(seed).public, name, principal(agent), valid, secrets.token_bytes(32))
    return AgentKey(agent, signer_of(seed, blob), *valid), seed


def key_id(agent: str, machine: str, space: str) -> str:
    """The name of a certificate: for whom it is, where, and in which space."""
    return f"clia agent {agent} on {machine} in {space}"


def principal(agent: str) -> str:
    """The agent as stock git's allowed-signers file matches it."""
    return f"{agent}{AGENT_DOMAIN}"


def write_agent_key(directory: str, key: AgentKey, seed: bytes) -> str:
    """Write a key for the programs of a run; returns its path."""
    path = os.path.join(directory, f"{key.agent}-{secrets.token_hex(8)}")
    certificate = base64.b64encode(key.signer.certificate or b"").decode("ascii")
    body = {"agent": key.agent, "seed": base64.b64encode(seed).decode("ascii"), "certificate": certificate}
    text = json.dumps(body | {"since": key.since, "until": key.until})
    try:
        private_files.make_directory(directory)
        handle = private_files.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW)
        with open(handle, "w", encoding="ascii") as file:
            file.write(text)
    except OSError as err:
        raise FileError(f"{path}: {err.strerror}", fields={"path": path, "reason": err.strerror}) from None
    return path


def read_agent_key(path: str) -> AgentKey | None:
    """The key of a run; None if the run has ended, or the file is damaged or readable by others: then the machine signs."""
    try:
        with open(path, encoding="ascii") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                return None
            body = json.loads(file.read(_FILE_MAX))
        signer = signer_of(base64.b64decode(body["seed"]), base64.b64decode(body["certificate"]))
        return AgentKey(str(body["agent"]), signer, int(body["since"]), int(body["until"]))
    except (OSError, ValueError, KeyError, TypeError, binascii.Error):
        return None


def remove_agent_key(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)


class CommitSigner:
    """Signs commits: those of an agent with its key, all others with the machine's."""

    def __init__(self, machine: MachineKey, keys: AgentKeys, space: Callable[[], str | None]) -> None:
        self._machine = machine
        self._keys = keys
        self._space = space

    def sign(self, data: bytes) -> str | None:
        key = self._keys.for_commit(data, self._certify)
        return self._machine.sign(data) if key is None else key.signer.sign(data, GIT)

    def _certify(self, agent: str, at: int) -> AgentKey | None:
        space = self._space()
        try:
            return None if space is None else certify(self._machine, space, agent, at)[0]
        except CliaError:
            return None  # signing with the machine's key reports it


def sign_as_agents(git: Git, machine: MachineKey, keys: AgentKeys) -> None:
    """Sign the commits that are written to a repository with agents' keys, where there are any."""
    git.objects.sign = CommitSigner(machine, keys, lambda: space_of(git)).sign


def space_of(git: Git) -> str | None:
    """The id of a repository's space; None before there is one."""
    tip = git.refs.get(SPACE)
    trailers = () if tip is None else parse(git.objects.commit(tip).message)[1]
    text = next((value for key, value in trailers if key == SPACE_TRAILER), "")
    with suppress(ValueError, TypeError, KeyError):
        return str(json.loads(text)["id"])
    return None

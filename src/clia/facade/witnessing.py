"""A witness on this machine: its key and its state, and what it works with.

A witness has a directory of its own (``clia/witness`` below ``XDG_STATE_HOME``, by default): its private key, its name, and the
last checkpoint of each log that it cosigned. It needs no space; one witness can serve many.
"""

from __future__ import annotations

import os
import secrets
from typing import NamedTuple

from clia.errors import Conflict, FileError, InvalidInput, NotFound
from clia.facade.backends import connect, ignore_step
from clia.facade.opening import repository_at
from clia.facade.settings import clock_of
from clia.git.records import Pushed  # noqa: TC001  # the annotations of records are read at run time
from clia.store import private_files
from clia.trust.checkpoints.cosigning import WitnessedCheckpoint, cosign_clone, witness_ref
from clia.trust.checkpoints.signed_notes import LOG_SIGNATURE, check_key_name, read_note_key
from clia.trust.checkpoints.witnesses import Witness, WitnessState
from clia.trust.machine_keys import KEY_FILE, read_key, write_key
from clia.values import refs as names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from clia.facade.settings import Settings
    from clia.git.repository import Git
    from clia.trust.checkpoints.signed_notes import NoteKey

_NAME_FILE = "name"
_INIT_HINT = "create one with: clia witness key --name NAME"


class WitnessPlace(NamedTuple):
    """Where a witness keeps its key and its state."""

    directory: str
    key: str | None = None  # the file of the private key, if it is elsewhere
    name: str | None = None  # the name, if it is not the one in the directory


class CosigningResult(NamedTuple):
    """What a witness did in a clone."""

    witness: str  # the key of the witness
    checkpoints: Sequence[WitnessedCheckpoint]  # what it did with each machine's checkpoint
    pushed: Sequence[Pushed]  # the outcome of the push, if one was asked for


def default_directory(environment: Mapping[str, str]) -> str:
    """The directory of this account's witness."""
    state = environment.get("XDG_STATE_HOME") or os.path.join(environment.get("HOME") or os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "clia", "witness")


def create_witness(place: WitnessPlace) -> NoteKey:
    """Create the key of a witness, unless it has one; ``Conflict`` if it has another name."""
    path = place.key or os.path.join(place.directory, KEY_FILE)
    if place.name is not None:
        check_key_name(place.name)
        present = _read_name(place.directory)
        if present is not None and present != place.name:
            message = f"this witness is {present!r}; a witness cannot change its name, because cosignatures carry it"
            raise Conflict(message, code="other-name", hints=["use another directory for another witness: --state DIR"])
    if not os.path.exists(path):
        if place.name is None:
            raise NotFound(f"there is no witness in {place.directory}", code="no-witness", hints=[_INIT_HINT])
        if place.key is not None:
            raise FileError(f"{path}: no such file", code="file", fields={"path": path})
        write_key(path, secrets.token_bytes(32))
    if place.name is not None and _read_name(place.directory) is None:
        _write_name(place.directory, place.name)
    return _open(place, ignore_step, lambda: 0).key


def open_witness(place: WitnessPlace, settings: Settings) -> Witness:
    """The witness in a directory; ``NotFound`` (no-witness) if there is none."""
    clock = clock_of(settings)
    return _open(place, settings.reached or ignore_step, lambda: int(clock().timestamp()))


def _open(place: WitnessPlace, reached: Callable[[str], None], clock: Callable[[], int]) -> Witness:
    path, name = place.key or os.path.join(place.directory, KEY_FILE), place.name or _read_name(place.directory)
    if name is None or not os.path.exists(path):
        raise NotFound(f"there is no witness in {place.directory}", code="no-witness", hints=[_INIT_HINT])
    private = read_key(path).private
    return Witness(check_key_name(name), private, WitnessState(os.path.join(place.directory, "logs"), reached), clock)


def _read_name(directory: str) -> str | None:
    try:
        with open(os.path.join(directory, _NAME_FILE), encoding="utf-8") as file:
            return file.read(1024).strip() or None
    except OSError:
        return None


def _write_name(directory: str, name: str) -> None:
    path = os.path.join(directory, _NAME_FILE)
    try:
        private_files.make_directory(directory)
        with open(f"{path}.new", "w", encoding="utf-8", opener=private_files.open_file) as file:
            file.write(f"{name}\n")
        os.replace(f"{path}.new", path)
    except OSError as err:
        raise FileError(f"{path}: {err.strerror}", fields={"path": path, "reason": err.strerror}) from None


def cosign(path: str, settings: Settings, witness: Witness, *, root: str | None, push: str | None) -> CosigningResult:
    """Cosign the checkpoints of a clone. ``push``: the remote that gets the cosignatures."""
    git = _plain(path, settings)
    if push is not None and push not in git.porcelain.remotes():
        hints = [f"remotes here: {', '.join(git.porcelain.remotes()) or 'none'}"]
        raise NotFound(f"no remote {push!r}", code="no-such-remote", hints=hints)
    ref = witness_ref(witness)
    theirs = None
    if push is not None:
        tracked = names.tracking(push, ref)
        git.porcelain.fetch(push, [f"+{ref}*:{tracked}*"])
        theirs = git.refs.get(tracked)
        if theirs is not None and git.refs.get(ref) is None:
            git.refs.move(ref, None, theirs, "clia: cosign")  # the memory of a witness that lost its state
    now = int(clock_of(settings)().timestamp())
    checkpoints = cosign_clone(git, witness, root, now, settings.reached or ignore_step)
    ours = git.refs.get(ref)
    pushed = [] if push is None or ours is None or ours == theirs else git.porcelain.replace(push, [(ref, theirs, ours)])
    return CosigningResult(witness.key.text, checkpoints, pushed)


def served_logs(path: str, settings: Settings, keys: Sequence[str]) -> Callable[[], Mapping[str, Sequence[NoteKey]]]:
    """The logs that a witness serves: those of the ``keys``; without any, those of the machines that are enrolled in a clone."""
    chosen = [read_note_key(text, "log") for text in keys]
    if any(key.kind != LOG_SIGNATURE for key in chosen):
        raise InvalidInput(
            "--log takes the key of a log, as clia witness list prints it", code="invalid-key", fields={"field": "log"}
        )
    if chosen:
        fixed = {key.name: [key] for key in chosen}
        return lambda: fixed
    git = _plain(path, settings)
    from clia.trust.checkpoints.checks import log_keys
    from clia.trust.verification import TrustChecks

    current: list[tuple[str | None, Mapping[str, Sequence[NoteKey]]]] = [(None, {})]

    def logs() -> Mapping[str, Sequence[NoteKey]]:
        tip = git.refs.get(names.KEYS)
        if tip != current[0][0]:
            current[0] = tip, log_keys(TrustChecks(git).key_chain())
        return current[0][1]

    if not logs():
        hints = ["name the logs: clia witness serve --log KEY, or start it in a clone of a space that signs"]
        raise NotFound("there is no log to witness here", code="no-log", hints=hints)
    return logs


def _plain(path: str, settings: Settings) -> Git:
    """A repository in which the machine signs nothing: a witness only signs checkpoints."""
    git = connect(repository_at(path), settings)
    git.objects.sign = lambda _: None
    git.objects.signed_by_git = False
    git.refs.log = None
    return git

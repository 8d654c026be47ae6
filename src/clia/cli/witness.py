"""``clia witness``: checkpoints of the record, and the witnesses that cosign them."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Annotated, NamedTuple

from clia.cli.command import PATH, Answer, arg, command, many, opt
from clia.cli.inputs import invalid_option, require_person
from clia.cli.output import emit_json, one_line, write
from clia.cli.rendering import show_hints, show_rows
from clia.errors import FileError, InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from clia.facade.settings import Settings
    from clia.facade.space import Space
    from clia.facade.witnessing import CosigningResult, WitnessPlace
    from clia.trust.checkpoints.making import MadeCheckpoint
    from clia.trust.checkpoints.service import WitnessList

_DEFAULT = "default: clia/witness below XDG_STATE_HOME"
STATE: Any = opt("DIR", f"directory of the witness ({_DEFAULT})")
KEY: Any = opt("FILE", "private key of the witness, if it is elsewhere: an Ed25519 key of OpenSSH without a passphrase")
NAME: Any = opt("NAME", "name of the witness in its cosignatures, such as ci.example.org/shop")
_SHOWN_HOURS = 48


class WitnessKey(NamedTuple):
    key: str  # the key, as clia witness trust takes it
    name: str  # the name of the witness
    directory: str  # where its key and state are


class WitnessAddress(NamedTuple):
    """What ``clia witness serve`` prints at start."""

    address: str  # address of the witness
    key: str  # its key
    logs: Sequence[str]  # the origins of the logs that it witnesses


class RequestedCosignatures(NamedTuple):
    witnesses: Sequence[str]  # the trusted witnesses that cosigned


@command("witness checkpoint")
def witness_checkpoint(space: Space) -> Answer[MadeCheckpoint]:
    """Sign a checkpoint of the record, which witnesses can cosign.

    Standard output carries the name of the checkpoint: clia verify --since takes it. Keep it in another place than the repository.
    """
    checkpoint = space.witnesses.checkpoint()

    def show() -> None:
        write(f"{checkpoint.checkpoint}\n")
        if not checkpoint.new:
            write("nothing moved since this checkpoint\n", sys.stderr)

    return Answer(checkpoint, show)


@command("witness list")
def witness_list(space: Space) -> Answer[WitnessList]:
    """List the witnesses that count, and the newest checkpoint of each machine."""
    listed = space.witnesses.list()
    return Answer(listed, lambda: _show_list(listed))


@command("witness trust")
def witness_trust(
    space: Space, key: str = arg("KEY", "key of the witness, as clia witness key prints it there")
) -> Answer[WitnessList]:
    """Let the cosignatures of a witness count.

    Its key becomes part of the chain of keys; clia key revoke ends it.
    """
    listed = space.witnesses.trust(key)
    return Answer(listed, lambda: _show_list(listed))


@command("witness request")
def witness_request(
    space: Space, url: str = arg("URL", "address of the witness, without /add-checkpoint")
) -> Answer[RequestedCosignatures]:
    """Ask a witness over HTTP to cosign a checkpoint of now."""
    require_person("ask a person: clia ask AGENT QUESTION")
    requested = RequestedCosignatures(space.witnesses.request(url))
    return Answer(requested, f"cosigned by {', '.join(requested.witnesses)}")


@command("witness key")
def witness_key(state: str | None = STATE, name: str | None = NAME, key: str | None = KEY) -> Answer[WitnessKey]:
    """Print the key of the witness of this account, or create it.

    Standard output carries the key, which clia witness trust takes in the space. The private key stays in the directory of the
    witness, with what it has cosigned: back up both together, and never run two witnesses with one key.
    """
    from clia.facade.witnessing import create_witness

    place = _place(state, key, name)
    created = create_witness(place)
    answer = WitnessKey(created.text, created.name, place.directory)
    return Answer(answer, f"{created.text}")


@command("witness cosign", path=PATH)
def witness_cosign(
    settings: Settings,
    path: str,
    state: str | None = STATE,
    key: str | None = KEY,
    name: str | None = NAME,
    root: str | None = opt("FINGERPRINT", "root that the space must have, as clia key show prints it there"),
    push: str | None = opt("REMOTE", "push the cosignatures to this remote"),
) -> Answer[CosigningResult]:
    """Cosign the newest checkpoint of each machine in a clone, as a witness.

    A plain clone will do, without a store. A checkpoint that does not extend the last one that this witness cosigned is refused,
    and the exit code is 1.
    """
    from clia.facade.witnessing import cosign, open_witness

    cosigned = cosign(path, settings, open_witness(_place(state, key, name), settings), root=root, push=push)
    refused = any(item.reason for item in cosigned.checkpoints) or any(item.state == "refused" for item in cosigned.pushed)
    return Answer(cosigned, lambda: _show_cosigned(cosigned, push), exit_code=1 if refused else 0)


@command("witness serve", path=PATH)
def witness_serve(
    settings: Settings,
    path: str,
    json_output: bool,
    state: str | None = STATE,
    key: str | None = KEY,
    name: str | None = NAME,
    host: str = opt("HOST", "address to bind (default: 127.0.0.1)", default="127.0.0.1"),
    port: int = opt("PORT", "port (default: 8338; 0: a free one)", type=int, default=8338),
    logs: list[str] = many("KEY", "log to witness, by its key (repeatable; default: the machines of the clone at --path)", "--log"),
) -> Annotated[int, WitnessAddress]:
    """Run a witness over HTTP, in the protocol of C2SP (tlog-witness).

    It cosigns checkpoints that extend the last one that it saw. Requests need no login: a checkpoint counts only if its log signed
    it.
    """
    from clia.facade.witnessing import open_witness, served_logs
    from clia.trust.checkpoints.witness_server import WitnessServer

    witness, log_keys = open_witness(_place(state, key, name), settings), served_logs(path, settings, logs)
    if not 0 <= port < 65536:
        raise InvalidInput(f"--port takes a number from 0 to 65535, not {port}", code="usage", fields={"field": "port"})
    try:
        server = WitnessServer((host, port), witness, log_keys)
    except OSError as err:
        message = f"cannot listen at {host}:{port}: {err.strerror}"
        raise FileError(message, code="address-in-use", fields={"host": host, "port": port}) from None
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    with server.serving() as address:
        banner = WitnessAddress(address, witness.key.text, sorted(log_keys()))
        if json_output:
            emit_json(banner)
        else:
            write(f"witness {one_line(witness.key.name)} at {address}\n")
        sys.stdout.flush()
        stopped.wait()
    return 0


def _place(state: str | None, key: str | None, name: str | None) -> WitnessPlace:
    from clia.facade.witnessing import WitnessPlace, default_directory

    if key is not None and state is None and name is None and not os.path.exists(key):
        raise invalid_option(f"--key: no such file: {key}", [], option="--key")
    return WitnessPlace(state or default_directory(os.environ), key, name)


def _show_list(listed: WitnessList) -> None:
    if listed.witnesses:
        show_rows(("witness", "fingerprint"), [(witness.name, witness.fingerprint) for witness in listed.witnesses])
    else:
        write("no witness is trusted here\n")
        show_hints(["trust one with the key that it prints: clia witness trust KEY"])
    for checkpoint in listed.checkpoints:
        who = f"cosigned by {', '.join(checkpoint.witnesses)}" if checkpoint.witnesses else "not cosigned"
        write(one_line(f"{checkpoint.machine}: checkpoint {checkpoint.size}, {who}") + "\n")
        write(f"  {one_line(checkpoint.checkpoint)}\n")
        write(f"  log key {one_line(checkpoint.log_key)}\n")
    write(f"{freshness(listed.age, listed.later)}\n")


def freshness(age: int | None, later: int) -> str:
    """How old the newest cosigned checkpoint is."""
    if age is None:
        return "no cosigned checkpoint: nothing shows that this is the newest state"
    hours = age // 3600
    text = f"{hours // 24} days" if hours >= _SHOWN_HOURS else f"{hours} hours" if hours > 1 else f"{age // 60} minutes"
    return f"newest cosigned checkpoint: {text} old, {later} log entries after it"


def _show_cosigned(cosigned: CosigningResult, push: str | None) -> None:
    if not cosigned.checkpoints:
        write("there is no checkpoint to cosign\n")
        show_hints(["make one in the space: clia witness checkpoint"])
    for item in cosigned.checkpoints:
        write(
            one_line(f"{item.state} checkpoint {item.size} of {item.machine}" + (f": {item.reason}" if item.reason else "")) + "\n"
        )
    for pushed in cosigned.pushed:
        write(one_line(f"{pushed.state}  {pushed.ref}  {pushed.reason}").rstrip() + "\n")
    if not cosigned.pushed and push is None and any(not item.reason for item in cosigned.checkpoints):
        show_hints(["the cosignatures are in this clone; publish them with: clia witness cosign --push REMOTE"], sys.stderr)

"""``clia key`` and ``clia policy``: who signs what, and what the acts of people need."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from clia.cli.command import Answer, arg, command, flag, many, opt
from clia.cli.federation import HEARD_HINT
from clia.cli.inputs import invalid_option
from clia.cli.output import one_line, write
from clia.cli.rendering import show_hints, show_line, show_rows, styled
from clia.errors import FileError, InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.facade.space import Space
    from clia.federation.model import Key
    from clia.trust.checkpoints.checks import EndorsedHistory
    from clia.trust.service import KeyList, WaitingAct

_FILE_MAX = 64 * 1024


@command("key init")
def key_init(space: Space) -> Answer[KeyList]:
    """Start to sign the commits of this space, or create the key of this clone.

    New spaces sign from the start. In an older space, the commits that exist stay unsigned; verify lists them as such.
    """
    return _answer(space.trust.init())


@command("key list")
def key_list(space: Space) -> Answer[KeyList]:
    """List the keys of machines, people and witnesses."""
    return _answer(space.trust.keys())


@command("key show")
def key_show(space: Space) -> Answer[Key]:
    """Print the key that other spaces pin to identify this one.

    Standard output carries only the key; the rest goes to standard error, with the root that strangers pin for clia verify.
    """
    key, keys = space.peers.key(), space.trust.keys()

    def show() -> None:
        _show_key(key)
        _show_root(keys)

    return Answer(key, show)


@command("key rotate")
def key_rotate(
    space: Space,
    lost: bool = flag("the private key is lost: create a new identity, which every peer has to add again"),
    machine: bool = flag("replace the key of this clone, which signs its commits"),
) -> Answer[Key | KeyList]:
    """Replace the key of this space, or of this clone; the old key signs the new one."""
    if machine:
        if lost:
            hints = ["revoke a lost key with: clia key revoke FINGERPRINT, and enrol another one"]
            raise invalid_option("--machine cannot be used with --lost", hints, option="--lost")
        rotated = _answer(space.trust.rotate_machine())
        return Answer(rotated.value, rotated.show)
    key = space.peers.rotate_key(lost=lost)

    def show() -> None:
        _show_key(key)
        if lost:
            write("this is a new identity: every peer has to remove this space and add it again with the key above\n", sys.stderr)
        elif len(key.chain) == 1:
            write("this space had no key: its first key was created\n", sys.stderr)
        else:
            write(HEARD_HINT, sys.stderr)

    return Answer(key, show)


@command("key enrol")
def key_enrol(
    space: Space,
    owner: str = arg("OWNER", "person as named in commits: name or address; of a machine or witness any text"),
    ssh: str | None = opt("FILE", "public SSH key of a person: a .pub file", one_of="key"),
    machine: str | None = opt("KEY", "public key of another clone, as its clia key list prints it", one_of="key"),
    witness: str | None = opt("KEY", "public key of a witness of checkpoints", one_of="key"),
    roles: list[str] = many("ROLE", "what the person may do: owner, or an act such as decide (repeatable)", "--may"),
) -> Answer[KeyList]:
    """Enrol the key of a person, of another clone or of a witness.

    The first person who is enrolled becomes an owner. From then on, decisions need a proof by an enrolled key.
    """
    kinds = {"ssh": ssh, "machine": machine, "witness": witness}
    kind, text = next(((kind, text) for kind, text in kinds.items() if text is not None), (None, None))
    if kind is None or text is None:
        raise invalid_option("give the key: --ssh FILE, --machine KEY or --witness KEY", [], option="--ssh")
    if roles and kind != "ssh":
        raise invalid_option("--may is for people", [], option="--may")
    public = _read_file(text) if kind == "ssh" or os.path.exists(text) else text
    return _answer(space.trust.enrol(owner, public, kind, roles=roles))


@command("key revoke")
def key_revoke(
    space: Space,
    fingerprint: str = arg("FINGERPRINT", "fingerprint of the key, as clia key list prints it"),
    reason: str = opt("TEXT", "why", "-m --message", former="--reason", default=""),
) -> Answer[KeyList]:
    """Revoke a key.

    What was recorded with it until now stays valid.
    """
    return _answer(space.trust.revoke(fingerprint, reason))


@command("key accept")
def key_accept(
    space: Space,
    finding: str = arg("FINDING", "code of the finding, as clia verify prints it"),
    about: str = arg("OBJECT", "commit or ref that the finding is about"),
    reason: str = opt("TEXT", "why it is acceptable", "-m --message", former="--reason", required=True),
) -> Answer[KeyList]:
    """Accept a finding of verify, which then lists it as accepted, by whom and why."""
    return _answer(space.trust.accept(finding, about, reason))


@command("key endorse")
def key_endorse(
    space: Space,
    reason: str = opt("TEXT", "why the history can be relied on", "-m --message", former="--reason", required=True),
) -> Answer[EndorsedHistory]:
    """Vouch for the history from before the space was signed.

    It makes a checkpoint and signs it with your key. clia verify then lists that history as endorsed, and by whom.
    """
    endorsed = space.witnesses.endorse(reason)
    return Answer(endorsed, f"endorsed by {endorsed.by} ({endorsed.strength}) up to {endorsed.checkpoint}")


@command("key allowed-signers")
def key_allowed_signers(space: Space) -> Answer[str]:
    """Print the file with which stock git verifies the commits of this space."""
    text = space.trust.allowed_signers()
    return Answer(text, lambda: write(text))


@command("policy show")
def policy_show(space: Space) -> Answer[dict[str, Any]]:
    """Print the policy.

    It says which acts need how many people, and how strong proofs.
    """
    policy = space.trust.policy()
    return Answer(policy, lambda: write(json.dumps(policy, indent=2) + "\n"))


@command("policy waiting")
def policy_waiting(space: Space) -> Answer[list[WaitingAct]]:
    """List acts that wait for more people.

    Some people have stated each of them. Another person does the same, with a key of their own.
    """
    acts = space.trust.waiting()

    def show() -> None:
        if not acts:
            show_line("nothing waits for more people")
            return
        rows = [(act.verb, act.about, f"{len(act.people)} of {act.threshold}", ", ".join(act.people), act.reason) for act in acts]
        show_rows(("act", "about", "", "people", "why"), rows, wrapped=("why",))

    return Answer(acts, show)


@command("policy set")
def policy_set(
    space: Space,
    file: str = arg("FILE", "policy as JSON, as clia policy show prints it; - for standard input"),
    reason: str = opt("TEXT", "why", "-m --message", former="--reason", default=""),
) -> Answer[dict[str, Any]]:
    """Replace the policy.

    The change must meet the policy that it replaces.
    """
    text = sys.stdin.read(_FILE_MAX) if file == "-" else _read_file(file)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as err:
        raise InvalidInput(f"{file}: not JSON: {err}", code="invalid-policy", fields={"path": file}) from None
    policy = space.trust.set_policy(value, reason)
    return Answer(policy, "the policy is in force")


def _answer(keys: KeyList) -> Answer[KeyList]:
    return Answer(keys, lambda: _show_keys(keys))


def _show_keys(keys: KeyList) -> None:
    if not keys.signing:
        write("the commits of this space are not signed\n")
        show_hints(["start with: clia key init"])
        return
    rows = []
    for key in keys.keys:
        state = styled("this clone", "green") if key.here and key.current else "" if key.current else styled("revoked", "dim")
        rows.append((key.owner, key.kind, key.fingerprint, " ".join(key.roles), state))
    show_rows(("owner", "kind", "fingerprint", "may", ""), rows, wrapped=("may",))
    if keys.problem:
        write(f"warning: {one_line(keys.problem)}\n", sys.stderr)
    _show_root(keys)


def _show_root(keys: KeyList) -> None:
    """The root, and whether this clone's key counts; on standard error."""
    if keys.root is not None:
        write(f"root {keys.root}: clia verify --root {keys.root}\n", sys.stderr)
    if keys.signing and keys.machine is not None and not keys.enrolled:
        write(f"the key of this clone is not enrolled yet: {keys.machine}\n", sys.stderr)
        show_hints(["enrol it in a clone that is: clia key enrol NAME --machine KEY"], sys.stderr)


def _show_key(key: Key) -> None:
    write(f"{key.text}\n")
    number = "the first key of this space" if len(key.chain) == 1 else f"key {len(key.chain)} of this space"
    lines = [f"fingerprint {key.fingerprint}; {number}"]
    lines += [] if key.mine else ["this clone does not have the private key (another clone may have it, or it is lost)"]
    lines += [f"served to peers at {key.url}"] if key.url else []
    write("".join(f"{one_line(line)}\n" for line in lines), sys.stderr)


def _read_file(path: str) -> str:
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            return file.read(_FILE_MAX)
    except (OSError, ValueError) as err:
        reason = err.strerror if isinstance(err, OSError) else str(err)
        raise FileError(f"{path}: {reason}", fields={"path": path, "reason": reason}) from None

"""A space's chain of keys: who it is, over the years.

Invariant: the first key binds itself to the space's id; each further one is signed by the key before it. A chain is only ever
continued: one that is shorter says nothing new, and one that departs from what was pinned is refused, whoever signed it.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from clia.errors import BadSignature, InvalidInput
from clia.federation.statements import refusal
from clia.values.canonical import canonical_bytes, text_digest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from clia.federation.signing import KeyRing, Verifier

TOKEN_TYPE = "clia-key"  # noqa: S105  # the type of a JWS
PROOF_TYPE = "clia-key-proof"
CHAIN_MAX = 1000
LINK_MAX = 4096
"""Characters of a link."""
_ADDRESS = re.compile(r"clia:([0-9a-f-]{36}):([A-Za-z0-9_-]{43})")


class Identity(NamedTuple):
    """What pins a space: its id, and a key of it."""

    space: str
    key: str

    @property
    def text(self) -> str:
        return f"clia:{self.space}:{self.key}"


def read_identity(text: str, verifier: Verifier) -> Identity:
    """What ``clia key show`` printed; ``InvalidInput`` where it is something else."""
    found = _ADDRESS.fullmatch(text.strip())
    if found is None or not verifier.is_key(found.group(2)):
        raise InvalidInput(
            "that is no key of a space",
            code="invalid-key",
            hints=["the other side's 'clia key show' prints it: clia:SPACE:KEY"],
            fields={"field": "key"},
        )
    return Identity(found.group(1), found.group(2))


def fingerprint(key: str) -> str:
    """A key for people to compare: 128 bits of its digest, in groups."""
    found = text_digest(key)[:32]
    return " ".join(found[at : at + 4] for at in range(0, 32, 4))


def link(ring: KeyRing, space: str, number: int, key: str, signer: str) -> str:
    """The token that makes a key the space's ``number``-th; the first signs itself, another one signs that it is there, too."""
    said: dict[str, object] = {"space": space, "number": number, "key": key}
    if key != signer:
        said["proof"] = ring.sign(key, PROOF_TYPE, _proof(space, number, signer))
    return ring.sign(signer, TOKEN_TYPE, canonical_bytes(said))


def _proof(space: str, number: int, signer: str) -> bytes:
    """What a new key signs, or anyone could make another's key their own."""
    return canonical_bytes({"space": space, "number": number, "after": signer})


def read_chain(tokens: Sequence[str], space: str, verifier: Verifier) -> tuple[str, ...]:
    """The keys of a chain, oldest first, each signed by the one before."""
    if len(tokens) > CHAIN_MAX or any(len(each) > LINK_MAX for each in tokens):
        raise refusal("malformed-key-chain", f"a chain has at most {CHAIN_MAX} keys")
    keys: list[str] = []
    for number, token in enumerate(tokens, 1):
        said = _said(token, verifier, keys)
        key, proof = said.get("key"), said.pop("proof", None)
        if said != {"space": space, "number": number, "key": key} or not isinstance(key, str) or not verifier.is_key(key):
            raise refusal("malformed-key-chain", f"link {number} does not bind a key to the space {space}", link=number)
        if key in keys:
            raise refusal("malformed-key-chain", f"link {number} goes back to a key that was replaced", link=number)
        if keys and not _is_proof(proof, key, _proof(space, number, keys[-1]), verifier):
            raise refusal(
                "malformed-key-chain", f"the key of link {number} does not say itself that it is the space's", link=number
            )
        keys.append(key)
    return tuple(keys)


def _is_proof(token: object, key: str, payload: bytes, verifier: Verifier) -> bool:
    try:
        return isinstance(token, str) and verifier.read(token, PROOF_TYPE, (key,)).payload == payload
    except BadSignature:
        return False


def _said(token: str, verifier: Verifier, keys: Sequence[str]) -> dict[str, object]:
    signed = verifier.read(token, TOKEN_TYPE, keys[-1:] or _Anyone())
    try:
        said = json.loads(signed.payload)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict) or (not keys and said.get("key") != signed.key):
        raise refusal("malformed-key-chain", "the first key of a chain signs itself")
    return said


class _Anyone:
    """The first key is whatever it says it is: pinning decides whether it is believed."""

    def __contains__(self, key: object) -> bool:
        return True


def continued(pinned: Sequence[str], tokens: Sequence[str], space: str, verifier: Verifier) -> tuple[str, ...]:
    """The chain after hearing of another: pinned keys, and those that continue them.

    ``pinned`` may start anywhere in the whole chain: whoever pins a peer late knows only its key of that day.
    """
    try:
        whole = read_chain(tokens, space, verifier)
    except BadSignature as err:
        raise refusal("malformed-key-chain", f"a key is not signed by the one before it: {err.message}") from None
    known = list(pinned)
    start = whole.index(known[0]) if known[0] in whole else -1
    theirs = list(whole[start:]) if start >= 0 else []
    shared = min(len(theirs), len(known))
    if start < 0 or theirs[:shared] != known[:shared]:
        raise refusal("key-not-continued", "its keys do not continue the chain that was pinned", pinned=known[-1])
    return tuple(known + theirs[shared:])

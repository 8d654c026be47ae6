"""A space's chain of keys: who it is, over the years.

Invariant: the first key binds itself to the space's id; each further one is signed by the key before it. A chain is only ever
continued: one that is shorter says nothing new, and one that departs from what was pinned is refused, whoever signed it.

=====

The keys of this space: its own chain, in git, and the private halves that this clone has.

Invariant: the chain only grows, by links that the key before has signed; it starts anew only where somebody says that the key
is lost, and then the space is somebody new to every peer.
"""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import NamedTuple

from clia.errors import BadSignature, CliaError, Conflict, Denied, InvalidInput, NotFound
from clia.federation.model import Key
from clia.federation.statements import refusal
from clia.space.adoption import KEYS_LOCK
from clia.values import refs as names
from clia.values.canonical import canonical_bytes, text_digest
from clia.values.commit_messages import check_flag, compose, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from clia.federation.signing import Ed25519Verifier, KeyFiles
    from clia.git.graph import GitGraph
    from clia.space.core import Core
    from clia.space.envelope import Envelope

KEY_TOKEN_TYPE = "clia-key"  # noqa: S105  # the type of a JWS
PROOF_TYPE = "clia-key-proof"
CHAIN_MAX = 1000
LINK_MAX = 4096
"""Characters of a link."""
_IDENTITY = re.compile(r"clia:([0-9a-f-]{36}):([A-Za-z0-9_-]{43})")


class SpaceIdentity(NamedTuple):
    """What pins a space: its id, and a key of it."""

    space: str
    key: str

    @property
    def text(self) -> str:
        return f"clia:{self.space}:{self.key}"


def read_identity(text: str, verifier: Ed25519Verifier) -> SpaceIdentity:
    """What ``clia key show`` printed; ``InvalidInput`` where it is something else."""
    match_ = _IDENTITY.fullmatch(text.strip())
    if match_ is None or not verifier.is_key(match_.group(2)):
        raise InvalidInput(
            "that is no key of a space",
            code="invalid-key",
            hints=["the other side's 'clia key show' prints it: clia:SPACE:KEY"],
            fields={"field": "key"},
        )
    return SpaceIdentity(match_.group(1), match_.group(2))


def fingerprint(key: str) -> str:
    """A key for people to compare: 128 bits of its digest, in groups."""
    found = text_digest(key)[:32]
    return " ".join(found[at : at + 4] for at in range(0, 32, 4))


def sign_link(ring: KeyFiles, space: str, number: int, key: str, signer: str) -> str:
    """The token that makes a key the space's ``number``-th; the first signs itself, another one signs that it is there, too."""
    said: dict[str, object] = {"space": space, "number": number, "key": key}
    if key != signer:
        said["proof"] = ring.sign(key, PROOF_TYPE, _proof_payload(space, number, signer))
    return ring.sign(signer, KEY_TOKEN_TYPE, canonical_bytes(said))


def _proof_payload(space: str, number: int, signer: str) -> bytes:
    """What a new key signs, or anyone could make another's key their own."""
    return canonical_bytes({"space": space, "number": number, "after": signer})


def read_chain(tokens: Sequence[str], space: str, verifier: Ed25519Verifier) -> tuple[str, ...]:
    """The keys of a chain, oldest first, each signed by the one before."""
    if len(tokens) > CHAIN_MAX or any(len(each) > LINK_MAX for each in tokens):
        raise refusal("malformed-key-chain", f"a chain has at most {CHAIN_MAX} keys")
    keys: list[str] = []
    for number, token in enumerate(tokens, 1):
        said = _link_body(token, verifier, keys)
        key, proof = said.get("key"), said.pop("proof", None)
        if said != {"space": space, "number": number, "key": key} or not isinstance(key, str) or not verifier.is_key(key):
            raise refusal("malformed-key-chain", f"link {number} does not bind a key to the space {space}", link=number)
        if key in keys:
            raise refusal("malformed-key-chain", f"link {number} goes back to a key that was replaced", link=number)
        if keys and not _is_proof(proof, key, _proof_payload(space, number, keys[-1]), verifier):
            raise refusal(
                "malformed-key-chain", f"the key of link {number} does not say itself that it is the space's", link=number
            )
        keys.append(key)
    return tuple(keys)


def _is_proof(token: object, key: str, payload: bytes, verifier: Ed25519Verifier) -> bool:
    try:
        return isinstance(token, str) and verifier.read(token, PROOF_TYPE, (key,)).payload == payload
    except BadSignature:
        return False


def _link_body(token: str, verifier: Ed25519Verifier, keys: Sequence[str]) -> dict[str, object]:
    signed = verifier.read(token, KEY_TOKEN_TYPE, keys[-1:] or _AnyKey())
    try:
        said = json.loads(signed.payload)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict) or (not keys and said.get("key") != signed.key):
        raise refusal("malformed-key-chain", "the first key of a chain signs itself")
    return said


class _AnyKey:
    """The first key is whatever it says it is: pinning decides whether it is believed."""

    def __contains__(self, key: object) -> bool:
        return True


def continue_chain(pinned: Sequence[str], tokens: Sequence[str], space: str, verifier: Ed25519Verifier) -> tuple[str, ...]:
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


KEY_TRAILER = "Clia-Key"


class SpaceKeys:
    def __init__(self, core: Core, envelope: Envelope, ring: KeyFiles, verifier: Ed25519Verifier) -> None:
        self._core = core
        self._envelope = envelope
        self._ring = ring
        self._verifier = verifier

    def chain(self) -> tuple[str, ...]:
        """Every key so far, oldest first; none where the space has never spoken."""
        tip = self._core.refs.get(names.KEYS)
        return () if tip is None else read_chain(key_tokens(self._core.graph, tip), self._core.space_id, self._verifier)

    def continues(self, tip: str) -> bool:
        """Whether a commit ends a chain of keys of this space that goes on from the one here."""
        try:
            theirs = read_chain(key_tokens(self._core.graph, tip), self._core.space_id, self._verifier)
            ours = self.chain()
        except CliaError:
            return False
        return bool(theirs) and theirs[: len(ours)] == ours

    def show(self, url: str | None = None) -> Key:
        """The space's key; its first is made when it is first asked for."""
        chain = self.chain() or self._begin()
        newest = chain[-1]
        return Key(
            SpaceIdentity(self._core.space_id, newest).text,
            self._core.space_id,
            newest,
            self._ring.has(newest),
            chain,
            fingerprint(newest),
            url,
        )

    def current(self) -> str:
        """The key that statements are signed with; ``NotFound`` where another clone has it."""
        key = self.show().key
        if not self._ring.has(key):
            raise _no_private_key(key)
        return key

    def rotate(self, *, lost: bool = False) -> Key:
        """A new key, signed by the one before; with ``lost`` a new identity, which every peer has to pin anew."""
        core = self._core
        check_flag(lost, "lost")
        with self._envelope.among_others(), core.locks.hold(KEYS_LOCK):
            tip, chain = core.refs.get(names.KEYS), self._chain_unless(broken=lost)
            mine = bool(chain) and self._ring.has(chain[-1])
            full = len(chain) >= CHAIN_MAX
            if lost and mine and not full:
                raise Conflict(
                    "the key is here: it is not lost",
                    code="key-not-lost",
                    hints=["clia key rotate replaces it, and peers follow by themselves"],
                )
            if chain and not mine and not lost:
                raise _no_private_key(chain[-1])
            if full and not lost:
                raise Conflict(
                    f"a chain has at most {CHAIN_MAX} keys",
                    code="too-many-keys",
                    hints=["clia key rotate --lost begins a new identity"],
                )
            if lost or not chain:
                self._append(None, tip, 1, "a new identity" if tip else "first key")
            else:
                self._append(chain[-1], tip, len(chain) + 1, f"key {len(chain) + 1} replaces {chain[-1]}")
                for key in chain:  # one that died here before may have left older ones
                    self._ring.forget(key)
        return self.show()

    def _chain_unless(self, *, broken: bool) -> tuple[str, ...]:
        """The chain; where it may be ``broken``, one that cannot be read is none."""
        try:
            return self.chain()
        except Denied:
            if not broken:
                raise
            return ()

    def _begin(self) -> tuple[str, ...]:
        core = self._core
        with self._envelope.among_others(), core.locks.hold(KEYS_LOCK):
            if not self.chain():
                self._append(None, core.refs.get(names.KEYS), 1, "first key")
        return self.chain()

    def _append(self, signer: str | None, tip: str | None, number: int, subject: str) -> None:
        core = self._core
        made = self._ring.make()
        core.reached("key-made")
        token = sign_link(self._ring, core.space_id, number, made, signer or made)
        by = core.person_stamp()
        parents = [tip] if tip and signer else []  # a new identity starts a chain of its own
        commit = core.objects.write_commit(core.empty_tree(), parents, by, by, compose(subject, [(KEY_TRAILER, token)], "key"))
        core.refs.move(names.KEYS, tip, commit, "clia: key")
        core.reached("committed")


def key_tokens(graph: GitGraph, tip: str) -> list[str]:
    """The links of a chain of keys, oldest first."""

    def each() -> Iterator[str]:
        for commit in islice(graph.first_parents(tip), CHAIN_MAX + 1):
            yield from (value[: LINK_MAX + 1] for key, value in parse(commit.message)[1] if key == KEY_TRAILER)

    return list(each())[::-1]


def _no_private_key(key: str) -> NotFound:
    return NotFound(
        "this clone does not have the private key of the space",
        code="no-private-key",
        hints=["do it from the clone that has it, or, if it is lost: clia key rotate --lost"],
        fields={"key": key},
    )

"""The key chain of a space, and the private keys of this clone.

The chain shares its ref with the keys of machines and people (``clia.trust``): commits without a link are skipped here.

Invariant: the first key binds itself to the space's id; each further key is signed by the one before it. A chain only grows: a
chain that departs from the pinned one is refused. It is restarted only when a key is declared lost, and then every peer must pin
the space again.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import NamedTuple

from clia.errors import BadSignature, CliaError, Conflict, Denied, InvalidInput
from clia.federation.model import Key
from clia.federation.signing import no_private_key
from clia.federation.statements import refusal
from clia.space.model import json_object
from clia.space.remotes import KEYS_LOCK
from clia.values import refs as names
from clia.values.canonical import canonical_bytes, text_digest
from clia.values.commit_messages import check_flag, compose, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from clia.federation.signing import Ed25519Verifier, KeyFiles
    from clia.git.graph import GitGraph
    from clia.space.core import Core
    from clia.space.envelope import Envelope

KEY_TRAILER, START_TRAILER = "Clia-Key", "Clia-Key-Start"
KEY_TOKEN_TYPE = "clia-key"  # noqa: S105  # the type of a JWS
PROOF_TYPE = "clia-key-proof"
CHAIN_MAX, _COMMITS_MAX = 1000, 20_000
LINK_MAX = 4096
"""Maximum length of a link, in characters."""
_IDENTITY = re.compile(r"clia:([0-9a-f-]{36}):([A-Za-z0-9_-]{43})")


class SpaceIdentity(NamedTuple):
    """A space's id and one of its keys, as peers pin it."""

    space: str
    key: str

    @property
    def text(self) -> str:
        return f"clia:{self.space}:{self.key}"


def read_identity(text: str, verifier: Ed25519Verifier) -> SpaceIdentity:
    """Parse the output of ``clia key show``; ``InvalidInput`` for anything else."""
    match_ = _IDENTITY.fullmatch(text.strip())
    if match_ is None or not verifier.is_key(match_.group(2)):
        hints = ["'clia key show' in the other space prints it: clia:SPACE:KEY"]
        raise InvalidInput("not the key of a space", code="invalid-key", hints=hints, fields={"field": "key"})
    return SpaceIdentity(match_.group(1), match_.group(2))


def fingerprint(key: str) -> str:
    """128 bits of a key's digest in groups, for people to compare."""
    digits = text_digest(key)[:32]
    return " ".join(digits[at : at + 4] for at in range(0, 32, 4))


def sign_link(ring: KeyFiles, space: str, number: int, key: str, signer: str) -> str:
    """The token that adds a space's ``number``-th key. The first key signs itself; a later one also signs a proof."""
    body: dict[str, object] = {"space": space, "number": number, "key": key}
    if key != signer:
        body["proof"] = ring.sign(key, PROOF_TYPE, _proof_payload(space, number, signer))
    return ring.sign(signer, KEY_TOKEN_TYPE, canonical_bytes(body))


def _proof_payload(space: str, number: int, signer: str) -> bytes:
    """The proof that a new key signs, so that a space cannot claim the key of another."""
    return canonical_bytes({"space": space, "number": number, "after": signer})


def read_chain(tokens: Sequence[str], space: str, verifier: Ed25519Verifier) -> tuple[str, ...]:
    """Verify a chain and return its keys, oldest first."""
    if len(tokens) > CHAIN_MAX or any(len(token) > LINK_MAX for token in tokens):
        raise _malformed(f"a chain has at most {CHAIN_MAX} keys")
    keys: list[str] = []
    for number, token in enumerate(tokens, 1):
        body = _link_body(token, verifier, keys)
        key, proof = body.get("key"), body.pop("proof", None)
        if body != {"space": space, "number": number, "key": key} or not isinstance(key, str) or not verifier.is_key(key):
            raise _malformed(f"link {number} does not bind a key to the space {space}", link=number)
        if key in keys:
            raise _malformed(f"link {number} reuses a replaced key", link=number)
        if keys and not _is_proof(proof, key, _proof_payload(space, number, keys[-1]), verifier):
            raise _malformed(f"link {number} has no valid proof by its own key", link=number)
        keys.append(key)
    return tuple(keys)


def _malformed(message: str, **fields: int) -> Denied:
    return refusal("malformed-key-chain", message, **fields)


def _is_proof(token: object, key: str, payload: bytes, verifier: Ed25519Verifier) -> bool:
    try:
        return isinstance(token, str) and verifier.read(token, PROOF_TYPE, (key,)).payload == payload
    except BadSignature:
        return False


def _link_body(token: str, verifier: Ed25519Verifier, keys: Sequence[str]) -> dict[str, object]:
    signed = verifier.read(token, KEY_TOKEN_TYPE, keys[-1:] or _AnyKey())
    body = json_object(signed.payload)
    if body is None or (not keys and body.get("key") != signed.key):
        raise _malformed("the first key of a chain must sign itself")
    return body


class _AnyKey:
    """A set that contains every key: the first key of a chain is accepted, and pinning decides whether it is trusted."""

    def __contains__(self, key: object) -> bool:
        return True


def continue_chain(pinned: Sequence[str], tokens: Sequence[str], space: str, verifier: Ed25519Verifier) -> tuple[str, ...]:
    """The pinned keys and those that continue them in another chain.

    ``pinned`` may start anywhere in the whole chain: it starts with the key that was current when the peer was pinned.
    """
    try:
        full_chain = read_chain(tokens, space, verifier)
    except BadSignature as err:
        raise _malformed(f"a key is not signed by the one before it: {err.message}") from None
    theirs = full_chain[full_chain.index(pinned[0]) :] if pinned[0] in full_chain else ()
    shared = min(len(theirs), len(pinned))
    if not theirs or theirs[:shared] != tuple(pinned[:shared]):
        raise refusal("key-not-continued", "the peer's keys do not continue the pinned chain", pinned=pinned[-1])
    return (*pinned, *theirs[shared:])


class SpaceKeys:
    def __init__(self, core: Core, envelope: Envelope, ring: KeyFiles, verifier: Ed25519Verifier) -> None:
        self._core = core
        self._envelope = envelope
        self._ring = ring
        self._verifier = verifier

    def chain(self) -> tuple[str, ...]:
        """The keys of this space, oldest first; empty if it has none yet."""
        tip = self._core.refs.get(names.KEYS)
        return () if tip is None else read_chain(key_tokens(self._core.graph, tip), self._core.space_id, self._verifier)

    def continues(self, tip: str) -> bool:
        """Whether a commit is the tip of a chain that continues this space's chain."""
        try:
            theirs = read_chain(key_tokens(self._core.graph, tip), self._core.space_id, self._verifier)
            ours = self.chain()
        except CliaError:
            return False
        tip_here = self._core.refs.get(names.KEYS)
        grows = bool(theirs) or tip_here is None or self._core.graph.descends(tip, tip_here)
        return grows and theirs[: len(ours)] == ours

    def show(self, url: str | None = None) -> Key:
        """The space's current key; the first one is created on demand."""
        core, chain = self._core, self.chain()
        if not chain:
            with self._envelope.among_others(), core.locks.hold(KEYS_LOCK):
                if not self.chain():
                    self._append(None, core.refs.get(names.KEYS), 1, "first key")
            chain = self.chain()
        space, newest = core.space_id, chain[-1]
        return Key(SpaceIdentity(space, newest).text, space, newest, self._ring.has(newest), chain, fingerprint(newest), url)

    def current(self) -> str:
        """The key that signs statements; ``NotFound`` if only another clone has it."""
        key = self.show().key
        if not self._ring.has(key):
            raise no_private_key(key)
        return key

    def rotate(self, *, lost: bool = False) -> Key:
        """Replace the key with one that it signs; with ``lost``, start a new chain that every peer must pin again."""
        core = self._core
        check_flag(lost, "lost")
        with self._envelope.among_others(), core.locks.hold(KEYS_LOCK):
            tip = core.refs.get(names.KEYS)
            try:
                chain = self.chain()
            except Denied:
                if not lost:
                    raise
                chain = ()
            has_key = bool(chain) and self._ring.has(chain[-1])
            full = len(chain) >= CHAIN_MAX
            if lost and has_key and not full:
                hints = ["replace it with: clia key rotate (peers follow automatically)"]
                raise Conflict("this clone has the key, so it is not lost", code="key-not-lost", hints=hints)
            if chain and not has_key and not lost:
                raise no_private_key(chain[-1])
            if full and not lost:
                hints = ["start a new chain with: clia key rotate --lost"]
                raise Conflict(f"a chain has at most {CHAIN_MAX} keys", code="too-many-keys", hints=hints)
            if lost or not chain:
                self._append(None, tip, 1, "a new identity" if tip else "first key")
            else:
                self._append(chain[-1], tip, len(chain) + 1, f"key {len(chain) + 1} replaces {chain[-1]}")
                for key in chain:  # a process that died may have left older ones
                    self._ring.forget(key)
        return self.show()

    def _append(self, signer: str | None, tip: str | None, number: int, subject: str) -> None:
        core = self._core
        key = self._ring.make()
        core.reached("key-made")
        token = sign_link(self._ring, core.space_id, number, key, signer or key)
        by = core.person_stamp()
        # A new identity starts a new chain, after whatever else the ref has.
        links = [(KEY_TRAILER, token), *([] if signer else [(START_TRAILER, core.space_id)])]
        message = compose(subject, links, "key")
        commit = core.objects.write_commit(core.empty_tree(), [tip] if tip else [], by, by, message)
        core.refs.move(names.KEYS, tip, commit, "clia: key")
        core.reached("committed")


def key_tokens(graph: GitGraph, tip: str) -> list[str]:
    """The links of a key chain, oldest first: those since the newest start."""
    tokens: list[str] = []
    for commit in islice(graph.first_parents(tip), _COMMITS_MAX):
        trailers = parse(commit.message)[1]
        tokens += [value[: LINK_MAX + 1] for key, value in trailers if key == KEY_TRAILER]
        if len(tokens) > CHAIN_MAX or any(key == START_TRAILER for key, _ in trailers):
            break
    return tokens[::-1]

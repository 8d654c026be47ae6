"""The keys of this space: its own chain, in git, and the private halves that this clone has.

Invariant: the chain only grows, by links that the key before has signed; it starts anew only where somebody says that the key
is lost, and then the space is somebody new to every peer.
"""

from __future__ import annotations

from itertools import islice

from clia.errors import CliaError, Conflict, Denied, NotFound
from clia.federation.keychain import CHAIN_MAX, LINK_MAX, Identity, fingerprint, link, read_chain
from clia.federation.model import Key
from clia.space.adoption import KEYS_LOCK
from clia.values import refs as names
from clia.values.commit_messages import check_flag, compose, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from clia.federation.signing import KeyRing, Verifier
    from clia.git.graph import GitGraph
    from clia.space.core import Core
    from clia.space.envelope import Envelope

KEY = "Clia-Key"


class Keys:
    def __init__(self, core: Core, envelope: Envelope, ring: KeyRing, verifier: Verifier) -> None:
        self._core = core
        self._envelope = envelope
        self._ring = ring
        self._verifier = verifier

    def chain(self) -> tuple[str, ...]:
        """Every key so far, oldest first; none where the space has never spoken."""
        tip = self._core.refs.get(names.KEYS)
        return () if tip is None else read_chain(tokens(self._core.graph, tip), self._core.space_id, self._verifier)

    def continues(self, tip: str) -> bool:
        """Whether a commit ends a chain of keys of this space that goes on from the one here."""
        try:
            theirs = read_chain(tokens(self._core.graph, tip), self._core.space_id, self._verifier)
            ours = self.chain()
        except CliaError:
            return False
        return bool(theirs) and theirs[: len(ours)] == ours

    def show(self, url: str | None = None) -> Key:
        """The space's key; its first is made when it is first asked for."""
        chain = self.chain() or self._begin()
        newest = chain[-1]
        return Key(
            Identity(self._core.space_id, newest).text,
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
            raise _elsewhere(key)
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
                raise _elsewhere(chain[-1])
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
                for each in chain:  # one that died here before may have left older ones
                    self._ring.forget(each)
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
        token = link(self._ring, core.space_id, number, made, signer or made)
        by = core.person_stamp()
        parents = [tip] if tip and signer else []  # a new identity starts a chain of its own
        commit = core.objects.write_commit(core.empty_tree(), parents, by, by, compose(subject, [(KEY, token)], "key"))
        core.refs.move(names.KEYS, tip, commit, "clia: key")
        core.reached("committed")


def tokens(graph: GitGraph, tip: str) -> list[str]:
    """The links of a chain of keys, oldest first."""

    def each() -> Iterator[str]:
        for commit in islice(graph.first_parents(tip), CHAIN_MAX + 1):
            yield from (value[: LINK_MAX + 1] for key, value in parse(commit.message)[1] if key == KEY)

    return list(each())[::-1]


def _elsewhere(key: str) -> NotFound:
    return NotFound(
        "this clone does not have the private key of the space",
        code="no-private-key",
        hints=["do it from the clone that has it, or, if it is lost: clia key rotate --lost"],
        fields={"key": key},
    )

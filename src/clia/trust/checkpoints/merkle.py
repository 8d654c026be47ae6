"""Merkle trees and their proofs, as RFC 6962 defines them.

Invariant: a proof is accepted only if it has exactly the hashes that its sizes ask for. Nothing here knows what a leaf means.
"""

from __future__ import annotations

import hashlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

HASH_SIZE = 32
_LEAF, _NODE = b"\x00", b"\x01"


def leaf_hash(data: bytes) -> bytes:
    """The hash of a leaf."""
    return hashlib.sha256(_LEAF + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of two subtrees."""
    return hashlib.sha256(_NODE + left + right).digest()


def root_hash(leaves: Iterable[bytes]) -> bytes:
    """The root of a tree, from the hashes of its leaves in order."""
    stack: list[tuple[int, bytes]] = []  # complete subtrees: their size and hash
    for leaf in leaves:
        size, node = 1, leaf
        while stack and stack[-1][0] == size:
            node = node_hash(stack.pop()[1], node)
            size *= 2
        stack.append((size, node))
    if not stack:
        return hashlib.sha256(b"").digest()
    node = stack.pop()[1]
    while stack:
        node = node_hash(stack.pop()[1], node)
    return node


def inclusion_proof(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """The hashes that lead from a leaf to the root (section 2.1.1)."""
    if len(leaves) <= 1:
        return []
    split = _split(len(leaves))
    if index < split:
        return [*inclusion_proof(leaves[:split], index), root_hash(leaves[split:])]
    return [*inclusion_proof(leaves[split:], index - split), root_hash(leaves[:split])]


def consistency_proof(leaves: Sequence[bytes], old_size: int) -> list[bytes]:
    """The hashes that show that the tree of the first ``old_size`` leaves is a prefix of this one (section 2.1.2)."""
    return _subproof(leaves, old_size, whole=True) if 0 < old_size < len(leaves) else []


def _subproof(leaves: Sequence[bytes], old_size: int, *, whole: bool) -> list[bytes]:
    if old_size == len(leaves):
        return [] if whole else [root_hash(leaves)]
    split = _split(len(leaves))
    if old_size <= split:
        return [*_subproof(leaves[:split], old_size, whole=whole), root_hash(leaves[split:])]
    return [*_subproof(leaves[split:], old_size - split, whole=False), root_hash(leaves[:split])]


def _split(size: int) -> int:
    """The largest power of two that is smaller than a size."""
    return 1 << ((size - 1).bit_length() - 1)


def is_included(leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> bool:
    """Whether a proof shows that a leaf is in a tree (RFC 9162, section 2.1.3.2)."""
    if not 0 <= index < size:
        return False
    position, last, node = index, size - 1, leaf
    for sibling in proof:
        if last == 0:
            return False
        if position & 1 or position == last:
            node = node_hash(sibling, node)
            while not position & 1 and position:
                position, last = position >> 1, last >> 1
        else:
            node = node_hash(node, sibling)
        position, last = position >> 1, last >> 1
    return last == 0 and node == root


def is_consistent(old_size: int, size: int, proof: Sequence[bytes], old_root: bytes, root: bytes) -> bool:
    """Whether a proof shows that one tree is a prefix of another (RFC 9162, section 2.1.4.2). Every tree extends the empty one."""
    if not 0 <= old_size <= size:
        return False
    if old_size in (0, size):
        return not proof and (old_size == 0 or old_root == root)
    nodes = [old_root, *proof] if old_size & (old_size - 1) == 0 else list(proof)
    if not nodes:
        return False
    position, last = old_size - 1, size - 1
    while position & 1:
        position, last = position >> 1, last >> 1
    old_node = node = nodes[0]
    for sibling in nodes[1:]:
        if last == 0:
            return False
        if position & 1 or position == last:
            old_node, node = node_hash(sibling, old_node), node_hash(sibling, node)
            while not position & 1 and position:
                position, last = position >> 1, last >> 1
        else:
            node = node_hash(node, sibling)
        position, last = position >> 1, last >> 1
    return last == 0 and (old_node, node) == (old_root, root)

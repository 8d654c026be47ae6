"""Merkle trees: the vectors of Certificate Transparency, and proofs against a second, direct implementation of RFC 6962."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clia.trust.checkpoints.merkle import (
    consistency_proof,
    inclusion_proof,
    is_consistent,
    is_included,
    leaf_hash,
    root_hash,
)

LEAVES = [
    bytes.fromhex(text) for text in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657", bytes(range(0x60, 0x70)).hex())
]
ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
CONSISTENCY = {
    (1, 8): [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ],
    (6, 8): [
        "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
    (2, 5): [
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ],
}
HASHES = [leaf_hash(leaf) for leaf in LEAVES]


def direct_root(leaves: list[bytes]) -> bytes:
    """MTH of RFC 6962, word for word."""
    if len(leaves) < 2:
        return hashlib.sha256(b"\0" + leaves[0]).digest() if leaves else hashlib.sha256().digest()
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    return hashlib.sha256(b"\1" + direct_root(leaves[:split]) + direct_root(leaves[split:])).digest()


@pytest.mark.parametrize("size", range(9))
def test_roots_are_those_of_certificate_transparency(size: int) -> None:
    assert root_hash(HASHES[:size]).hex() == ROOTS[size]


@pytest.mark.parametrize(("sizes", "proof"), CONSISTENCY.items())
def test_consistency_proofs_are_those_of_certificate_transparency(sizes: tuple[int, int], proof: list[str]) -> None:
    old, new = sizes
    assert [node.hex() for node in consistency_proof(HASHES[:new], old)] == proof
    assert is_consistent(old, new, [bytes.fromhex(node) for node in proof], bytes.fromhex(ROOTS[old]), bytes.fromhex(ROOTS[new]))


def test_every_proof_of_small_trees_verifies_and_no_changed_one_does() -> None:
    leaves = [bytes([number]) for number in range(19)]
    hashes = [leaf_hash(leaf) for leaf in leaves]
    for size in range(1, 20):
        root = direct_root(leaves[:size])
        for index in range(size):
            proof = inclusion_proof(hashes[:size], index)
            assert is_included(hashes[index], index, size, proof, root)
            assert not is_included(hashes[index], index, size, [*proof, root], root)
            assert not is_included(hashes[index] if size > 1 else root, index + 1, size, proof, root)
            assert not is_included(b"x" * 32, index, size, proof, root)
        for old in range(size + 1):
            old_root, proof = direct_root(leaves[:old]), consistency_proof(hashes[:size], old)
            assert is_consistent(old, size, proof, old_root, root)
            assert not is_consistent(old, size, [*proof, root], old_root, root)
            if 0 < old < size:
                assert not is_consistent(old, size, proof[:-1], old_root, root)
                assert not is_consistent(old, size, proof, direct_root([b"other", *leaves[1:old]]), root)
                assert not is_consistent(old, size, proof, old_root, direct_root([*leaves[: size - 1], b"other"]))


@given(st.lists(st.binary(max_size=8), max_size=70), st.data())
def test_a_proof_of_a_prefix_never_proves_another_tree(leaves: list[bytes], data: st.DataObject) -> None:
    hashes = [leaf_hash(leaf) for leaf in leaves]
    old = data.draw(st.integers(0, len(leaves)))
    changed = data.draw(st.lists(st.binary(max_size=8), min_size=old, max_size=old))
    assert root_hash(hashes) == direct_root(leaves)
    accepted = is_consistent(old, len(leaves), consistency_proof(hashes, old), direct_root(changed), root_hash(hashes))
    assert accepted == (changed == leaves[:old] or not old)


def test_sizes_that_make_no_sense_are_refused() -> None:
    assert not is_consistent(5, 4, [], b"", b"")
    assert not is_consistent(-1, 4, [], b"", b"")
    assert not is_included(b"", 4, 4, [], b"")
    assert not is_included(b"", -1, 4, [], b"")

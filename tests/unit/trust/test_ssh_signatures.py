"""SSH signatures: ours are accepted by ``ssh-keygen``, its are accepted here, and nothing else is."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from clia.errors import BadSignature, InvalidInput
from clia.trust.ssh_format import LockedKey, Malformed, armored, private_key_file, read_private_key, read_public_key, unarmored
from clia.trust.ssh_signatures import CLIA, GIT, LABEL, SIGNATURE_MAX, signer_of, verify_signature

if TYPE_CHECKING:
    from pathlib import Path

SIGNER = signer_of(b"\1" * 32)


def keygen(*words: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["ssh-keygen", *words], input=data, capture_output=True, check=False)


def signed_by(path: Path, data: bytes, namespace: str = CLIA) -> str:
    result = keygen("-q", "-Y", "sign", "-n", namespace, "-f", str(path), data=data)
    assert result.returncode == 0, result.stderr
    return result.stdout.decode()


@pytest.fixture(params=["ed25519", "ecdsa", "ecdsa-384"])
def key(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    kind, _, bits = request.param.partition("-")
    keygen("-q", "-t", kind, *(["-b", bits] if bits else []), "-N", "", "-f", str(tmp_path / "key"))
    return tmp_path / "key"


def test_ssh_keygen_accepts_our_signature_in_its_namespace_only(tmp_path: Path) -> None:
    (tmp_path / "allowed").write_text(f"scout {SIGNER.public.text}\n")
    (tmp_path / "signature").write_text(SIGNER.sign(b"data"))
    words = ("-Y", "verify", "-f", str(tmp_path / "allowed"), "-I", "scout", "-s", str(tmp_path / "signature"), "-n")
    assert keygen(*words, GIT, data=b"data").returncode == 0
    assert keygen(*words, CLIA, data=b"data").returncode != 0
    assert keygen(*words, GIT, data=b"date").returncode != 0


def test_ssh_keygen_reads_our_private_key(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(private_key_file(b"\1" * 32, SIGNER.public.blob[-32:], "machine"))
    path.chmod(0o600)
    assert keygen("-y", "-f", str(path)).stdout.decode().split()[:2] == SIGNER.public.text.split()
    assert verify_signature(signed_by(path, b"data"), b"data", CLIA).key == SIGNER.public
    assert SIGNER.public.fingerprint.encode() in keygen("-l", "-f", str(path)).stdout


def test_a_signature_by_ssh_keygen_holds_for_its_data_and_namespace(key: Path) -> None:
    text = signed_by(key, b"data")
    assert verify_signature(text, b"data", CLIA).key == read_public_key(key.with_suffix(".pub").read_text())
    with pytest.raises(BadSignature) as changed:
        verify_signature(text, b"date", CLIA)
    with pytest.raises(BadSignature) as namespace:
        verify_signature(text, b"data", GIT)
    assert (changed.value.code, namespace.value.code) == ("bad-signature", "wrong-namespace")


def test_every_changed_byte_is_refused() -> None:
    blob = unarmored(SIGNER.sign(b"data"), LABEL, SIGNATURE_MAX)
    for at in range(len(blob)):
        changed = blob[:at] + bytes([blob[at] ^ 1]) + blob[at + 1 :]
        with pytest.raises(BadSignature):
            verify_signature(armored(changed, LABEL), b"data", GIT)
    for text in (armored(blob + b"\0", LABEL), armored(blob[:-1], LABEL), "", "x" * 100, armored(b"\0" * SIGNATURE_MAX * 2, LABEL)):
        with pytest.raises(BadSignature) as refused:
            verify_signature(text, b"data", GIT)
        assert refused.value.code == "malformed-signature"


def test_a_certificate_is_read_and_its_issuer_checked(tmp_path: Path) -> None:
    for name in ("machine", "agent"):
        keygen("-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name))
    keygen("-q", "-s", str(tmp_path / "machine"), "-I", "scout", "-n", "scout", "-V", "+1h", str(tmp_path / "agent.pub"))
    signature = verify_signature(signed_by(tmp_path / "agent-cert.pub", b"data"), b"data", CLIA)
    assert signature.certificate is not None
    assert signature.certificate.principals == ("scout",)
    assert signature.certificate.issuer == read_public_key((tmp_path / "machine.pub").read_text())
    assert signature.key == read_public_key((tmp_path / "agent.pub").read_text())


def test_a_key_with_a_passphrase_is_locked(tmp_path: Path) -> None:
    keygen("-q", "-t", "ed25519", "-N", "secret", "-f", str(tmp_path / "key"))
    with pytest.raises(LockedKey):
        read_private_key((tmp_path / "key").read_text())
    with pytest.raises(Malformed):
        read_private_key("not a key")


@pytest.mark.parametrize(
    "text", ["", "ssh-ed25519", "ssh-ed25519 AAAA", "ssh-rsa AAAAB3NzaC1yc2E=", 'command="x" ssh-ed25519 AAAA', "x" * 9999]
)
def test_what_is_not_a_public_key_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_public_key(text)
    assert refused.value.code == "invalid-key"

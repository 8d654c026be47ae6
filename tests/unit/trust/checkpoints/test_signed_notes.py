"""Signed notes and cosignatures: published vectors of other implementations, and what is refused."""

from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from clia.errors import BadSignature, InvalidInput
from clia.trust.checkpoints.signed_notes import (
    COSIGNATURE,
    CheckpointHead,
    NoteKey,
    SignedNote,
    check_key_name,
    cosign,
    read_head,
    read_note,
    read_note_key,
    read_signature_lines,
    sign_note,
    verified_by,
)

# golang.org/x/mod/sumdb/note
GO_KEY = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
GO_SEED = base64.b64decode("AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz")[1:]
GO_TEXT = "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n"
GO_NOTE = (
    f"{GO_TEXT}\n— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
)
# A checkpoint of a public log, with the cosignature of a public witness.
REAL_KEY = "remora.n621.de+da77ade7+BOvN63jn/bLvkieywe8R6UYAtVtNbZpXh34x7onlmtw2"
REAL_TEXT = "arche2025h1.staging.ct.transparency.dev\n1432088532\nU7WM79jrzyhGZ5/GUBTpM7NzwdyfFx61t3RovgcC4Ro=\n"
REAL_NOTE = f"""{REAL_TEXT}
— witness.stagemole.eu Z/euoAAAAABqEiEgw0i+7g2ENfDAWHmtRzCfKTHSDwYDJA2NmKeGi9Y8FtEyOUvVr+AJmIY/2TUFucgKi7lI7cUiOvKFYe/TmN9DAg==
— remora.n621.de 2net5wAAAABqEiEgPlfF3V06o0Y+fHM+J5J9s27wgxxcOVSpZ/2g/KSiXCg9DEZI+aVCIobWX9sXTynk5XeU/zZ0WBxtqB0DrAWfBw==
"""
REAL_AT = 0x6A122120
WITNESS = Ed25519PrivateKey.from_private_bytes(b"\x07" * 32)


def test_notes_of_go_are_read_verified_and_written() -> None:
    key, note = read_note_key(GO_KEY), read_note(GO_NOTE)
    assert key.text == GO_KEY
    assert str(note) == GO_NOTE
    assert verified_by(note, [key]) == {key: 0}
    signature = sign_note(GO_TEXT, Ed25519PrivateKey.from_private_bytes(GO_SEED), "PeterNeumann")
    assert str(SignedNote(GO_TEXT, (signature,))) == GO_NOTE


def test_a_checkpoint_of_a_public_log_with_the_cosignature_of_a_public_witness_verifies() -> None:
    key, note = read_note_key(REAL_KEY), read_note(REAL_NOTE)
    other = read_note_key("witness.stagemole.eu+67f7aea0+BEqSG3yu9YrmcM3BHvQYTxwFj3uSWakQepafafpUqklv")
    assert verified_by(note, [key, other]) == {key: REAL_AT, other: REAL_AT}
    head = read_head(note.text)
    assert (head.origin, head.size, head.text) == ("arche2025h1.staging.ct.transparency.dev", 1432088532, REAL_TEXT)
    assert verified_by(note, [NoteKey("remora.n621.de", COSIGNATURE, b"\x01" * 32)]) == {}  # another key has another id


def test_a_cosignature_verifies_for_its_text_time_and_key_only() -> None:
    line = cosign(REAL_TEXT, WITNESS, "w.example", 1_700_000_000)
    key = NoteKey("w.example", COSIGNATURE, WITNESS.public_key().public_bytes_raw())
    assert verified_by(SignedNote(REAL_TEXT, (line,)), [key]) == {key: 1_700_000_000}
    other_time = line._replace(data=(1_700_000_001).to_bytes(8, "big") + line.data[8:])
    for text, forged in ((REAL_TEXT.replace("1432088532", "1432088533"), line), (REAL_TEXT, other_time)):
        with pytest.raises(BadSignature) as caught:
            verified_by(SignedNote(text, (forged,)), [key])
        assert caught.value.code == "forged-cosignature"
    far = line._replace(data=b"\xff" * 8 + line.data[8:])
    with pytest.raises(BadSignature):
        verified_by(SignedNote(REAL_TEXT, (far,)), [key])


def test_a_changed_note_of_a_known_key_is_refused_and_one_of_an_unknown_key_ignored() -> None:
    changed = read_note(GO_NOTE.replace("answer", "question"))
    with pytest.raises(BadSignature) as caught:
        verified_by(changed, [read_note_key(GO_KEY)])
    assert caught.value.code == "bad-signature"
    assert verified_by(changed, []) == {}


def test_a_new_signature_of_a_key_replaces_the_former_one() -> None:
    note = SignedNote(REAL_TEXT, (cosign(REAL_TEXT, WITNESS, "w", 1),))
    assert note.with_signatures([cosign(REAL_TEXT, WITNESS, "w", 2)]).signatures == (cosign(REAL_TEXT, WITNESS, "w", 2),)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no signatures\n",
        "text\n\n",
        "text\n\n— name\n",
        "text\n\n— name x08g\n",
        "text\n\n— na+me x08go/ZJkuBS\n",
        "text\n\n- name x08go/ZJkuBS\n",
        "text\n\n— name x08go/ZJkuBS",
        "text\r\n\n— name x08go/ZJkuBS\n",
        "text\n\n— name x08go/ZJkuBT=\n",
        "text\n\n" + "— name x08go/ZJkuBS\n" * 65,
        "x" * 70_000 + "\n\n— name x08go/ZJkuBS\n",
    ],
)
def test_what_is_not_a_note_is_refused(text: str) -> None:
    with pytest.raises(BadSignature) as caught:
        read_note(text)
    assert caught.value.code == "malformed-note"


@pytest.mark.parametrize(
    "text",
    [
        "origin\n1\n",
        "origin\n01\nU7WM79jrzyhGZ5/GUBTpM7NzwdyfFx61t3RovgcC4Ro=\n",
        "origin\n-1\nU7WM79jrzyhGZ5/GUBTpM7NzwdyfFx61t3RovgcC4Ro=\n",
        "origin\n٣\nU7WM79jrzyhGZ5/GUBTpM7NzwdyfFx61t3RovgcC4Ro=\n",
        f"origin\n{2**63}\nU7WM79jrzyhGZ5/GUBTpM7NzwdyfFx61t3RovgcC4Ro=\n",
        "origin\n1\nU7WM\n",
        "origin\n1\nU7WM79jrzyhGZ5/GUBTpM7NzwdyfFx61t3RovgcC4Rp=\n",
        "\n1\nU7WM79jrzyhGZ5/GUBTpM7NzwdyfFx61t3RovgcC4Ro=\n",
        "origin\n1\nU7WM79jrzyhGZ5/GUBTpM7NzwdyfFx61t3RovgcC4Ro=\n\nmore\n",
    ],
)
def test_what_is_not_a_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(BadSignature):
        read_head(text)


def test_a_head_has_the_same_text_after_it_is_read() -> None:
    head = CheckpointHead("origin/x", 0, b"\x01" * 32)
    assert read_head(head.text) == head


@pytest.mark.parametrize("text", ["", "name", "name+00000000+AAAA", GO_KEY.replace("c74f", "c74e"), GO_KEY[:-1], "a b+00000000+xx"])
def test_what_is_not_a_key_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_note_key(text)
    assert caught.value.code == "invalid-key"


@pytest.mark.parametrize("name", ["", "a b", "a+b", "a\u00a0b", "x" * 256, "a\nb"])
def test_a_name_that_notes_cannot_have_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput):
        check_key_name(name)


def test_the_answer_of_a_witness_is_a_list_of_signatures() -> None:
    lines = "".join(cosign(REAL_TEXT, WITNESS, name, 5).line for name in ("a", "b"))
    assert [signature.name for signature in read_signature_lines(lines)] == ["a", "b"]
    with pytest.raises(BadSignature):
        read_signature_lines("not found")

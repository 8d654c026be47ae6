"""The HTTP witness: the protocol byte by byte, what it refuses, and kill -9 of a real one."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from clia.trust.checkpoints.merkle import consistency_proof, leaf_hash, root_hash
from support.witnesses import WitnessForTests

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ORIGIN = "log.example/one"
LOG = Ed25519PrivateKey.from_private_bytes(b"\x01" * 32)
LEAVES = [leaf_hash(bytes([number])) for number in range(30)]
FORK = [*LEAVES[:2], *(leaf_hash(b"x" + bytes([number])) for number in range(30))]


def key_id(name: str, kind: int, public: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\n" + bytes([kind]) + public).digest()[:4]


def vkey(name: str, kind: int, public: bytes) -> str:
    return f"{name}+{key_id(name, kind, public).hex()}+{base64.b64encode(bytes([kind]) + public).decode()}"


PUBLIC = LOG.public_key().public_bytes_raw()
LOG_KEY = vkey(ORIGIN, 1, PUBLIC)


def checkpoint(size: int, leaves: list[bytes] = LEAVES, private: Ed25519PrivateKey = LOG, origin: str = ORIGIN) -> str:
    """A signed checkpoint, written without the code under test."""
    text = f"{origin}\n{size}\n{base64.b64encode(root_hash(leaves[:size])).decode()}\n"
    public = private.public_key().public_bytes_raw()
    signature = base64.b64encode(key_id(origin, 1, public) + private.sign(text.encode())).decode()
    return f"{text}\n— {origin} {signature}\n"


def body(old: int, size: int, leaves: list[bytes] = LEAVES, note: str | None = None) -> bytes:
    proof = "".join(f"{base64.b64encode(node).decode()}\n" for node in consistency_proof(leaves[:size], old))
    return f"old {old}\n{proof}\n{note or checkpoint(size, leaves)}".encode()


class Answer(NamedTuple):
    status: int
    kind: str
    text: str


class Client(NamedTuple):
    url: str

    def post(
        self, data: bytes, path: str = "/add-checkpoint", headers: dict[str, str] | None = None, method: str = "POST"
    ) -> Answer:
        with closing(http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=60)) as connection:
            connection.request(method, path, data, headers or {})
            with connection.getresponse() as response:
                return Answer(response.status, response.headers["Content-Type"], response.read().decode())


@pytest.fixture
def witness(tmp_path: Path) -> WitnessForTests:
    return WitnessForTests.created(tmp_path / "witness", "w.example/one")


@pytest.fixture
def client(witness: WitnessForTests, tmp_path: Path) -> Iterator[Client]:
    with witness.serving(tmp_path, LOG_KEY) as url:
        yield Client(url)


def is_cosigned(line: str, note: str, public: bytes) -> bool:
    """Verify a cosignature as the specification says, without the code under test."""
    dash, name, data = line.rstrip("\n").split(" ")
    raw, text = base64.b64decode(data), note.partition("\n\n")[0] + "\n"
    assert (dash, name, raw[:4]) == ("—", "w.example/one", key_id("w.example/one", 4, public))
    at = int.from_bytes(raw[4:12], "big")
    Ed25519PublicKey.from_public_bytes(public).verify(raw[12:], f"cosignature/v1\ntime {at}\n{text}".encode())
    return True


def test_it_speaks_the_protocol_of_c2sp(client: Client, witness: WitnessForTests) -> None:
    for old, size in ((0, 3), (3, 3), (3, 17)):
        answer = client.post(body(old, size))
        assert (answer.status, answer.text[-1]) == (200, "\n")
        assert is_cosigned(answer.text, checkpoint(size), witness.key.public)
    assert client.post(body(0, 20)) == Answer(409, "text/x.tlog.size", "17\n")
    assert client.post(body(3, 20)) == Answer(409, "text/x.tlog.size", "17\n")
    assert client.post(b"", "/", method="GET").text == f"{witness.key.text}\n"


def test_it_never_signs_two_histories(client: Client) -> None:
    assert client.post(body(0, 5)).status == 200
    assert client.post(body(5, 9, FORK)).status == 422
    assert client.post(body(5, 5, FORK)).status == 409
    assert client.post(body(5, 9)).status == 200


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"", 400),
        (b"old 0", 400),
        (b"old 00\n\n" + checkpoint(3).encode(), 400),
        (b"old -1\n\n" + checkpoint(3).encode(), 400),
        (b"old 0\n" + b"AAAA\n" + b"\n" + checkpoint(3).encode(), 400),
        (b"old 0\n" + (base64.b64encode(bytes(32)) + b"\n") * 64 + b"\n" + checkpoint(3).encode(), 400),
        (b"old 9\n\n" + checkpoint(3).encode(), 400),
        (b"old 0\n\n\xff\xfe", 400),
        (body(0, 3, note=checkpoint(3, origin="log.example/other")), 404),
        (body(0, 3, note=checkpoint(3, private=Ed25519PrivateKey.from_private_bytes(b"\x05" * 32))), 403),
        (body(0, 3, note=checkpoint(3).replace("\n3\n", "\n4\n")), 403),
        (b"x" * 400_000, 413),
    ],
)
def test_bad_requests_are_refused_and_change_nothing(client: Client, data: bytes, status: int) -> None:
    try:
        assert client.post(data).status == status
    except (BrokenPipeError, ConnectionResetError):
        assert status == 413  # it closed the connection before all was sent
    assert client.post(body(0, 3)).status == 200


def test_other_paths_and_unclear_lengths_are_refused(client: Client) -> None:
    assert client.post(body(0, 3), "/other").status == 404
    assert client.post(b"", "/other", method="GET").status == 404
    assert client.post(body(0, 3), headers={"Transfer-Encoding": "chunked", "Content-Length": "5"}).status == 411
    assert client.post(body(0, 3)).status == 200


def test_many_requests_at_once_get_one_history(client: Client) -> None:
    def ask(number: int) -> tuple[int, list[bytes], int]:
        leaves, size = (LEAVES, FORK)[number % 2], 3 + number % 20
        return size, leaves, client.post(body(0, size, leaves)).status

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(40)))
    signed = [(size, root_hash(leaves[:size])) for size, leaves, status in answers if status == 200]
    assert len(signed) == 1, "all start at 0, so one wins"


def test_a_witness_that_is_killed_knows_what_it_signed(witness: WitnessForTests, tmp_path: Path) -> None:
    """Kill -9 after each answer, and while it answers: the next process continues the same history."""
    program = [sys.executable, "-m", "clia", "witness", "serve", "--state", witness.place.directory, "--name", "w.example/one"]
    size = 0
    for number in range(3):
        words = [*program, "--port", "0", "--log", LOG_KEY, "--json", "--path", str(tmp_path)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ, "HOME": str(tmp_path)}) as process:
            assert process.stdout is not None
            banner = json.loads("".join(iter(process.stdout.readline, "}\n")) + "}")
            client = Client(banner["address"])
            assert client.post(body(size, size + 5)).status == 200
            size += 5
            with ThreadPoolExecutor(4) as pool:
                answers = [pool.submit(client.post, body(size, size + 1 + each, (LEAVES, FORK)[each % 2])) for each in range(4)]
                if number:
                    process.send_signal(signal.SIGKILL)
                results = [answer.exception() or answer.result().status for answer in answers]
            process.kill()
        last = witness_size(witness)
        accepted = [size + 1 + each for each in (0, 2) if results[each] == 200]
        assert last in {size, size + 1, size + 3}
        assert all(item <= last for item in accepted), "what was answered is kept"
        size = last


def witness_size(witness: WitnessForTests) -> int:
    from clia.facade.witnessing import open_witness
    from clia.trust.checkpoints.signed_notes import read_head

    note = open_witness(witness.place, witness.settings).state.last(ORIGIN)
    assert note is not None
    head = read_head(note.text)
    assert head.root == root_hash(LEAVES[: head.size]), "one history"
    return head.size

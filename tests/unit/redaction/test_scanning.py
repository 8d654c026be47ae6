"""Secrets in the content of files: which count, wherever the pieces are cut."""

from __future__ import annotations

import tracemalloc

import pytest

from clia.redaction.scanning import OVERLAP, WINDOW, file_secrets
from support.fake_secrets import ALNUM, FAKES

TOKEN = "ghp_" + ALNUM[:36]
KEY = "-----BEGIN PRIVATE " + "KEY-----\n" + "".join(f"{ALNUM}\n" for _ in range(300)) + "-----END PRIVATE " + "KEY-----\n"


def kinds(data: bytes, name: str = "a.py", size: int = 65536) -> list[str]:
    return [secret.kind for secret in file_secrets((data[at : at + size] for at in range(0, len(data), size)), name)]


@pytest.mark.parametrize("fake", FAKES, ids=lambda fake: fake.kind)
def test_every_kind_of_secret_counts_in_a_file_that_holds_credentials(fake: object) -> None:
    assert kinds(f"first line\n{fake.text}\n".encode(), ".env")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "text",
    [
        'password = "hunter2-is-mine"',
        "postgresql://me:hunter2@localhost/shop",
        'API_KEY = "changeme-please-1234"',
        "aws_access_key_id = AKIAIOSFODNN7EXAMPLE",
        'client_token = "550e8400-e29b-41d4-a716-446655440000"',
        "mysql -u root -pfoo1bar",
        "Authorization: Basic Ym9iOnNl" + "Y3JldA==",
    ],
)
def test_values_that_a_person_typed_count_only_in_such_a_file(text: str) -> None:
    assert kinds(text.encode()) == []


@pytest.mark.parametrize(
    "text", [TOKEN, KEY, f'API_KEY = "{ALNUM[:24]}"', f"password: {'0123456789abcdef' * 2}"], ids=["token", "pem", "value", "hex"]
)
def test_tokens_private_keys_and_generated_values_count_in_every_file(text: str) -> None:
    assert len(kinds(text.encode())) == 1


@pytest.mark.parametrize(
    ("name", "counts"),
    [(".env", True), (".env.local", True), ("prod.env", True), (".env.example", False), (".npmrc", True), ("env.py", False)],
)
def test_the_name_says_whether_a_file_holds_credentials(name: str, counts: bool) -> None:
    assert bool(kinds(b"PASSWORD=hunter2-is-mine\n", name)) == counts


def test_a_secret_is_found_once_wherever_it_is_and_however_the_content_is_cut() -> None:
    line = "x = compute(1, 2)  # an ordinary line\n"
    for place in (0, WINDOW - OVERLAP - 20, WINDOW - OVERLAP, WINDOW - 20, WINDOW, WINDOW + 5, 2 * WINDOW - OVERLAP + 3):
        before = (line * (place // len(line) + 1))[:place]
        data = f"{before}\n{TOKEN}\n{line * 8000}".encode()
        (secret,) = file_secrets((data[at : at + 4096] for at in range(0, len(data), 4096)), "a.py")
        assert secret.line == before.count("\n") + 2
        assert all(kinds(data, size=size) == ["github-token"] for size in (1021, 50021))


def test_a_secret_in_one_long_line_is_found() -> None:
    data = f"{'a,' * (WINDOW // 2 - 40)}{TOKEN},{'b,' * WINDOW}".encode()
    assert kinds(data) == ["github-token"]


def test_a_key_that_is_longer_than_the_overlap_is_found() -> None:
    assert len(KEY) > OVERLAP
    for place in range(WINDOW - 2 * OVERLAP, WINDOW + OVERLAP, OVERLAP // 2):
        assert "private-key" in kinds(f"{'x' * place}\n{KEY}".encode())


def test_text_of_windows_is_read() -> None:
    text = f"API_KEY={ALNUM[:24]}\r\n"
    assert kinds(text.encode("utf-16"), ".env") == kinds(text.encode("utf-8-sig"), ".env") == ["assigned"]


def test_the_digest_of_a_secret_does_not_depend_on_its_place() -> None:
    (one,) = file_secrets([TOKEN.encode()], "a.py")
    (two,) = file_secrets([f"\n\nx {TOKEN}".encode()], "b.py")
    assert (one.digest, one.line, two.line) == (two.digest, 1, 3)


def test_memory_does_not_grow_with_the_file() -> None:
    def peak(size: int) -> int:
        tracemalloc.start()
        try:
            assert not list(file_secrets((b"0123456789abcde\n" * 4096 for _ in range(size)), "a.bin"))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(8)  # patterns are compiled at their first use
    assert peak(80) < 1.5 * peak(16)

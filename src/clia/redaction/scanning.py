"""Look for secrets in the content of files.

Invariant: memory does not grow with the file, and a secret is found wherever the pieces are cut, if it is shorter than ``OVERLAP``.

Traces are redacted if in doubt: a mark costs little. A file that is refused is missing from the record, and source is full of
made-up passwords. So in most files only what cannot be anything else counts: tokens with a known form, private keys, and generated
values of secret names. In files that exist to hold settings and credentials, such as ``.env``, everything that is redacted counts.
"""

from __future__ import annotations

import codecs
import re
from hashlib import blake2b
from typing import NamedTuple

from clia.redaction.secrets import secret_spans

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

WINDOW = 256 * 1024
"""Characters that are searched at once."""
OVERLAP = 8 * 1024
"""Characters at the end of a window that are searched again with what follows them."""
_CREDENTIAL_FILES = re.compile(
    r"\.env(?:\.(?!example|sample|template|dist|schema)[\w.-]+)?|[\w.-]+\.env|\.netrc|_netrc|\.pgpass|\.npmrc|\.pypirc|\.dockercfg"
    r"|\.htpasswd|\.git-credentials|\.my\.cnf|\.envrc|credentials(?:\.csv)?|secrets?\.(?:ya?ml|toml|json|ini)",
    re.ASCII | re.IGNORECASE,
)
# A value that is only a secret because of the text before it counts if nobody typed it.
_GENERATED = re.compile(
    r"(?=[^0-9]*[0-9])(?:(?=[^a-z]*[a-z])(?=[^A-Z]*[A-Z])[A-Za-z0-9+/=_-]{20,}|[0-9a-f]{32,})",
)
_EXAMPLE = re.compile("example", re.ASCII | re.IGNORECASE)
_BY_CONTEXT = frozenset(
    (
        *("assigned", "authorization", "aws-secret-key", "cookie", "docker-auth", "mailgun-key", "npm-auth", "twilio-key"),
        *("url-password", "vault-token"),
    )
)


class FileSecret(NamedTuple):
    """A secret in a file."""

    kind: str
    line: int  # from 1
    digest: str  # of the secret, to compare two versions of a file


def file_secrets(pieces: Iterable[bytes], name: str) -> Iterator[FileSecret]:
    """Yield the secrets in a file's content. ``name``: the last part of its path."""
    holds_credentials = _CREDENTIAL_FILES.fullmatch(name) is not None
    line = 1
    for window, fresh in _windows(_decoded(pieces)):
        for start, end, kind in secret_spans(window):
            secret = window[start:end]
            if start < fresh and (holds_credentials or _is_certain(kind, secret)):
                digest = blake2b(secret.encode("utf-8", "replace"), digest_size=16).hexdigest()
                yield FileSecret(kind, line + window.count("\n", 0, start), digest)
        line += window.count("\n", 0, fresh)


def _is_certain(kind: str, secret: str) -> bool:
    if _EXAMPLE.search(secret):
        return False  # as in the documentation of AWS
    return kind not in _BY_CONTEXT or _GENERATED.fullmatch(secret) is not None


def _decoded(pieces: Iterable[bytes]) -> Iterator[str]:
    """Yield the text of a file: UTF-16 if it starts with such a mark, and else UTF-8. What is neither cannot hold a secret."""
    decoder: codecs.IncrementalDecoder | None = None
    for piece in pieces:
        if decoder is None:
            encoding = "utf-16" if piece.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
            decoder = codecs.getincrementaldecoder(encoding)("replace")
        yield decoder.decode(piece)


def _windows(texts: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield overlapping parts of a text, and how many of their characters no later part begins with."""
    text = ""
    for more in texts:
        text += more
        while len(text) > WINDOW:
            window, fresh = text[:WINDOW], WINDOW - OVERLAP
            # Preferably at the end of a line, because a token that is cut in two may look like another one.
            fresh = window.rfind("\n", fresh - OVERLAP, fresh) + 1 or fresh
            yield window, fresh
            text = text[fresh:]
    yield text, len(text) + 1

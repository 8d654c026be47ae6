"""Spaces that are peers, and an attacker with a valid key.

``Speaker`` signs any statement; ``Pair`` is two spaces, and can put forged statements into the chain of one of them.
"""

from __future__ import annotations

import base64
import json
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import clia
from clia.federation.acceptance import AcceptResult, ListenerContext, Position, accept
from clia.federation.signing import Ed25519Verifier, KeyFiles
from clia.federation.statements import SNAPSHOT, TOKEN_TYPE, RefClaim, Statement, digest
from support import git
from support.spaces import BRIEFING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from clia.federation.model import Refused, Synced

NOW = 1_800_000_000
LIFE = 30 * 86400
OWNER, HEARER, OTHER = (f"{digit * 8}-0000-4000-8000-000000000000" for digit in "123")
HEADS = "refs/heads/agents/"
VERIFIER = Ed25519Verifier()
USUAL = (
    ("agent-commit", "spawn"),
    ("agent-commit", "head-move"),
    ("agent-commit", "merge"),
    ("briefing", "spawn"),
    ("console-trace", "note"),
    ("behaviour", "behaviour"),
)
"""The grants that are needed to follow a peer's agents."""


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def an_id(number: int) -> str:
    """The id of an object that does not exist."""
    return f"{number + 1:040x}"


def finding(agent: str, number: int) -> RefClaim:
    return RefClaim(HEADS + agent, an_id(number), "finding", "head-move")


def plumbed(*words: str, cwd: str, stdin: str = "") -> str:
    """Run git with this standard input."""
    return subprocess.run(["git", *words], cwd=cwd, input=stdin, capture_output=True, text=True, check=True).stdout.strip()


class Speaker(NamedTuple):
    """The holder of a private key, who signs anything."""

    directory: str
    key: str
    space: str = OWNER

    @classmethod
    def new(cls, directory: Path | str, space: str = OWNER) -> Speaker:
        return cls(str(directory), KeyFiles(str(directory)).make(), space)

    @property
    def ring(self) -> KeyFiles:
        return KeyFiles(self.directory)

    def private(self) -> Ed25519PrivateKey:
        jwk = json.loads(Path(self.directory, f"{self.key}.jwk").read_text("ascii"))
        return Ed25519PrivateKey.from_private_bytes(decoded(jwk["d"]))

    def header(self, **more: Any) -> dict[str, Any]:
        return {"alg": "Ed25519", "kid": self.key, "typ": TOKEN_TYPE} | more

    def signed(self, payload: bytes, header: Mapping[str, Any] | bytes | None = None) -> str:
        """A token with a valid signature over any header and payload."""
        if not isinstance(header, bytes):
            header = json.dumps(header or self.header(), separators=(",", ":")).encode()
        body = f"{encoded(header)}.{encoded(payload)}"
        return f"{body}.{encoded(self.private().sign(body.encode()))}"

    def token(self, statement: Statement) -> str:
        return self.ring.sign(self.key, TOKEN_TYPE, statement.payload())

    def moved(self, seq: int, prev: str | None, claim: RefClaim, **more: Any) -> str:
        """The token of a statement about one ref; ``prev`` is the token before it."""
        statement = Statement(self.space, HEARER, seq, prev and digest(prev), NOW, NOW + LIFE, claim.trigger, (claim,))
        return self.token(statement._replace(**more))

    def snapshot(self, seq: int, claims: Sequence[RefClaim] = (), prev: str | None = None, **more: Any) -> str:
        statement = Statement(self.space, HEARER, seq, prev and digest(prev), NOW, NOW + LIFE, SNAPSHOT, tuple(claims))
        return self.token(statement._replace(**more))

    def chain(self, length: int, start: int = 1000) -> list[str]:
        """A valid chain: a snapshot, then moves of an agent."""
        tokens = [self.snapshot(start, [finding("scout", 0)])]
        for number in range(1, length):
            tokens.append(self.moved(start + number, tokens[-1], finding("scout", number)))
        return tokens


class Ear(NamedTuple):
    """The receiver of a speaker's tokens; ``hear`` applies one to a position without changing anything."""

    keys: tuple[str, ...]
    now: int = NOW
    me: str = HEARER
    space: str = OWNER
    tracked: Mapping[str, str] = {}

    def hear(self, position: Position, token: str) -> AcceptResult:
        return accept(position, token, ListenerContext(self.me, self.space, self.keys, self.now, VERIFIER), self.tracked)

    def heard(self, tokens: Sequence[str], position: Position | None = None) -> Position:
        """The position after these tokens, which must all be accepted."""
        position = position or Position()
        for token in tokens:
            result = self.hear(position, token)
            assert result.refusal is None, result.refusal
            position = result.position
        return position

    def refuses(self, position: Position, token: str, code: str) -> AcceptResult:
        """Assert that a token is refused with this code and leaves the position unchanged."""
        result = self.hear(position, token)
        assert result.refusal is not None, f"it was accepted; {code} was expected"
        assert result.refusal.code == code, result.refusal
        assert result.position == position
        return result


class Clock:
    """A clock that advances by a second at each reading and can be set; ``left`` limits the readings, to end endless loops."""

    def __init__(self) -> None:
        self.at = datetime(2026, 5, 1, tzinfo=UTC)
        self.left: int | None = None

    def __call__(self) -> datetime:
        if self.left is not None:
            self.left -= 1
            assert self.left > 0, "the clock was read too often"
        self.at += timedelta(seconds=1)
        return self.at


class Pair:
    """Two spaces with one clock: ``owner`` announces to ``hearer``. They know each other as ``ay`` (the owner) and ``bee``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = Clock()
        self.owner = self.new_space("owner")
        self.hearer = self.new_space("hearer")
        self.owner.peers.add("bee", self.hearer.peers.key().text)
        self.owner.peers.share("bee", agents=["*"], traces=True, behaviours=["*"])
        self.hearer.peers.add("ay", self.owner.peers.key().text, self.place("owner"))

    def settings(self, **more: Any) -> clia.Settings:
        return clia.Settings(durable=False, person=("Tess", "tess@example.org"), clock=self.clock, **more)

    def new_space(self, name: str) -> clia.Space:
        return clia.init(self.place(name), settings=self.settings())

    def place(self, name: str) -> str:
        return str(self.root / name)

    def agent(self, space: clia.Space, name: str, *contents: str) -> None:
        space.spawn(name, BRIEFING)
        for content in contents:
            space.commit(name, "finding", {"a.txt": content.encode()})

    def grant(self, *grants: tuple[str, str]) -> None:
        for kind, trigger in grants or USUAL:
            self.hearer.peers.grant("ay", kind, trigger)

    def speaker(self, of: str = "owner") -> Speaker:
        """A speaker with the private key of a space."""
        key = (self.owner if of == "owner" else self.hearer).peers.key()
        return Speaker(str(Path(self.place(of), ".git", "clia", "keys")), key.key, key.space)

    @property
    def chain_ref(self) -> str:
        return f"refs/clia/announce/{self.hearer.peers.key().space}"

    def tokens(self) -> list[str]:
        """The owner's chain, oldest first."""
        trailers = "--format=%(trailers:key=Clia-Announcement,valueonly)"
        return git("log", "--reverse", trailers, self.chain_ref, cwd=self.place("owner")).split()

    def statement(self, trigger: str, claims: Sequence[RefClaim], **more: Any) -> Statement:
        """The next statement of the owner's chain."""
        last = self.tokens()[-1]
        seq = json.loads(decoded(last.split(".")[1]))["seq"] + 1
        at = int(self.clock.at.timestamp())
        owner, hearer = self.owner.peers.key().space, self.hearer.key().space
        return Statement(owner, hearer, seq, digest(last), at, at + LIFE, trigger, tuple(claims))._replace(**more)

    def forge(self, *claims: RefClaim, **more: Any) -> str:
        """Append a statement signed by the owner's key to its chain; several claims, or none, are a snapshot."""
        trigger = claims[0].trigger if len(claims) == 1 else SNAPSHOT
        token = self.speaker().token(self.statement(trigger, claims, **more))
        self.append(token)
        return token

    def append(self, token: str) -> str:
        """Append a token to the owner's chain; return the commit."""
        repo = self.place("owner")
        tree = plumbed("mktree", cwd=repo)
        tip = git("rev-parse", self.chain_ref, cwd=repo).strip()
        commit = git("commit-tree", tree, "-p", tip, "-m", f"forged\n\nClia-Announcement: {token}", cwd=repo).strip()
        git("update-ref", self.chain_ref, commit, cwd=repo)
        return commit

    def commit(self, message: str, files: Mapping[str, str], *parents: str) -> str:
        """Write a commit into the owner's repository with git; a file is ``mode,type,id`` or a text."""
        repo = self.place("owner")
        lines = []
        for path, text in sorted(files.items()):
            mode, _, rest = text.partition(",")
            if mode.isdigit() and rest:
                kind, _, cid = rest.partition(",")
                lines.append(f"{mode} {kind} {cid}\t{path}\n")
            else:
                lines.append(f"100644 blob {self.blob(text)}\t{path}\n")
        tree = plumbed("mktree", "--missing", cwd=repo, stdin="".join(lines))
        options = [word for parent in parents for word in ("-p", parent)]
        return git("commit-tree", tree, *options, "-m", message, cwd=repo).strip()

    def blob(self, text: str) -> str:
        return plumbed("hash-object", "-w", "--stdin", cwd=self.place("owner"), stdin=text)

    def sync(self) -> Synced:
        return self.hearer.peers.sync("ay")[0]

    def state(self) -> tuple[dict[str, str], tuple[int, bool]]:
        """The refs of the hearer without those of the peer's chain and position; and the position's number and fork."""
        lines = git("for-each-ref", "--format=%(refname) %(objectname)", cwd=self.place("hearer")).splitlines()
        peer = self.hearer.peers.get("ay")
        passing = ("refs/clia/peers/", "refs/clia/remotes/ay/announce")
        return dict(line.split() for line in lines if not line.startswith(passing)), (peer.seq, peer.forked)

    def announce_commit(self, text: str = "more") -> str:
        """Commit as the owner's ``scout`` and announce it; return the commit."""
        cid = self.owner.commit("scout", "finding", {"a.txt": text.encode()})
        self.owner.peers.announce("bee")
        return cid

    def rev(self, side: str, name: str) -> str:
        return git("rev-parse", name, cwd=self.place(side)).strip()

    def update_ref(self, side: str, ref: str, target: str) -> None:
        git("update-ref", ref, target, cwd=self.place(side))

    def tracked_heads(self) -> dict[str, str]:
        """The heads of the owner's agents that the hearer tracks."""
        return {remote.agent: remote.head for remote in self.hearer.peers.remotes("ay")}

    def learned_types(self) -> list[str]:
        """Sync; the names of the types that the hearer learned."""
        return [move.place.removeprefix("types/") for move in self.sync().moves]

    def close(self) -> None:
        self.owner.close()
        self.hearer.close()


class Late:
    """A transport that calls a function during the transfer."""

    def __init__(self, inner: Any, meanwhile: Callable[[], object]) -> None:
        self._inner, self._meanwhile = inner, meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def open(self, *words: Any) -> Any:
        return Late(self._inner.open(*words), self._meanwhile)

    def __enter__(self) -> Any:
        return Late(self._inner.__enter__(), self._meanwhile)

    def __exit__(self, *error: Any) -> Any:
        return self._inner.__exit__(*error)

    def fetch(self, *words: Any) -> Any:
        self._meanwhile()
        return self._inner.fetch(*words)


def codes(refused: Sequence[Refused]) -> list[str]:
    return [refusal.code for refusal in refused]

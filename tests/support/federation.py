"""Spaces that speak to each other, and somebody with a real key who says what no honest space would.

``Speaker`` signs anything; ``Pair`` is two spaces in folders of their own, of which one may be made to say what a speaker forged.
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
"""What is granted to follow a peer's agents."""


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def an_id(number: int) -> str:
    """The id of an object that nobody has."""
    return f"{number + 1:040x}"


def finding(agent: str, number: int) -> RefClaim:
    return RefClaim(HEADS + agent, an_id(number), "finding", "head-move")


def plumbed(*words: str, cwd: str, stdin: str = "") -> str:
    """Stock git with something to read."""
    return subprocess.run(["git", *words], cwd=cwd, input=stdin, capture_output=True, text=True, check=True).stdout.strip()


class Speaker(NamedTuple):
    """Who has a private key, and no scruples."""

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
        kept = json.loads(Path(self.directory, f"{self.key}.jwk").read_text("ascii"))
        return Ed25519PrivateKey.from_private_bytes(decoded(kept["d"]))

    def header(self, **more: Any) -> dict[str, Any]:
        return {"alg": "Ed25519", "kid": self.key, "typ": TOKEN_TYPE} | more

    def signed(self, payload: bytes, header: Mapping[str, Any] | bytes | None = None) -> str:
        """A token over any header and payload whatever; the signature holds."""
        if not isinstance(header, bytes):
            header = json.dumps(header or self.header(), separators=(",", ":")).encode()
        body = f"{encoded(header)}.{encoded(payload)}"
        return f"{body}.{encoded(self.private().sign(body.encode()))}"

    def token(self, statement: Statement) -> str:
        return self.ring.sign(self.key, TOKEN_TYPE, statement.payload())

    def moved(self, seq: int, prev: str | None, claim: RefClaim, **more: Any) -> str:
        """The token of a statement about one ref; ``prev`` is the token before it."""
        said = Statement(self.space, HEARER, seq, prev and digest(prev), NOW, NOW + LIFE, claim.trigger, (claim,))
        return self.token(said._replace(**more))

    def snapshot(self, seq: int, claims: Sequence[RefClaim] = (), prev: str | None = None, **more: Any) -> str:
        said = Statement(self.space, HEARER, seq, prev and digest(prev), NOW, NOW + LIFE, SNAPSHOT, tuple(claims))
        return self.token(said._replace(**more))

    def chain(self, length: int, start: int = 1000) -> list[str]:
        """An honest chain: a snapshot, then an agent's moves."""
        found = [self.snapshot(start, [finding("scout", 0)])]
        for number in range(1, length):
            found.append(self.moved(start + number, found[-1], finding("scout", number)))
        return found


class Ear(NamedTuple):
    """Who hears a speaker; each ``hear`` is on top of a position, and changes nothing."""

    keys: tuple[str, ...]
    now: int = NOW
    me: str = HEARER
    space: str = OWNER
    tracked: Mapping[str, str] = {}

    def hear(self, position: Position, token: str) -> AcceptResult:
        return accept(position, token, ListenerContext(self.me, self.space, self.keys, self.now, VERIFIER), self.tracked)

    def heard(self, tokens: Sequence[str], position: Position | None = None) -> Position:
        """The position after tokens, all of which are accepted."""
        position = position or Position()
        for token in tokens:
            found = self.hear(position, token)
            assert found.refusal is None, found.refusal
            position = found.position
        return position

    def refuses(self, position: Position, token: str, code: str) -> AcceptResult:
        """A token is refused with a code, and the position is as it was."""
        found = self.hear(position, token)
        assert found.refusal is not None, f"it was accepted; {code} was expected"
        assert found.refusal.code == code, found.refusal
        assert found.position == position
        return found


class Clock:
    """A clock that goes on by a second each time it is asked, that can be put forward, and that may give up: what goes on
    asking for ever does not end by itself."""

    def __init__(self) -> None:
        self.at = datetime(2026, 5, 1, tzinfo=UTC)
        self.left: int | None = None

    def __call__(self) -> datetime:
        if self.left is not None:
            self.left -= 1
            assert self.left > 0, "it goes on and on"
        self.at += timedelta(seconds=1)
        return self.at


class Pair:
    """Two spaces: ``owner`` speaks, as the peer ``ay`` of ``hearer``, which is its peer ``bee``. They have one clock."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = Clock()
        self.owner = self.made("owner")
        self.hearer = self.made("hearer")
        self.owner.add_peer("bee", self.hearer.key().text)
        self.owner.share("bee", agents=["*"], traces=True, behaviours=["*"])
        self.hearer.add_peer("ay", self.owner.key().text, self.place("owner"))

    def settings(self, **more: Any) -> clia.Settings:
        return clia.Settings(durable=False, person=("Tess", "tess@example.org"), clock=self.clock, **more)

    def made(self, name: str) -> clia.Space:
        return clia.init(self.place(name), settings=self.settings())

    def place(self, name: str) -> str:
        return str(self.root / name)

    def agent(self, space: clia.Space, name: str, *contents: str) -> None:
        space.spawn(name, BRIEFING)
        for each in contents:
            space.commit(name, "finding", {"a.txt": each.encode()})

    def grant(self, *wanted: tuple[str, str]) -> None:
        for kind, trigger in wanted or USUAL:
            self.hearer.grant("ay", kind, trigger)

    def speaker(self, of: str = "owner") -> Speaker:
        """Somebody with the private key of a space."""
        key = (self.owner if of == "owner" else self.hearer).key()
        return Speaker(str(Path(self.place(of), ".git", "clia", "keys")), key.key, key.space)

    @property
    def chain_ref(self) -> str:
        return f"refs/clia/announce/{self.hearer.key().space}"

    def tokens(self) -> list[str]:
        """The owner's chain, oldest first."""
        shown = git(
            "log", "--reverse", "--format=%(trailers:key=Clia-Announcement,valueonly)", self.chain_ref, cwd=self.place("owner")
        )
        return shown.split()

    def statement(self, trigger: str, claims: Sequence[RefClaim], **more: Any) -> Statement:
        """The one that would be next in the owner's chain."""
        last = self.tokens()[-1]
        seq = json.loads(decoded(last.split(".")[1]))["seq"] + 1
        at = int(self.clock.at.timestamp())
        made = Statement(self.owner.key().space, self.hearer.key().space, seq, digest(last), at, at + LIFE, trigger, tuple(claims))
        return made._replace(**more)

    def forge(self, *claims: RefClaim, **more: Any) -> str:
        """Puts a statement of the owner's key into its chain, whatever it says; several claims, or none, are a snapshot."""
        trigger = claims[0].trigger if len(claims) == 1 else SNAPSHOT
        token = self.speaker().token(self.statement(trigger, claims, **more))
        self.append(token)
        return token

    def append(self, token: str) -> str:
        """Puts a token at the end of the owner's chain, as a commit."""
        where = self.place("owner")
        tree = plumbed("mktree", cwd=where)
        tip = git("rev-parse", self.chain_ref, cwd=where).strip()
        made = git("commit-tree", tree, "-p", tip, "-m", f"forged\n\nClia-Announcement: {token}", cwd=where).strip()
        git("update-ref", self.chain_ref, made, cwd=where)
        return made

    def commit(self, message: str, files: Mapping[str, str], *parents: str) -> str:
        """A commit in the owner's repository that stock git made; a file is given by ``mode,type,id`` or by its text."""
        where = self.place("owner")
        lines = []
        for path, text in sorted(files.items()):
            mode, _, rest = text.partition(",")
            if mode.isdigit() and rest:
                kind, _, cid = rest.partition(",")
                lines.append(f"{mode} {kind} {cid}\t{path}\n")
            else:
                lines.append(f"100644 blob {self.blob(text)}\t{path}\n")
        tree = plumbed("mktree", "--missing", cwd=where, stdin="".join(lines))
        words = [word for each in parents for word in ("-p", each)]
        return git("commit-tree", tree, *words, "-m", message, cwd=where).strip()

    def blob(self, text: str) -> str:
        return plumbed("hash-object", "-w", "--stdin", cwd=self.place("owner"), stdin=text)

    def sync(self) -> Synced:
        return self.hearer.sync("ay")[0]

    def state(self) -> tuple[dict[str, str], tuple[int, bool]]:
        """All refs of the hearer but what a peer said and how far it was believed; and that."""
        listed = git("for-each-ref", "--format=%(refname) %(objectname)", cwd=self.place("hearer")).splitlines()
        peer = self.hearer.peer("ay")
        passing = ("refs/clia/peers/", "refs/clia/remotes/ay/announce")
        return dict(each.split() for each in listed if not each.startswith(passing)), (peer.seq, peer.forked)


class Late:
    """A transport during whose transfer something happens."""

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
    return [each.code for each in refused]

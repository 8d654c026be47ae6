"""Federation: statements checked per second, and a sync of many agents, against bare signatures and a plain fetch."""

from __future__ import annotations

import base64
import itertools
import json
import shutil
import statistics
import subprocess
import time
from typing import TYPE_CHECKING, NamedTuple

import pygit2
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

import clia
from benchmarks.measure import Row, attempted, in_turns, timed
from benchmarks.places import place
from clia.federation.acceptance import Follow, ListenerContext, Position, accept, outstanding
from clia.federation.signing import Ed25519Verifier, KeyFiles
from clia.federation.statements import SNAPSHOT, TOKEN_TYPE, Statement, claim_of, digest
from clia.space.model import AGENT, TYPE
from clia.values import commit_messages as messages
from clia.values import refs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from benchmarks.measure import NotRun

STATEMENTS, SPEAKING, AGENTS, SYNCS = 1_000, 100, 1_000, 7
SETTINGS = clia.Settings(durable=False, person=("Bench", "bench@example.org"))
SIGNATURE = pygit2.Signature("bench", "bench@example.org", 0, 0)
SPOKEN = ("spawn", "head-move", "merge")


def rows(rounds: int) -> Iterator[Row | NotRun]:
    with place(disk=True) as top:
        yield from attempted(["announcements", "announcements-gate"], lambda: _checking(top, rounds))
        yield from attempted(["sync", "sync-nothing"], lambda: _syncing(top, min(rounds, SYNCS)))


# Checking statements of a peer


class Chain(NamedTuple):
    listener: ListenerContext
    tokens: list[str]  # a snapshot of every agent, then changes of each in turn


def _checking(top: Path, rounds: int) -> Iterator[Row]:
    with clia.init(top / "listener", settings=SETTINGS) as space, clia.init(top / "speaker", settings=SETTINGS) as peer:
        pinned = space.peers.add("peer", peer.key().text)
        for trigger in SPOKEN:
            space.peers.grant("peer", "agent-commit", trigger)
        chain = _chain(KeyFiles(str(top / "keys")), space.peers.key().space, pinned.space)
        ours, queried, floor = in_turns(
            [
                lambda: _accepted(chain),
                lambda: _accepted(chain, lambda type_, trigger: space.peers.allowed("peer", type_, trigger)),
                _bare(chain.tokens),
            ],
            rounds,
        )
    yield Row("announcements", ours, floor, note=_rate(ours))
    yield Row("announcements-gate", queried, floor, note=_rate(queried))


def _rate(milliseconds: float) -> str:
    return f"{STATEMENTS / milliseconds * 1000:,.0f} a second"


def _chain(ring: KeyFiles, me: str, space: str) -> Chain:
    key, now = ring.make(), int(time.time())
    names = [refs.head(f"agent-{number}") for number in range(SPEAKING)]
    first = tuple(claim_of(ref, f"{number:040x}", "spawn") for number, ref in enumerate(names, 1))
    changed = itertools.islice(itertools.cycle(names), STATEMENTS - 1)
    moves = [(claim_of(ref, f"{number:040x}", "finding"),) for number, ref in enumerate(changed, 1_000_000)]
    tokens: list[str] = []
    for seq, claims in enumerate([first, *moves], now * 1000):
        prev = digest(tokens[-1]) if tokens else None
        trigger = claims[0].trigger if tokens else SNAPSHOT
        statement = Statement(space, me, seq, prev, now, now + 3600, trigger, claims)
        tokens.append(ring.sign(key, TOKEN_TYPE, statement.payload()))
    return Chain(ListenerContext(me, space, (key,), now, Ed25519Verifier()), tokens)


def _accepted(chain: Chain, allowed: Callable[[str, str], bool] | None = None) -> None:
    """Accept every statement in order, applying each before the next, as a tracking space does."""
    position, tracked = Position(), dict[str, str]()
    for token in chain.tokens:
        heard = accept(position, token, chain.listener, tracked)
        assert heard.refusal is None, heard.refusal
        assert heard.statement is not None
        if allowed is not None:
            (last,) = outstanding(heard.statement.claims[-1:], tracked, allowed)
            assert isinstance(last, Follow)
        tracked |= {claim.ref: claim.new for claim in heard.statement.claims if claim.new is not None}
        position = heard.position._replace(waiting={})


def _bare(tokens: list[str]) -> Callable[[], None]:
    """Verify only the signatures; everything else is prepared."""

    def decoded(text: str) -> bytes:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))

    split = [token.rsplit(".", 1) for token in tokens]
    signed = [(decoded(signature), text.encode("ascii")) for text, signature in split]
    kid = json.loads(decoded(tokens[0].partition(".")[0]))["kid"]
    key = Ed25519PublicKey.from_public_bytes(decoded(kid))

    def work() -> None:
        for signature, text in signed:
            key.verify(signature, text)

    return work


# Following many agents


def _syncing(top: Path, rounds: int) -> Iterator[Row]:
    """Each round has a separate tracking space in the state before the changes, and so does git."""
    before = _followed(top)
    subprocess.run(["git", "clone", "-q", "--bare", str(top / "owner"), str(top / "floor")], check=True)
    _change(pygit2.Repository(str(top / "owner")), "finding")
    with clia.open(top / "owner", settings=SETTINGS) as owner:
        owner.announce("tracker")
    fetch = ["git", "fetch", "--quiet", str(top / "owner"), "+refs/heads/agents/*:refs/heads/agents/*"]
    times: list[tuple[float, float, float]] = []
    for number in range(rounds + 1):
        tracker, floor = top / f"tracker-{number}", top / f"floor-{number}"
        shutil.copytree(before, tracker, symlinks=True)
        shutil.copytree(top / "floor", floor, symlinks=True)
        plain = timed(lambda: subprocess.run(fetch, cwd=floor, check=True))  # noqa: B023  # called at once
        with clia.open(tracker, settings=SETTINGS) as space:
            changed = timed(lambda: _expect(space, AGENTS))
            nothing = timed(lambda: _expect(space, 0))
        times.append((changed, nothing, plain))
        for path in (tracker, floor):
            shutil.rmtree(path)
    changed, nothing, plain = (statistics.median(samples) for samples in zip(*times[1:], strict=True))
    yield Row("sync", changed, plain)
    yield Row("sync-nothing", nothing, plain)


def _expect(space: clia.Space, moves: int) -> None:
    (synced,) = space.peers.sync("owner")
    assert (len(synced.moves), synced.refused) == (moves, ())


def _followed(top: Path) -> Path:
    """A space with many agents, and a space that tracks all of them."""
    with clia.init(top / "owner", settings=SETTINGS) as owner, clia.init(top / "tracker", settings=SETTINGS) as tracker:
        _change(pygit2.Repository(str(top / "owner")), "spawn")
        owner.add_peer("tracker", tracker.key().text)
        owner.share("tracker", agents=["*"])
        owner.announce("tracker")
        tracker.add_peer("owner", owner.key().text, str(top / "owner"))
        for trigger in SPOKEN:
            tracker.grant("owner", "agent-commit", trigger)
        _expect(tracker, AGENTS)
    return top / "tracker"


def _change(repo: pygit2.Repository, kind: str) -> None:
    """Add a commit with one changed file to each agent; packed, as after maintenance."""
    for number, name in enumerate(f"agent-{number}" for number in range(AGENTS)):
        ref = refs.head(name)
        parents = [repo.references[ref].target] if ref in repo.references else []
        index = pygit2.Index()
        for path, text in (("kept.txt", "kept"), ("notes.txt", f"{kind} {number}")):
            index.add(pygit2.IndexEntry(path, repo.create_blob(text.encode()), pygit2.enums.FileMode.BLOB))
        text = messages.compose(f"{kind} by {name}", [(AGENT, name), (TYPE, kind)], kind)
        repo.create_commit(ref, SIGNATURE, SIGNATURE, text, index.write_tree(repo), parents)
    subprocess.run(["git", "-C", repo.path, "repack", "-adq"], check=True)

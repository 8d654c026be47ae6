"""Signatures, logs and checkpoints: what they add to a commit, and what checking them costs."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import clia
from benchmarks.measure import Row, attempted, in_turns
from benchmarks.places import place
from benchmarks.space import COMMITS as EACH
from benchmarks.space import WRITERS, race
from clia.facade.backends import connect
from clia.trust.passkeys import Passkey, PasskeyPlace, assertion_in, proof_of
from clia.trust.statements import DECIDE, PersonalStatement, verify_proof
from clia.trust.verification import verify_trust
from support.authenticator import SoftAuthenticator, b64url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from benchmarks.measure import NotRun

COMMITS, PROOFS, AGENTS = 2_000, 1_000, 200
SETTINGS = clia.Settings(durable=False, person=("Bench", "bench@example.org"))
FEW = 5
HOST = "clia-0123456789.localhost"


def rows(rounds: int) -> Iterator[Row | NotRun]:
    with place() as top:
        yield from attempted(["signed-commit"], lambda: [_commits(top, rounds)])
        yield from attempted(["verify-first", "verify-again", "verify-since"], lambda: _verified(top, min(rounds, FEW)))
        yield from attempted(["proofs"], lambda: [_proofs(min(rounds, FEW))])
        yield from attempted(["checkpoint"], lambda: [_checkpoints(top, rounds)])
    with place(disk=True) as disk:
        yield from attempted(["signed-writers"], lambda: [_writers(disk)])


def _without_signatures(path: Path) -> None:
    """Make a space one of an earlier version: nothing is signed or logged."""
    listing = ["git", "for-each-ref", "--format=delete %(refname)", "refs/clia/keys", "refs/clia/log"]
    listed = subprocess.run(listing, cwd=path, capture_output=True, check=True)
    subprocess.run(["git", "update-ref", "--stdin"], cwd=path, input=listed.stdout, check=True)
    shutil.rmtree(path / ".git/clia/signing")


def _space(path: Path, *, signed: bool, agents: int = 1) -> Path:
    with clia.init(path, settings=SETTINGS) as space:
        for number in range(agents):
            space.spawn(f"w{number}", clia.Briefing("bench"))
    if not signed:
        _without_signatures(path)
    return path


def _commits(top: Path, rounds: int) -> Row:
    count = itertools.count()
    spaces = [clia.open(_space(top / f"commits-{signed}", signed=signed), settings=SETTINGS) for signed in (True, False)]

    def work(space: clia.Space) -> Callable[[], object]:
        return lambda: space.commit("w0", "finding", changes={"a": b"%d" % next(count)})

    ours, floor = in_turns([work(space) for space in spaces], rounds, 10)
    return Row("signed-commit", ours, floor)


def _writers(top: Path) -> Row:
    """The time of a commit, over 40 processes."""
    spaces = [_space(top / f"writers-{signed}", signed=signed, agents=WRITERS) for signed in (True, False)]
    signed, unsigned = (race(path, shared=False) / (WRITERS * EACH) for path in spaces)
    return Row("signed-writers", signed, unsigned)


def _verified(top: Path, rounds: int) -> Iterator[Row]:
    path, cache = _space(top / "verified", signed=True), str(top / "cache")
    with clia.open(path, settings=SETTINGS) as space:
        for number in range(COMMITS):
            space.commit("w0", "finding", changes={"a": b"%d" % number})
        checkpoint = space.witnesses.checkpoint().checkpoint

    def checked(**options: str) -> int:
        report = verify_trust(connect(str(path), SETTINGS), **options)  # type: ignore[arg-type]
        assert report.findings == ()
        return report.commits

    commits = checked(cache=cache)
    works = [checked, lambda: checked(cache=cache), lambda: checked(since=checkpoint), _bare_signatures(commits)]
    first, again, since, floor = in_turns(works, rounds)
    a_second = f"{commits / first * 1000:,.0f} commits a second"
    yield Row("verify-first", first, floor, note=a_second)
    yield Row("verify-again", again, floor)
    yield Row("verify-since", since, floor)


def _bare_signatures(count: int) -> Callable[[], None]:
    """Verify as many signatures of the length of a commit."""
    private = Ed25519PrivateKey.generate()
    data = b"x" * 100
    signature, public = private.sign(data), private.public_key()

    def work() -> None:
        for _ in range(count):
            public.verify(signature, data)

    return work


def _proofs(rounds: int) -> Row:
    """Decisions with passkeys: each statement and assertion is read and verified."""
    key = SoftAuthenticator(f"http://{HOST}:8337", HOST)
    passkey = Passkey(b64url(key.credential), key.public, PasskeyPlace(HOST, (f"http://{HOST}:8337",)))
    enrolled, pairs = passkey.enrolled("Ada"), []
    for number in range(PROOFS):
        statement = PersonalStatement("space", DECIDE, "Ada", "scout", 1_780_000_000, request=f"ask-{number}", value="yes")
        answer = json.loads(key.answer(statement.challenge()))["response"]
        pairs.append((statement, proof_of(assertion_in(answer), passkey)))

    def ours() -> None:
        for statement, proof in pairs:
            verify_proof(statement, proof, enrolled)

    cost, floor = in_turns([ours, _bare_signatures(PROOFS)], rounds)
    return Row("proofs", cost, floor)


def _checkpoints(top: Path, rounds: int) -> Row:
    """A checkpoint after a commit, less the commit."""
    count = itertools.count()
    with clia.open(_space(top / "checkpoints", signed=True, agents=AGENTS), settings=SETTINGS) as space:

        def commit() -> None:
            space.commit("w0", "finding", changes={"a": b"%d" % next(count)})

        def both() -> None:
            commit()
            assert space.witnesses.checkpoint().new

        cost, floor = in_turns([both, commit], rounds)
    return Row("checkpoint", cost - floor, floor)

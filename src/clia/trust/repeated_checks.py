"""Checking a record again that did not change: the report for the exact state of its refs is taken from the account's cache.

Invariant: only a report without findings is kept: for all refs, the files that hide objects, the options, and the version of clia
that made it. The commits that were verified must still exist. Anything else is checked from the start.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

from clia.trust.checkpoints.checks import CheckpointState, EndorsedHistory
from clia.trust.verification import AcceptedFinding, SignerCount, TrustChecks, TrustFinding, TrustOptions, TrustReport
from clia.trust.verified_cache import VerifiedCache
from clia.values.canonical import digest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from clia.git.repository import Git

CHECKS = 1
"""Raised whenever the checks change, so that reports of former ones do not count."""
_HIDING = ("info/grafts", "shallow", "objects/info/alternates", "config")


def repeated_report(git: Git, options: TrustOptions) -> TrustReport:
    """The report about a record: from the cache if nothing changed."""
    checks = TrustChecks(git)
    space = checks.read_space() or ""
    cache, state = VerifiedCache(str(options.cache), space), _state_of(git, options)
    cached = cache.report(state)
    if cached is not None and _still_exist(git, cache.commits()):
        with suppress(TypeError, ValueError, KeyError, IndexError):
            return _from_json(cached, options.now)
    report = TrustChecks(git).report(options)
    if report.clean:
        cache.keep_report(state, report)
    return report


def _state_of(git: Git, options: TrustOptions) -> str:
    """A digest of all that a report depends on."""
    refs = hashlib.sha256()
    for ref, cid in git.refs.under("refs/"):
        refs.update(f"{cid} {ref}\n".encode("utf-8", "surrogateescape"))
    hiding = {name: _content(os.path.join(git.handle.common_dir, *name.split("/"))) for name in _HIDING}
    chosen = [options.root, options.strict, options.since, sorted(options.witnesses)]
    return digest([CHECKS, _version(), refs.hexdigest(), hiding, chosen])


def _version() -> str:
    try:
        return version("clia-agents")
    except PackageNotFoundError:
        return ""


def _content(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return ""


def _still_exist(git: Git, cids: set[str]) -> bool:
    return bool(cids) and git.objects.has_all(cids)


def _from_json(cached: Any, now: int | None) -> TrustReport:
    """A report as it was written; only the age of the cosigned checkpoint changes."""
    body = dict(zip(TrustReport._fields, cached, strict=True))
    body["signers"] = tuple(SignerCount(*item) for item in body["signers"])
    body["findings"] = ()
    body["accepted"] = tuple(AcceptedFinding(TrustFinding(*item[0]), *item[1:]) for item in body["accepted"])
    body["ignored"] = tuple(body["ignored"])
    state = CheckpointState(*body["checkpoints"])
    age = None if now is None or state.cosigned_at is None else max(0, now - state.cosigned_at)
    body["checkpoints"] = state._replace(age=age, witnesses=tuple(state.witnesses))
    body["endorsed"] = tuple(EndorsedHistory(*item) for item in body["endorsed"])
    return TrustReport(**body)

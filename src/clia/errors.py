"""The one tree of errors.

Invariant: every failure that leaves the library is a ``CliaError`` with a stable kebab-case ``code``, a
message for a person, hints on what to do, and fields for a program; it goes to JSON and back unchanged.
Control flow derives from ``BaseException`` so that ``except Exception`` never swallows it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


class CliaError(Exception):
    """Base of all errors; ``code`` is what users see and programs match on."""

    code = "error"

    def __init__(
        self,
        message: str,
        *,
        hints: Sequence[str] = (),
        fields: Mapping[str, Any] | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
        self.message = message
        self.hints = tuple(hints)
        self.fields = dict(fields or {})

    def to_json(self) -> dict[str, Any]:
        return {"code": self.code, "message": self.message, "hints": list(self.hints), "fields": self.fields}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> CliaError:
        """The error that ``to_json`` described; an unknown code gives the base class with that code."""
        kind = _by_code().get(data["code"], CliaError)
        return kind(data["message"], hints=data["hints"], fields=data["fields"], code=data["code"])


class InvalidInput(CliaError):
    """What the caller gave cannot be used as it is."""

    code = "invalid-input"


class InvalidDocument(InvalidInput):
    """A file's content is not what it must be; ``fields`` name path, line, column or pointer."""

    code = "invalid-document"


class InvalidFlow(InvalidInput):
    code = "invalid-flow"


class InvalidAnswer(InvalidInput):
    code = "invalid-answer"


class UnsafePath(InvalidInput):
    """A path that would leave the place it must stay in."""

    code = "unsafe-path"


class UnknownKind(InvalidInput):
    code = "unknown-kind"


class UnsupportedFormat(InvalidInput):
    code = "unsupported-format"


class NotFound(CliaError):
    """Something named does not exist."""

    code = "not-found"


class NoSuchAgent(NotFound):
    code = "no-such-agent"


class AgentNotFound(NoSuchAgent):
    """No context of a working path holds the agent; ``fields['searched']`` lists the directories."""

    code = "agent-not-found"


class NoSuchObject(NotFound):
    code = "no-such-object"


class Ambiguous(NotFound):
    """A short name matches more than one thing; ``fields['matches']`` lists them."""

    code = "ambiguous"


class Conflict(CliaError):
    """The world moved, or the name is taken; nothing was written."""

    code = "conflict"


class AlreadyExists(Conflict):
    """The name is taken; ``actual`` is what has it, where that is an object."""

    code = "already-exists"

    @property
    def actual(self) -> str | None:
        return self.fields.get("actual")


class StaleRef(Conflict):
    """A ref is not where the caller thought: ``expected`` and ``actual``, None where there is nothing."""

    code = "stale-ref"

    @property
    def expected(self) -> str | None:
        return self.fields.get("expected")

    @property
    def actual(self) -> str | None:
        return self.fields.get("actual")


class StaleRequest(Conflict):
    """The question was answered already; ``answered_by`` says by whom."""

    code = "stale-request"

    @property
    def answered_by(self) -> str | None:
        return self.fields.get("answered_by")


class Denied(CliaError):
    """Allowed to ask, not allowed to do."""

    code = "denied"


class CapabilityDenied(Denied):
    code = "capability-denied"


class BadSignature(Denied):
    code = "bad-signature"


class UntrustedPeer(Denied):
    code = "untrusted-peer"


class NotAllowed(Denied):
    code = "not-allowed"


class ReplayError(CliaError):
    """A recorded run and its replay disagree."""

    code = "replay-error"


class Nondeterminism(ReplayError):
    code = "nondeterminism"


class CorruptJournal(ReplayError):
    code = "corrupt-journal"


class BackendError(CliaError):
    """A part below the domain failed; ``retryable`` says whether trying again can help."""

    code = "backend-error"
    retryable = False


class FileError(BackendError):
    """The file system refused; ``fields`` name the path and the reason."""

    code = "file-error"


class GitError(BackendError):
    code = "git-error"


class StoreError(BackendError):
    code = "store-error"


class TransportError(BackendError):
    code = "transport-error"
    retryable = True


class EngineError(BackendError):
    code = "engine-error"


class Suspended(BaseException):
    """A flow waits for an answer. Control flow, not a failure."""


class Cancelled(BaseException):
    """A flow was told to stop. Control flow, not a failure."""


def _by_code() -> dict[str, type[CliaError]]:
    found: dict[str, type[CliaError]] = {}
    open_list: list[type[CliaError]] = [CliaError]
    while open_list:
        kind = open_list.pop()
        found[kind.code] = kind
        open_list.extend(kind.__subclasses__())
    return found

"""The error classes.

Invariant: every error that the library raises is a ``CliaError`` with a stable kebab-case ``code``, a message for people, hints
on what to do and fields for programs. It survives a round trip through JSON. Control flow derives from ``BaseException``, so
that ``except Exception`` never swallows it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Annotated, Any

    from clia.values.records import ErrorFields


class CliaError(Exception):
    """Base of all errors. Programs match on ``code``."""

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

    def to_json(self) -> Annotated[dict[str, Any], ErrorFields]:
        return {"code": self.code, "message": self.message, "hints": list(self.hints), "fields": self.fields}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> CliaError:
        """Return the error that ``to_json`` described; an unknown code gives the base class with that code."""
        kind = _by_code().get(data["code"], CliaError)
        return kind(data["message"], hints=data["hints"], fields=data["fields"], code=data["code"])


class InvalidInput(CliaError):
    """The caller's input is invalid."""

    code = "invalid-input"


class InvalidDocument(InvalidInput):
    """A file's content is invalid; ``fields`` has the path, line, column or pointer."""

    code = "invalid-document"


class InvalidFlow(InvalidInput):
    code = "invalid-flow"


class InvalidAnswer(InvalidInput):
    code = "invalid-answer"


class UnsafePath(InvalidInput):
    """A path would leave its directory."""

    code = "unsafe-path"


class UnknownKind(InvalidInput):
    code = "unknown-kind"


class UnsupportedFormat(InvalidInput):
    code = "unsupported-format"


class NotFound(CliaError):
    """The named thing does not exist."""

    code = "not-found"


class NoSuchAgent(NotFound):
    code = "no-such-agent"


class AgentNotFound(NoSuchAgent):
    """No context of a working path has the agent; ``fields['searched']`` lists the directories."""

    code = "agent-not-found"


class NoSuchObject(NotFound):
    code = "no-such-object"


class Ambiguous(NotFound):
    """A short name matches several things; ``fields['matches']`` lists them."""

    code = "ambiguous"


class Conflict(CliaError):
    """Something changed meanwhile, or the name is taken. Nothing was written."""

    code = "conflict"


class AlreadyExists(Conflict):
    """The name is taken; ``actual`` is the object that has it, if it is one."""

    code = "already-exists"

    @property
    def actual(self) -> str | None:
        return self.fields.get("actual")


class StaleRef(Conflict):
    """A ref has moved: ``expected`` and ``actual`` are its values, None if it does not exist."""

    code = "stale-ref"

    @property
    def expected(self) -> str | None:
        return self.fields.get("expected")

    @property
    def actual(self) -> str | None:
        return self.fields.get("actual")


class StaleRequest(Conflict):
    """The request was already answered, by ``answered_by``."""

    code = "stale-request"

    @property
    def answered_by(self) -> str | None:
        return self.fields.get("answered_by")


class Denied(CliaError):
    """The caller is not allowed to do this."""

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
    """A backend failed; ``retryable`` says whether a retry may help."""

    code = "backend-error"
    retryable = False


class FileError(BackendError):
    """A file operation failed; ``fields`` has the path and the reason."""

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
    """A flow waits for an answer. Control flow, not an error."""


class Cancelled(BaseException):
    """A flow was cancelled. Control flow, not an error."""


def _by_code() -> dict[str, type[CliaError]]:
    classes: dict[str, type[CliaError]] = {}
    queue: list[type[CliaError]] = [CliaError]
    while queue:
        kind = queue.pop()
        classes[kind.code] = kind
        queue.extend(kind.__subclasses__())
    return classes

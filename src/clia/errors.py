"""The error classes.

Invariant: every error that the library raises is a ``CliaError`` with a stable kebab-case ``code``, a message for people, hints
on what to do and fields for programs. It survives a round trip through JSON. Control flow derives from ``BaseException``, so
that ``except Exception`` never swallows it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Annotated, Any

    from clia.values.records import ErrorFields

_CANDIDATES_MAX = 2000
EXTRAS = {
    "flows": ("pydantic_monty",),
    "lint": ("jsonschema", "referencing"),
    "forge": ("starlette", "uvicorn", "jinja2", "python_multipart", "prometheus_client", "webauthn"),
    "mcp": ("mcp", "mcp_types"),
    "federation": ("joserfc",),
    "postgres": ("psycopg", "psycopg_pool", "procrastinate"),
    "otlp": ("opentelemetry",),
}
"""The extras of the distribution, with the modules that each installs."""


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


class AwaitsOthers(Conflict):
    """The caller's statement is recorded; the act is carried out once enough other people state the same."""

    code = "awaits-others"


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


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """The end of a message about an unknown name: ``; did you mean 'finding'?``, or nothing if no candidate is similar."""
    from difflib import get_close_matches  # only after a mistake
    from itertools import islice

    matches = get_close_matches(word.lower(), list(islice(candidates, _CANDIDATES_MAX)), n=1)
    return f"; did you mean {matches[0]!r}?" if matches else ""


def missing_extra(module: str | None) -> CliaError | None:
    """The error for a module of an extra that is not installed; None for another module."""
    top = (module or "").partition(".")[0]
    extra = next((name for name, modules in EXTRAS.items() if top in modules), None)
    if extra is None:
        return None
    hints = [f"pip install 'clia-agents[{extra}]'"]
    fields = {"extra": extra, "module": module}
    return InvalidInput(f"this needs the extra {extra}, which is not installed", code="missing-extra", hints=hints, fields=fields)


def require_extra(extra: str) -> None:
    """Raise ``missing-extra`` unless the modules of an extra are installed."""
    from importlib.util import find_spec

    missing = next((module for module in EXTRAS[extra] if find_spec(module) is None), None)
    error = missing_extra(missing)
    if error is not None:
        raise error

"""The operator's configuration, read from a TOML file.

Invariant: if a key is unknown or a value has the wrong type, nothing of the file is used: a mistyped setting never passes for its
default. Tables of third-party effects (``[effects.NAME]``) are checked by their packages. The file holds no secrets, only the
names of variables that do.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from clia.errors import InvalidDocument, NotFound
from clia.values.refs import is_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from clia.behaviours.suggesting import Policy

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_MAX_BYTES = 1024 * 1024
_SECONDS_MAX = 10 * 365 * 86400  # the system's clocks and waits overflow beyond this
_COUNT_MAX = 10**9
JOURNAL_EVENTS = DECISIONS, LANDINGS, SESSIONS = ("decisions", "landings", "sessions")
R = TypeVar("R", bound=Any)


class FlowLimits(NamedTuple):
    """Limits of one turn of a flow."""

    turn_seconds: float = 5.0
    memory_mb: int = 64


class WorkerOptions(NamedTuple):
    """Options of a worker."""

    lease_seconds: float = 30.0  # a worker without a heartbeat for this long loses its tasks to others
    attempts: int = 5
    backoff_seconds: float = 1.0  # before the second attempt; doubles with each attempt
    backoff_max_seconds: float = 300.0
    concurrency: int = 4
    poll_seconds: float = 0.5
    grace_seconds: float = 10.0  # for running effects to finish when the worker stops
    timeout_seconds: float = 600.0  # for one attempt of an effect without its own timeout
    behaviours_seconds: float = 60.0  # interval of evaluating behaviours whose policy adopts automatically
    hub_seconds: float = 5.0  # interval of syncing with the hub, by workers and forges


class Llm(NamedTuple):
    """An endpoint with OpenAI's chat completions API."""

    url: str
    model: str | None = None
    api_key_env: str | None = None
    timeout_seconds: float = 60.0
    instructions: bool = True  # a system message with the agent's guardrails, identity and briefing comes first


class ProgramRule(NamedTuple):
    """A program that flows may run."""

    run: tuple[str, ...]
    timeout_seconds: float = 600.0
    environment: tuple[str, ...] = ()  # names of the environment variables it gets
    kind: str = "finding"  # kind of the commit with its changes
    arguments: tuple[str, ...] | None = None  # patterns of the arguments that flows may pass; None: any, if it runs no others


class RunRules(NamedTuple):
    """How the worktrees of agents are created."""

    directory: str | None = None  # the parent directory; None: below the user's state directory
    copy: tuple[str, ...] = ()  # paths copied from the user's worktree into a new one
    link: tuple[str, ...] = ()  # paths that become symbolic links to the user's worktree
    setup: str | None = None  # a shell command that is run once in a new worktree


class CaptureOptions(NamedTuple):
    """Which files of captured turns and runs are recorded."""

    size_mb: int = 10  # a larger file is not recorded; megabytes
    allow: tuple[str, ...] = ()  # patterns of paths that are recorded whatever their size, and even with secrets
    identity: str | None = None  # identity of sessions that name none


class JournalOptions(NamedTuple):
    """What is written to the journals of agents' identities."""

    write: tuple[str, ...] = ()  # decisions, landings, sessions


class Webhook(NamedTuple):
    """An address that the forge notifies about waiting and decided requests."""

    url: str
    secret_env: str  # the variable with the signing secret
    events: tuple[str, ...] = ("waiting", "decided")
    timeout_seconds: float = 10.0


class ForgeOptions(NamedTuple):
    """Options of a forge."""

    address: str = ""  # as browsers reach it: https://forge.example; used for cookies and links
    body_max: int = 8 * 1024 * 1024  # bytes of one request
    per_minute: int = 3000  # requests of a user, or of an address that is not logged in
    logins_per_minute: int = 20  # failed logins of an address
    listeners: int = 1000  # concurrent listeners for events
    proxy_header: str | None = None  # header in which a trusted proxy names the user
    proxies: tuple[str, ...] = ()  # addresses of trusted proxies
    proxy_secret_env: str | None = None  # the variable with the secret that a trusted proxy sends
    webhooks: Mapping[str, Webhook] = MappingProxyType({})


class FederationOptions(NamedTuple):
    """Options for syncing with peers."""

    transfer_mb: int = 1024  # limit of one transfer
    transfer_seconds: float = 600.0
    every_seconds: float = 600.0  # interval of syncing with every peer, in addition to notifications
    announce_seconds: float = 5.0  # interval of announcing changes


class ApprovalRules(NamedTuple):
    """Who approves changes that take guardrails away, and what follows."""

    people: tuple[str, ...] = ()  # names or e-mail addresses; empty: every person
    land: str | None = None  # the branch on which approved work lands at once; None: a person lands it


class PromptOptions(NamedTuple):
    """Options of permission prompts of coding tools."""

    forward: str = "run"  # whose own prompts become questions to people: `run` (of `clia run`), `always` or `never`
    wait_seconds: float = 570.0  # how long a tool waits for an answer, within the time limit of its hook
    grant_seconds: float = 28800.0  # how long the answer `always` counts


class Budget(NamedTuple):
    """What an agent, the agents of an identity, or all agents may use."""

    scope: str = ""  # `space`, `identity` or `agent`
    name: str = ""  # the identity or agent
    per: str = "day"  # `day` (UTC) or, of an agent, `session`
    tokens: int | None = None
    cost: float | None = None  # in the currency that the tools report, or of `token_price`
    seconds: float | None = None  # from the start to the last event of the tools' sessions
    calls: int | None = None  # calls of tools
    commits: int | None = None
    warn: float = 0.8  # share from which the trace has a note
    token_price: float = 0.0  # cost of a million tokens, where a tool reports no cost


class Config(NamedTuple):
    """The operator's configuration."""

    answers: Mapping[str, Any] = _NOTHING  # JSON Schema of answers, by kind of request
    flows: FlowLimits = FlowLimits()
    worker: WorkerOptions = WorkerOptions()
    llm: Llm | None = None
    programs: Mapping[str, ProgramRule] = MappingProxyType({})
    run: RunRules = RunRules()
    capture: CaptureOptions = CaptureOptions()
    journal: JournalOptions = JournalOptions()
    effects: Mapping[str, Mapping[str, Any]] = MappingProxyType({})  # tables of third-party effects
    forge: ForgeOptions = ForgeOptions()
    federation: FederationOptions = FederationOptions()
    behaviours: Mapping[str, Policy] = MappingProxyType({})  # policies by behaviour name, or ``*`` for all others
    approvals: ApprovalRules = ApprovalRules()
    prompts: PromptOptions = PromptOptions()
    budgets: tuple[Budget, ...] = ()
    path: str | None = None  # the file it was read from


def read_config(path: str | None, *, required: bool = False) -> Config:
    """The configuration in a file. The defaults if there is no path, or no file and it is not ``required``."""
    if path is None:
        return Config()
    data = _read(path)
    if data is None:
        if required:
            raise NotFound(f"configuration file {path} does not exist", code="no-such-config", fields={"path": path})
        return Config()
    import tomllib  # only if there is a file

    try:
        values = tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as err:
        raise _invalid(path, "", f"not TOML: {err}") from None
    except ValueError:  # a number with thousands of digits
        raise _invalid(path, "", "not TOML: a number or a time in it is too large") from None
    return _config(_Table(path, "", values))


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as err:
        raise _invalid(path, "", f"cannot be read: {err.strerror}") from None
    if len(data) > _MAX_BYTES:
        raise _invalid(path, "", f"larger than the limit of {_MAX_BYTES} bytes")
    return data


def _config(top: _Table) -> Config:
    top.only(
        "answers",
        "flows",
        "worker",
        "run",
        "capture",
        "journal",
        "effects",
        "forge",
        "federation",
        "behaviours",
        "approvals",
        "prompts",
        "budget",
    )
    answers = {kind: table.only("schema").need("schema", _table) for kind, table in top.tables("answers")}
    effects = dict(top.tables("effects"))
    llm, command = effects.pop("llm", None), effects.pop("command", None)
    for table in effects.values():
        table.take("timeout_seconds", _positive)  # every effect has it
    programs = () if command is None else command.only("programs").tables("programs")
    return Config(
        answers=answers,
        flows=top.table("flows").record(FlowLimits),
        worker=top.table("worker").record(WorkerOptions),
        run=top.table("run").record(RunRules, directory=_directory, copy=_inner_paths, link=_inner_paths),
        capture=top.table("capture").record(CaptureOptions),
        journal=top.table("journal").record(JournalOptions, write=_journal_events),
        llm=None if llm is None else llm.record(Llm, url=_url),
        programs={name: table.record(ProgramRule, run=_words, arguments=_texts) for name, table in programs},
        effects={kind: dict(table.values) for kind, table in effects.items()},
        forge=_forge(top.table("forge")),
        federation=top.table("federation").record(FederationOptions),
        behaviours={name: _policy(name, table) for name, table in top.tables("behaviours")},
        approvals=top.table("approvals").record(ApprovalRules),
        budgets=tuple(_budgets(top.table("budget"))),
        prompts=top.table("prompts").record(PromptOptions, forward=_forward),
        path=top.path,
    )


def _budgets(table: _Table) -> Iterator[Budget]:
    table.only("space", "identity", "agent")
    if "space" in table.values:
        yield _budget("space", "", table.table("space"))
    for scope in ("identity", "agent"):
        for name, own in table.tables(scope):
            yield _budget(scope, name, own)


def _budget(scope: str, name: str, table: _Table) -> Budget:
    table.only(*Budget._fields[2:])
    counts = dict.fromkeys(("tokens", "calls", "commits"), _count)
    amounts = dict.fromkeys(("cost", "seconds", "token_price"), _positive)
    budget = table.record(Budget, per=_per, warn=_part, **counts, **amounts)
    if budget.per == "session" and scope != "agent":
        raise _invalid(table.path, f"budget.{scope}", "per must be day: only an agent has sessions")
    if all(getattr(budget, limit) is None for limit in ("tokens", "cost", "seconds", "calls", "commits")):
        raise _invalid(table.path, f"budget.{scope}", "limits nothing: set tokens, cost, seconds, calls or commits")
    return budget._replace(scope=scope, name=name)


def _per(value: Any) -> str:
    if value not in ("day", "session"):
        raise _InvalidValue("must be day or session")
    return str(value)


def _part(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1:
        raise _InvalidValue("must be a number above 0 and at most 1")
    return float(value)


def _forward(value: Any) -> str:
    if value not in ("run", "always", "never"):
        raise _InvalidValue("must be run, always or never")
    return str(value)


def _forge(table: _Table) -> ForgeOptions:
    hooks = {name: hook.record(Webhook, url=_url, events=_hook_events) for name, hook in table.tables("webhooks")}
    return table.record(ForgeOptions, address=_url, webhooks=lambda _: hooks)


def _journal_events(value: Any) -> tuple[str, ...]:
    events = _texts(value)
    if any(event not in JOURNAL_EVENTS for event in events):
        raise _InvalidValue(f"must be a list of {', '.join(JOURNAL_EVENTS)}")
    return events


def _hook_events(value: Any) -> tuple[str, ...]:
    events = _texts(value)
    allowed = Webhook._field_defaults["events"]
    if not events or any(event not in allowed for event in events):
        raise _InvalidValue(f"must be a list of {' and '.join(allowed)}")
    return events


def _policy(name: str, table: _Table) -> Policy:
    from clia.behaviours.suggesting import Policy  # only if there is one: every command reads this file

    if name != "*" and not is_name(name):
        raise _invalid(table.path, f"behaviours.{name}", "is neither the name of a behaviour nor *")
    return table.record(Policy, measure=_measure, error=_share)


def _measure(value: Any) -> str:
    from clia.behaviours.measures import MEASURES

    if not isinstance(value, str) or value not in MEASURES:
        raise _InvalidValue(f"must be one of {', '.join(MEASURES)}")
    return value


def _share(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 0.5:
        raise _InvalidValue("must be a probability above 0 and at most 0.5")
    return float(value)


class _Table:
    """A table of the file, with its dotted name."""

    def __init__(self, path: str, where: str, values: Mapping[str, Any]) -> None:
        self.path = path
        self.values = values
        self._where = where

    def only(self, *allowed: str) -> _Table:
        for key in self.values:
            if key not in allowed:
                raise _invalid(self.path, self._name(key), f"is unknown; known here: {', '.join(allowed)}")
        return self

    def take(self, key: str, read: Callable[[Any], Any]) -> Any:
        """The value of a key; None if it is missing."""
        if key not in self.values:
            return None
        try:
            return read(self.values[key])
        except _InvalidValue as err:
            raise _invalid(self.path, self._name(key), str(err)) from None

    def need(self, key: str, read: Callable[[Any], Any]) -> Any:
        if key not in self.values:
            raise _invalid(self.path, self._name(key), "is missing")
        return self.take(key, read)

    def record(self, kind: type[R], **readers: Callable[[Any], Any]) -> R:
        """A record of the table's values: a field with a default is optional. ``readers``: fields not read by their type."""
        self.only(*kind._fields)
        values = {}
        for field, annotation in kind.__annotations__.items():
            read = readers.get(field) or _READERS[str(getattr(annotation, "__forward_arg__", annotation))]
            value = (self.take if field in kind._field_defaults else self.need)(field, read)
            if value is not None:
                values[field] = value
        record: R = kind(**values)
        return record

    def table(self, key: str) -> _Table:
        return _Table(self.path, self._name(key), self.take(key, _table) or {})

    def tables(self, key: str) -> Iterator[tuple[str, _Table]]:
        outer = self.table(key)
        return ((name, outer.table(name)) for name in outer.values)

    def _name(self, key: str) -> str:
        return f"{self._where}.{key}" if self._where else key


class _InvalidValue(Exception):
    """A problem with a value; never leaves this module."""


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _InvalidValue("must be a table")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise _InvalidValue("must be a non-empty text")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise _InvalidValue("must be a list of texts")
    return tuple(map(_text, value))


def _words(value: Any) -> tuple[str, ...]:
    words = _texts(value)
    if not words:
        raise _InvalidValue("must name a program")
    return words


def _directory(value: Any) -> str:
    path = _text(value)
    if not path.startswith(("/", "~/")):
        raise _InvalidValue("must be an absolute path, or start with ~/")
    return path


def _inner_paths(value: Any) -> tuple[str, ...]:
    """Paths inside of a repository."""
    listed = _texts(value)
    for path in listed:
        parts = path.removesuffix("/").split("/")
        if any(part in ("", ".", "..") or part.lower() == ".git" for part in parts):
            raise _InvalidValue(f"must list relative paths inside the repository, not {path!r}")
    return tuple(path.removesuffix("/") for path in listed)


def _url(value: Any) -> str:
    text = _text(value)
    if not text.startswith(("http://", "https://")) or "@" in text or "?" in text or "#" in text:
        raise _InvalidValue("must be an http:// or https:// address without user, query or fragment")
    from urllib.parse import urlsplit  # 10 ms, only if an endpoint is configured

    try:
        parts = urlsplit(text)
        host = parts.hostname if parts.port != 0 else None
    except ValueError:  # unbalanced brackets, or a port out of range
        host = None
    if not host or not text.isascii() or not text.isprintable() or " " in text:
        raise _InvalidValue("must be an address with a host and, optionally, a port up to 65535")
    return text.rstrip("/")


def _positive(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= _SECONDS_MAX:
        raise _InvalidValue(f"must be a number above 0 and at most {_SECONDS_MAX} (ten years)")
    return float(value)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _COUNT_MAX:
        raise _InvalidValue(f"must be a whole number from 1 to {_COUNT_MAX}")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _InvalidValue("must be true or false")
    return value


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "str": _text,
    "str | None": _text,
    "tuple[str, ...]": _texts,
    "int": _count,
    "float": _positive,
    "bool": _flag,
}
"""How the value of a field is read, by the type of the field."""


def _invalid(path: str, field: str, problem: str) -> InvalidDocument:
    where = f"{path}: {field}" if field else path
    fields = {"path": path} | ({"field": field} if field else {})
    return InvalidDocument(f"{where} {problem}" if field else f"{where}: {problem}", code="invalid-config", fields=fields)

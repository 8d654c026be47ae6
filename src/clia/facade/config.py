"""The operator's configuration, read from a TOML file.

Invariant: if a key is unknown or a value has the wrong type, nothing of the file is used: a mistyped setting never passes for its
default. Tables of third-party effects (``[effects.NAME]``) are checked by their packages. The file holds no secrets, only the
names of variables that do.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import NamedTuple

from clia.errors import InvalidDocument, NotFound
from clia.values.refs import is_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from clia.behaviours.suggesting import Policy

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_MAX_BYTES = 1024 * 1024
_SECONDS_MAX = 10 * 365 * 86400  # beyond it clocks and waits of the system overflow
_COUNT_MAX = 10**9


class FlowLimits(NamedTuple):
    """What one turn of a flow may use."""

    turn_seconds: float = 5.0
    memory_mb: int = 64


class WorkerOptions(NamedTuple):
    """How a worker works."""

    lease_seconds: float = 30.0  # a worker that is not heard of for so long has lost its work to others
    attempts: int = 5
    backoff_seconds: float = 1.0  # before the second attempt; doubled with each
    backoff_max_seconds: float = 300.0
    concurrency: int = 4
    poll_seconds: float = 0.5
    grace_seconds: float = 10.0  # what runs may take so long to end when the worker is told to stop
    timeout_seconds: float = 600.0  # for one attempt of an effect that has no time of its own
    behaviours_seconds: float = 60.0  # how often behaviours are judged whose policy adopts by itself
    hub_seconds: float = 5.0  # how often the clone and its hub are brought together, by workers and forges


class Llm(NamedTuple):
    """An endpoint that speaks OpenAI's chat completions."""

    url: str
    model: str | None = None
    api_key_env: str | None = None
    timeout_seconds: float = 60.0


class ProgramRule(NamedTuple):
    """A program that flows may have run, and how."""

    run: tuple[str, ...]
    timeout_seconds: float = 600.0
    environment: tuple[str, ...] = ()  # names of variables that it may see
    kind: str = "finding"  # of the commit that its changes become


class Webhook(NamedTuple):
    """Whom the forge tells that something waits or was decided."""

    url: str
    secret_env: str  # the variable that holds what deliveries are signed with
    events: tuple[str, ...] = ("waiting", "decided")
    timeout_seconds: float = 10.0


class ForgeOptions(NamedTuple):
    """How a forge serves."""

    address: str = ""  # as browsers reach it: https://forge.example; cookies and links follow it
    body_max: int = 8 * 1024 * 1024  # bytes of one request
    per_minute: int = 3000  # requests of one user, or of one address that is not logged in
    logins_per_minute: int = 20  # wrong tokens of one address
    listeners: int = 1000  # of events at a time
    proxy_header: str | None = None  # in which a trusted proxy names the user
    proxies: tuple[str, ...] = ()  # the addresses that this header is believed from
    webhooks: Mapping[str, Webhook] = MappingProxyType({})


class FederationOptions(NamedTuple):
    """How other spaces are listened to."""

    transfer_mb: int = 1024  # what one transfer may take
    transfer_seconds: float = 600.0
    every_seconds: float = 600.0  # how often a forge listens to every peer, besides when one knocks
    announce_seconds: float = 5.0  # how often it looks whether there is something to tell them


class Config(NamedTuple):
    """Everything that the operator decides."""

    answers: Mapping[str, Any] = _NOTHING  # by kind of request: the JSON Schema of its answers
    flows: FlowLimits = FlowLimits()
    worker: WorkerOptions = WorkerOptions()
    llm: Llm | None = None
    programs: Mapping[str, ProgramRule] = MappingProxyType({})
    effects: Mapping[str, Mapping[str, Any]] = MappingProxyType({})  # the tables of effects that others bring
    forge: ForgeOptions = ForgeOptions()
    federation: FederationOptions = FederationOptions()
    behaviours: Mapping[str, Policy] = MappingProxyType({})  # by name, ``*`` for all others: what each is judged by
    path: str | None = None  # where it was read


def read_config(path: str | None, *, required: bool = False) -> Config:
    """What a file says. No path, or no file unless it is ``required``: the defaults."""
    if path is None:
        return Config()
    data = _read(path)
    if data is None:
        if required:
            raise NotFound(f"there is no configuration at {path}", code="no-such-config", fields={"path": path})
        return Config()
    import tomllib  # only where there is a file

    try:
        made = tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as err:
        raise _invalid(path, "", f"not TOML: {err}") from None
    except ValueError:  # what Python says of a number with thousands of digits is of no use here
        raise _invalid(path, "", "not TOML: a number or a time in it is too large") from None
    return _config(_Table(path, "", made))


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
    top.only("answers", "flows", "worker", "effects", "forge", "federation", "behaviours")
    answers = {kind: table.only("schema").need("schema", _table) for kind, table in top.tables("answers")}
    effects = dict(top.tables("effects"))
    llm, command = effects.pop("llm", None), effects.pop("command", None)
    for table in effects.values():
        table.take("timeout_seconds", _positive)  # every effect has it
    flows, worker, federation = FlowLimits(), WorkerOptions(), FederationOptions()
    return Config(
        answers=answers,
        flows=flows._replace(**_numbers(top.table("flows"), flows._asdict())),
        worker=worker._replace(**_numbers(top.table("worker"), worker._asdict())),
        llm=None if llm is None else _llm(llm),
        programs={} if command is None else dict(_programs(command)),
        effects={kind: dict(table.values) for kind, table in effects.items()},
        forge=_forge(top.table("forge")),
        federation=federation._replace(**_numbers(top.table("federation"), federation._asdict())),
        behaviours={name: _policy(name, each) for name, each in top.tables("behaviours")},
        path=top.path,
    )


def _forge(table: _Table) -> ForgeOptions:
    made = ForgeOptions()
    table.only(*made._fields)
    said = {
        "address": table.take("address", _url),
        "proxy_header": table.take("proxy_header", _text),
        "proxies": table.take("proxies", _texts),
        **{name: table.take(name, _count) for name in ("body_max", "per_minute", "logins_per_minute", "listeners")},
        "webhooks": {name: _webhook(each) for name, each in table.tables("webhooks")},
    }
    return made._replace(**{name: value for name, value in said.items() if value is not None})


def _webhook(table: _Table) -> Webhook:
    table.only(*Webhook._fields)
    made = Webhook(table.need("url", _url), table.need("secret_env", _text))
    said = {"events": table.take("events", _hook_events), "timeout_seconds": table.take("timeout_seconds", _positive)}
    return made._replace(**{name: value for name, value in said.items() if value is not None})


def _hook_events(value: Any) -> tuple[str, ...]:
    found = _texts(value)
    known = Webhook._field_defaults["events"]
    if not found or any(each not in known for each in found):
        raise _Refused(f"must be a list of {' and '.join(known)}")
    return found


def _policy(name: str, table: _Table) -> Policy:
    from clia.behaviours.suggesting import Policy  # only where there is one: every command reads this file

    table.only(*Policy._fields)
    if name != "*" and not is_name(name):
        raise _invalid(table.path, f"behaviours.{name}", "is no behaviour's name, and not *")
    said = {
        "measure": table.take("measure", _measure),
        "least": table.take("least", _count),
        "error": table.take("error", _share),
        "adopt": table.take("adopt", _flag),
    }
    return Policy(**{field: value for field, value in said.items() if value is not None})


def _measure(value: Any) -> str:
    from clia.behaviours.measures import MEASURES

    if not isinstance(value, str) or value not in MEASURES:
        raise _Refused(f"must be one of {', '.join(MEASURES)}")
    return value


def _share(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 0.5:
        raise _Refused("must be a probability above 0, and at most 0.5")
    return float(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _Refused("must be true or false")
    return value


def _numbers(table: _Table, defaults: Mapping[str, int | float]) -> dict[str, Any]:
    table.only(*defaults)
    said = {name: table.take(name, _count if type(value) is int else _positive) for name, value in defaults.items()}
    return {name: value for name, value in said.items() if value is not None}


def _llm(table: _Table) -> Llm:
    table.only(*Llm._fields)
    made = Llm(table.need("url", _url), table.take("model", _text), table.take("api_key_env", _text))
    seconds = table.take("timeout_seconds", _positive)
    return made if seconds is None else made._replace(timeout_seconds=seconds)


def _programs(table: _Table) -> Iterator[tuple[str, ProgramRule]]:
    for name, rule in table.only("programs").tables("programs"):
        rule.only(*ProgramRule._fields)
        made = ProgramRule(rule.need("run", _words), environment=rule.take("environment", _texts) or ())
        said = {"timeout_seconds": rule.take("timeout_seconds", _positive), "kind": rule.take("kind", _text)}
        yield name, made._replace(**{field: value for field, value in said.items() if value is not None})


class _Table:
    """One table of the file, and where it stands."""

    def __init__(self, path: str, where: str, values: Mapping[str, Any]) -> None:
        self.path = path
        self.values = values
        self._where = where

    def only(self, *known: str) -> _Table:
        for key in self.values:
            if key not in known:
                raise _invalid(self.path, self._name(key), f"is not known; known here: {', '.join(known)}")
        return self

    def take(self, key: str, read: Callable[[Any], Any]) -> Any:
        """A value, read; None where it is not there."""
        if key not in self.values:
            return None
        try:
            return read(self.values[key])
        except _Refused as err:
            raise _invalid(self.path, self._name(key), str(err)) from None

    def need(self, key: str, read: Callable[[Any], Any]) -> Any:
        if key not in self.values:
            raise _invalid(self.path, self._name(key), "is missing")
        return self.take(key, read)

    def table(self, key: str) -> _Table:
        return _Table(self.path, self._name(key), self.take(key, _table) or {})

    def tables(self, key: str) -> Iterator[tuple[str, _Table]]:
        outer = self.table(key)
        return ((name, outer.table(name)) for name in outer.values)

    def _name(self, key: str) -> str:
        return f"{self._where}.{key}" if self._where else key


class _Refused(Exception):
    """What is wrong with a value; never leaves this module."""


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Refused("must be a table")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise _Refused("must be a text, and not empty")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise _Refused("must be a list of texts")
    return tuple(map(_text, value))


def _words(value: Any) -> tuple[str, ...]:
    words = _texts(value)
    if not words:
        raise _Refused("must name a program")
    return words


def _url(value: Any) -> str:
    text = _text(value)
    if not text.startswith(("http://", "https://")) or "@" in text or "?" in text or "#" in text:
        raise _Refused("must be an http:// or https:// address, without a user, a query or a fragment")
    from urllib.parse import urlsplit  # 10 ms, and only where an endpoint is configured

    try:
        parts = urlsplit(text)
        host = parts.hostname if parts.port != 0 else None
    except ValueError:  # brackets that do not match, a port beyond all ports
        host = None
    if not host or not text.isascii() or not text.isprintable() or " " in text:
        raise _Refused("must be an address with a host, and a port up to 65535 where it has one")
    return text.rstrip("/")


def _positive(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= _SECONDS_MAX:
        raise _Refused(f"must be a number above 0, and at most {_SECONDS_MAX} (ten years)")
    return float(value)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _COUNT_MAX:
        raise _Refused(f"must be a whole number from 1 to {_COUNT_MAX}")
    return value


def _invalid(path: str, field: str, problem: str) -> InvalidDocument:
    where = f"{path}: {field}" if field else path
    fields = {"path": path} | ({"field": field} if field else {})
    return InvalidDocument(f"{where} {problem}" if field else f"{where}: {problem}", code="invalid-config", fields=fields)

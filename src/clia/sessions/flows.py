"""Flows: behaviours of the kind ``session-flow``, by name.

Invariant: only flows that the engine can run are defined. A flow's current version is the one of its behaviour chain.
"""

from __future__ import annotations

from contextlib import closing, suppress
from functools import cache

from clia.errors import AlreadyExists, InvalidFlow, InvalidInput, NoSuchObject, NotFound, did_you_mean
from clia.sessions.model import Flow
from clia.space.behaviour_chains import ADOPT, DEFINE, ChainChange, read_behaviour
from clia.values import refs as names
from clia.values.commit_messages import check_text
from clia.values.commit_messages import parse as parse_message
from clia.values.typed_objects import PROMPT, SESSION_FLOW, Behaviour, as_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.engine.records import Engine, Problem
    from clia.space.behaviour_chains import BehaviourChains, ChainState
    from clia.space.core import Core

ASK = "ask"
ASK_SOURCE = """\
def main(input):
    return request("human", input)
"""
SOURCE_MAX = 256 * 1024


class Flows:
    def __init__(self, core: Core, chains: BehaviourChains, engine: Engine) -> None:
        self._core = core
        self._chains = chains
        self._engine = engine
        self._sources: dict[str, str] = {}  # by id: an object never changes

    def check(self, source: str, *, types: bool = False) -> list[Problem]:
        return check_source(self._engine, source, types=types)

    def define(self, name: str, source: str, why: str = "") -> Flow:
        """Make a source the current version of a flow; nothing is written if it already is."""
        core = self._core
        check_new_name(name)
        self.check_body(name, source)
        data = as_bytes(Behaviour(name, SESSION_FLOW, source).to_object())
        text = core.clean.text(why, "why")
        cid = core.objects.blob_id(data)

        def decide(now: ChainState) -> ChainChange | None:
            for version in list(now.versions)[:1]:
                self._read(version, name)  # raises an error if the name is of another kind of behaviour
            return None if now.current == cid else ChainChange(DEFINE, cid, core.person_stamp(), text, data)

        self._chains.change(name, decide)
        return self.get(name)

    def check_body(self, name: str, source: str) -> None:
        """Raise ``InvalidFlow`` if a source cannot be stored as a flow."""
        errors = [problem for problem in self.check(source) if problem.severity == "error"]
        if errors:
            first = errors[0]
            problems = [problem._asdict() for problem in errors]
            raise InvalidFlow(
                f"{name}:{first.line}:{first.column}: {first.message}",
                hints=[f"line {error.line}: {error.message}" for error in errors[1:10]] or ["clia flow check FILE explains"],
                fields={"flow": name, "line": first.line, "column": first.column, "problems": problems},
            )
        if self._core.clean.value(source) != source:
            message = f"the source of {name!r} seems to contain a secret"
            hints = ["git keeps flows forever; put the secret into an effect's configuration"]
            raise InvalidFlow(message, hints=hints, fields={"flow": name, "field": "source"})

    def all(self) -> list[Flow]:
        """Every flow, sorted by name."""
        flows = []
        for name in self._chains.names():
            with suppress(NotFound):  # another kind of behaviour, or none is current
                flows.append(self._get(name))
        return flows

    def resolve(self, text: str) -> tuple[str, str]:
        """The id and name of the flow to run: a name's current version, or a version by id."""
        tip = None if names.is_id(text) or text == ASK else self._core.refs.get(names.behaviour(names.check_name(text)))
        if tip is None:
            flow = self.get(text)
            return flow.cid, flow.name
        cid = self._current(text, tip)
        self.source(cid, text)
        return cid, text

    def _current(self, name: str, tip: str) -> str:
        state = self._chains.at(tip)
        if not state.versions:
            raise NoSuchObject(f"{name!r} is not a flow", code="not-a-flow", fields={"cid": tip})
        if state.current is None:
            message = f"the behaviour {name!r} has no current version: it is retired, or not adopted yet"
            hints = [f"clia behaviour show {name}", f"clia behaviour adopt {name} CID"]
            raise NotFound(message, code="nothing-adopted", hints=hints, fields={"behaviour": name})
        return state.current

    def get(self, text: str) -> Flow:
        """A flow by name, or one version by id."""
        return self._core.sought(lambda: self._get(text), NotFound)

    def _get(self, text: str) -> Flow:
        if names.is_id(text):
            behaviour = self._read(text)
            return Flow(behaviour.name, text, behaviour.body, (text,), "", 0, "")
        tip = self._core.refs.get(names.behaviour(names.check_name(text)))
        if tip is None or text == ASK:  # even if another clone defined one with this name
            if text == ASK:
                return Flow(ASK, self.ask(), ASK_SOURCE, (self.ask(),), "clia", 0, "built in: one question to a person")
            flows = [flow.name for flow in self.all()]
            hints = [f"flows here: {', '.join(flows) or 'none'}", "define one: clia flow define NAME FILE"]
            raise NotFound(f"no flow {text!r}{did_you_mean(text, flows)}", code="no-such-flow", hints=hints, fields={"flow": text})
        commit = self._core.objects.commit(tip)
        cid = self._current(text, tip)
        body = self._read(cid, text).body
        by = f"{commit.author.name} <{commit.author.email}>"
        # Every version that was ever current, oldest first, without repetitions.
        current = [entry.cid for entry in self._chains.history(tip) if entry.event in (DEFINE, ADOPT)]
        versions = tuple(dict.fromkeys(reversed(current)))
        return Flow(text, cid, body, versions, by, commit.author.at, parse_message(commit.message)[0])

    def _read(self, cid: str, name: str | None = None) -> Behaviour:
        behaviour = read_behaviour(self._core.objects, cid)
        if behaviour is not None and behaviour.kind == SESSION_FLOW:
            return behaviour
        message, hints = f"{name or cid!r} is not a flow", []
        if behaviour is not None and behaviour.kind == PROMPT:
            message = f"{name or cid!r} is a prompt, not a flow"
            hints = [f"use it for a briefing: clia spawn AGENT --title TITLE --behaviour {name or cid[:12]}"]
        raise NoSuchObject(message, code="not-a-flow", hints=hints, fields={"cid": cid} | ({"behaviour": name} if name else {}))

    def source(self, cid: str, name: str | None = None) -> str:
        """The source of a version. ``name`` is used in errors."""
        if cid not in self._sources:
            asks = cid == self.ask()
            self._sources[cid] = ASK_SOURCE if asks else self._core.sought(lambda: self._read(cid, name), NoSuchObject).body
        return self._sources[cid]

    def ask(self) -> str:
        """The id of the built-in ``ask`` flow: a constant that needs no ref."""
        return self._core.objects.blob_id(_ask_as_bytes())


@cache
def _ask_as_bytes() -> bytes:
    return as_bytes(Behaviour(ASK, SESSION_FLOW, ASK_SOURCE).to_object())


def check_source(engine: Engine, source: str, *, types: bool) -> list[Problem]:
    """The problems that the engine finds in a flow."""
    check_text(source, "source")
    if len(source) > SOURCE_MAX:
        raise InvalidFlow(f"a flow has at most {SOURCE_MAX} characters", fields={"field": "source"})
    return engine.check(source, types=types)


def check_new_name(name: str) -> None:
    if not names.is_name(name):
        hints = ["use lower-case letters, digits and hyphens, starting with a letter or digit: review-plan"]
        raise InvalidInput(f"{name!r} is not a valid behaviour name", code="invalid-name", hints=hints, fields={"name": name})
    if names.is_start_of_id(name):
        message = f"{name!r} is ambiguous: it could be the start of an id"
        hints = ["use a letter other than a to f, or fewer than seven characters"]
        raise InvalidInput(message, code="invalid-name", hints=hints, fields={"name": name})
    if name == ASK:
        raise AlreadyExists("the flow 'ask' is built in", hints=["choose another name"], fields={"flow": name})


def check_flow(source: str, *, types: bool = True) -> list[Problem]:
    """Check a flow's source without a space, as in an editor or in CI. The flow is not run."""
    from clia.engine.monty import MontyEngine  # slow to import

    with closing(MontyEngine()) as engine:
        return check_source(engine, source, types=types)

"""Flows: behaviours of the kind ``session-flow``, by name.

Invariant: a flow is kept by ``refs/clia/behaviours/<name>``, whose tree holds every version under its id and says which is
current; nothing that the engine cannot run is ever defined.
"""

from __future__ import annotations

from clia.errors import AlreadyExists, InvalidFlow, InvalidInput, NoSuchObject, NotFound, StaleRef
from clia.kernel import refs as names
from clia.kernel.messages import check_text, compose
from clia.kernel.messages import parse as parse_message
from clia.kernel.typed_objects import SESSION_FLOW, Behaviour, as_bytes, as_typed, parse
from clia.ports.repository import FILE, Entry
from clia.sessions.model import Flow
from clia.space.model import BEHAVIOUR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clia.ports.engine import Engine, Problem
    from clia.space.core import Core
    from clia.space.envelope import Envelope

ASK = "ask"
ASK_SOURCE = """\
def main(input):
    return request("human", input)
"""
SOURCE_MAX = 256 * 1024
_CURRENT = "current"


class Flows:
    def __init__(self, core: Core, envelope: Envelope, engine: Engine) -> None:
        self._core = core
        self._envelope = envelope
        self._engine = engine
        self._sources: dict[str, str] = {}  # by id; what an id names never changes
        self._versions_at: dict[str, str] = {}  # the current version by the commit that says so

    def check(self, source: str, *, types: bool = False) -> list[Problem]:
        return check_source(self._engine, source, types=types)

    def define(self, name: str, source: str, why: str = "") -> Flow:
        """Makes a source the current version of a flow; one that is current already stays, and nothing is written."""
        core = self._core
        _check_new_name(name)
        self._refuse_problems(name, self.check(source))
        if core.clean.value(source) != source:
            raise InvalidFlow(
                f"the source of {name!r} holds what looks like a secret",
                hints=["a flow is kept for ever, in git; let an effect's configuration hold the secret"],
                fields={"flow": name, "field": "source"},
            )
        made = as_bytes(Behaviour(name, SESSION_FLOW, source).to_object())
        text = core.clean.text(why, "why")
        cid = core.objects.blob_id(made)
        with self._envelope.among_others(), core.locks.hold(names.behaviour_lock(name)):
            self._write(name, cid, made, text)
        return self.get(name)

    def _refuse_problems(self, name: str, problems: list[Problem]) -> None:
        errors = [each for each in problems if each.severity == "error"]
        if not errors:
            return
        first = errors[0]
        raise InvalidFlow(
            f"{name}:{first.line}:{first.column}: {first.message}",
            hints=[f"line {each.line}: {each.message}" for each in errors[1:10]] or ["clia flow check FILE explains"],
            fields={"flow": name, "line": first.line, "column": first.column, "problems": [each._asdict() for each in errors]},
        )

    def _write(self, name: str, cid: str, data: bytes, why: str) -> None:
        core = self._core
        ref = names.behaviour(name)
        while True:
            tip = core.refs.get(ref)
            tree = None if tip is None else core.objects.commit(tip).tree
            if tree is not None and self._current(tree) == cid:
                return
            files = {
                f"versions/{cid}.json": Entry(FILE, core.objects.write_blob(data)),
                _CURRENT: Entry(FILE, core.objects.write_blob(f"{cid}\n".encode("ascii"))),
            }
            by = core.person_stamp()
            whole = compose(why, [(BEHAVIOUR, cid)], f"define {name}")
            new = core.objects.write_commit(core.objects.update_tree(tree, files), [tip] if tip else [], by, by, whole)
            core.reached("objects-written")
            try:
                core.refs.move(ref, tip, new, "clia: define")
            except StaleRef:
                continue  # plain git moved it
            core.reached("committed")
            return

    def _current(self, tree: str) -> str | None:
        entry = self._core.objects.entry(tree, _CURRENT)
        return None if entry is None else self._core.objects.blob(entry.cid).decode("ascii", "replace").strip()

    def names(self) -> list[str]:
        found = (ref.removeprefix(names.BEHAVIOURS) for ref, _ in self._core.refs.under(names.BEHAVIOURS))
        return [name for name in found if names.is_name(name)]

    def all(self) -> list[Flow]:
        """Every flow as it is now, sorted by name."""
        return [self.get(name) for name in self.names() if self._is_flow(name)]

    def _is_flow(self, name: str) -> bool:
        try:
            self.get(name)
        except NotFound:
            return False
        return True

    def resolve(self, text: str) -> tuple[str, str]:
        """The id and the name of the flow to run: of a name's current version, or of one version by its id."""
        tip = None if names.is_id(text) else self._core.refs.get(names.behaviour(names.check_name(text)))
        if tip is None:
            found = self.get(text)
            return found.cid, found.name
        cid = self._versions_at.get(tip)
        if cid is None:
            cid = self._current(self._core.objects.commit(tip).tree) or ""
            self.source(cid)
            self._versions_at[tip] = cid
        return cid, text

    def get(self, text: str) -> Flow:
        """A flow by name, or one version by its id."""
        if names.is_id(text):
            return self._version(text)
        tip = self._core.refs.get(names.behaviour(names.check_name(text)))
        if tip is None:
            if text == ASK:
                return Flow(ASK, self.ask(), ASK_SOURCE, (self.ask(),), "clia", 0, "built in: one question to a person")
            known = ", ".join(self.names()) or "none"
            hints = [f"flows here: {known}", "define one: clia flow define NAME FILE"]
            raise NotFound(f"there is no flow {text!r}", code="no-such-flow", hints=hints, fields={"flow": text})
        commit = self._core.objects.commit(tip)
        cid = self._current(commit.tree) or ""
        found = self._read(cid)
        by = f"{commit.author.name} <{commit.author.email}>"
        return Flow(text, cid, found.body, self._versions(tip), by, commit.author.at, parse_message(commit.message)[0])

    def _versions(self, tip: str) -> tuple[str, ...]:
        """Every version that was ever current, oldest first, each once."""
        trailers = [each for commit in self._core.graph.walk([tip]) for each in parse_message(commit.message)[1]]
        said = [value for key, value in trailers if key == BEHAVIOUR]
        return tuple(dict.fromkeys(reversed(said)))

    def _version(self, cid: str) -> Flow:
        found = self._read(cid)
        return Flow(found.name, cid, found.body, (cid,), "", 0, "")

    def _read(self, cid: str) -> Behaviour:
        made = parse(self._core.objects.blob(cid)) if names.is_id(cid) else None
        found = as_typed(made) if made else None
        if not isinstance(found, Behaviour) or found.kind != SESSION_FLOW:
            raise NoSuchObject(f"{cid!r} is no flow", code="not-a-flow", fields={"cid": cid})
        return found

    def source(self, cid: str) -> str:
        """The source of a version; what an id names never changes."""
        found = self._sources.get(cid)
        if found is None:
            found = self._sources[cid] = ASK_SOURCE if cid == self.ask() else self._read(cid).body
        return found

    def ask(self) -> str:
        """The id of the built-in flow; the same everywhere, and needs no ref."""
        return self._core.objects.blob_id(as_bytes(Behaviour(ASK, SESSION_FLOW, ASK_SOURCE).to_object()))


def check_source(engine: Engine, source: str, *, types: bool) -> list[Problem]:
    """What cannot work in a flow, by the engine that would run it."""
    check_text(source, "source")
    if len(source) > SOURCE_MAX:
        raise InvalidFlow(f"a flow has at most {SOURCE_MAX} characters", fields={"field": "source"})
    return engine.check(source, types=types)


def _check_new_name(name: str) -> None:
    if not names.is_name(name):
        raise InvalidInput(
            f"{name!r} is not a flow's name",
            code="invalid-name",
            hints=["lower-case letters, digits and hyphens, a letter or digit first: review-plan"],
            fields={"name": name},
        )
    if name == ASK:
        raise AlreadyExists("the flow 'ask' is built in", hints=["choose another name"], fields={"flow": name})

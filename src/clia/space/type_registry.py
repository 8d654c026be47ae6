"""The types registered in this space, and the typed objects it keeps.

Invariant: types are events on their own chain, so chains of two clones can be united. A tree that a ref reaches keeps every written
object alive.
"""

from __future__ import annotations

from clia.errors import Conflict, InvalidInput, NoSuchObject, NotFound, StaleRef, UnknownKind
from clia.git.records import FILE, TreeEntry
from clia.values import refs as names
from clia.values.commit_messages import check_text
from clia.values.typed_objects import as_bytes, as_object
from clia.values.types import BUILT_IN, RESERVED, Types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from clia.space.core import Core
    from clia.space.envelope import Envelope
    from clia.values.typed_objects import TypedObject

TYPES_LOCK, OBJECTS_LOCK = "@types", "@objects"


class Registry:
    def __init__(self, core: Core, envelope: Envelope, federated_id: Callable[[str, str], str]) -> None:
        """``federated_id``: the id of a type by its name and parent, which is the same in every space."""
        self._core = core
        self._envelope = envelope
        self._federated_id = federated_id
        self._read: tuple[str | None, Types] = (None, Types())

    def types(self) -> Types:
        """The types as of the ref's current value."""
        tip = self._core.refs.get(names.TYPES)
        if tip != self._read[0]:
            from clia.space.events import read_events  # most spaces register no types

            bodies = [event.body for event in read_events(self._core, tip) if event.body.get("event") == "type"]
            pairs = [(body.get("name"), body.get("parent")) for body in bodies]
            sound = ((name, parent) for name, parent in pairs if isinstance(name, str) and isinstance(parent, str | None))
            self._read = (tip, Types(sound))
        return self._read[1]

    def check_kind(self, kind: str) -> None:
        """Raise ``UnknownKind`` unless ``commit`` accepts this kind."""
        self._core.sought(lambda: self.types().check_commit_kind(kind), UnknownKind)

    def ids(self) -> dict[str, str]:
        """The id of each registered type with a parent, sorted by name. Top-level types belong to one space."""
        types = self.types().known().items()
        return {name: self._federated_id(name, parent) for name, parent in types if parent is not None and name not in BUILT_IN}

    def register(self, name: str, parent: str | None) -> None:
        core = self._core
        core.fresh(TYPES_LOCK)
        with self._envelope.among_others(), core.locks.hold(TYPES_LOCK):
            core.sought(lambda: self.types().check_new(name, parent), NotFound)
            body: dict[str, Any] = {"event": "type", "name": name, "parent": parent}
            body |= {} if parent is None else {"cid": self._federated_id(name, parent)}
            self._append(body, f"type: {name}" if parent is None else f"type: {name} is a {parent}")

    def _append(self, body: Mapping[str, Any], message: str) -> None:
        from clia.space.events import append_event

        append_event(self._core, names.TYPES, self._core.person_stamp(), body, message)

    def learn(self, name: str, parent: str, cid: str, origin: str) -> bool:
        """Adopt another space's type; returns whether it was new. ``Conflict`` if the name is taken by another type."""
        core = self._core
        core.fresh(TYPES_LOCK)
        with self._envelope.among_others(), core.locks.hold(TYPES_LOCK):
            types = self.types().known()
            if name in types:
                if types[name] != parent:
                    raise Conflict(
                        f"type {name} has the parent {types[name] or 'none'} here, but {parent} there",
                        code="type-clash",
                        fields={"type": name, "parent": types[name], "theirs": parent},
                    )
                return False
            self.types().check_new(name, parent)
            if any(self.types().is_a(parent, kind) for kind in RESERVED):
                message = f"the type {name} would be a kind of {parent}, whose commits are created by their own verb"
                raise InvalidInput(message, code="reserved-kind", fields={"type": name, "parent": parent})
            body = {"event": "type", "name": name, "parent": parent, "cid": cid, "from": origin}
            self._append(body, f"type: {name} is a {parent}, by {origin}")
            return True

    def write(self, thing: TypedObject | Mapping[str, Any]) -> str:
        core = self._core
        typed_object = core.clean.value(as_object(thing))
        core.sought(lambda: self._check_type(typed_object["type"]), UnknownKind)
        data = as_bytes(typed_object)
        cid = core.objects.blob_id(data)
        core.fresh(OBJECTS_LOCK)
        with self._envelope.among_others(), core.locks.hold(OBJECTS_LOCK):
            self._keep(cid, data)
        return cid

    def _check_type(self, name: str) -> None:
        if name not in self.types().known():
            raise UnknownKind(f"{name!r} is not a registered type", fields={"type": name})

    def _keep(self, cid: str, data: bytes) -> None:
        core = self._core
        path = f"{cid[:2]}/{cid[2:]}.json"
        while True:
            tip = core.refs.get(names.OBJECTS)
            tree = None if tip is None else core.objects.commit(tip).tree
            if tree is not None and core.objects.entry(tree, path) is not None:
                return
            new_tree = core.objects.update_tree(tree, {path: TreeEntry(FILE, core.objects.write_blob(data))})
            by = core.person_stamp()
            new = core.objects.write_commit(new_tree, [tip] if tip else [], by, by, f"object {cid}\n")
            try:
                core.refs.move(names.OBJECTS, tip, new, "clia: write an object")
            except StaleRef:
                continue  # plain git moved it
            return

    def read(self, cid: str) -> TypedObject | dict[str, Any]:
        check_text(cid, "cid")
        typed_object = self._core.sought(lambda: self._core.typed(cid), NoSuchObject)
        if typed_object is None:
            raise NoSuchObject(f"the object {cid} is not a typed object", code="not-typed", fields={"cid": cid})
        return typed_object

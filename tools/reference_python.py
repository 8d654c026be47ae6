"""The reference page of the Python interface: signatures and docstrings, read from the source.

From the source and not from live objects: what ``inspect`` shows of annotations differs between Python versions.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from typing import TYPE_CHECKING, Any

import clia
from clia import verbs
from clia.api import parameters
from clia.api import remote_space as client_space
from clia.api.annotations import field_docs
from clia.behaviours import model as behaviour_model
from clia.cli import main as program
from clia.engine import records as engine
from clia.facade import opening, settings, setup, space
from clia.federation import model as federation_model
from clia.git import records as git_records
from clia.hub import model as hub_model
from clia.identities import contexts, diagnostics, lineage, origins
from clia.sessions import health as session_health
from clia.sessions import model as session_model
from clia.sessions import service as session_service
from clia.space import model, purging, relinking, remotes, verification
from clia.store import interface as queue
from clia.store import interface as store
from clia.values import typed_objects
from clia.verbs import alias
from reference_markdown import code, fenced, page, prose, table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


GIVEN = (
    *(settings.Settings, typed_objects.Briefing, typed_objects.Behaviour, typed_objects.ConsoleTrace),
    *(model.File, model.Link, model.Submodule),
)
ANSWERS = (
    *(model.Spawned, model.AgentCommit, git_records.Stamp, model.Merged, model.UpToDate, model.Conflicts, model.ConflictPath),
    *(model.Landed, model.BlamedLine, git_records.FileChange, store.Edge),
    *(model.BoundTrace, model.TraceChange, model.TraceHit, purging.Purged, model.AgentState),
    *(
        session_model.Request,
        session_model.Decision,
        session_model.Flow,
        session_service.SessionRecord,
        engine.Problem,
        queue.Waiting,
        queue.Task,
    ),
    *(session_health.Ailment,),
    *(behaviour_model.KnownBehaviour, behaviour_model.BehaviourVersion, behaviour_model.BehaviourEvent),
    *(behaviour_model.BehaviourStats, behaviour_model.Rate, behaviour_model.Period),
    *(behaviour_model.Comparison, behaviour_model.Compared, behaviour_model.Suggestion, behaviour_model.Candidate),
    *(behaviour_model.Replayed, behaviour_model.ReplayStep),
    *(federation_model.Key, federation_model.Peer, federation_model.Share, federation_model.Grant, federation_model.Explained),
    *(federation_model.Missing, federation_model.Announced, federation_model.Synced, federation_model.Move),
    *(federation_model.Refused, federation_model.Remote),
    *(hub_model.HubStatus, hub_model.HubSynced, hub_model.Fork, hub_model.Elsewhere),
    *(verification.Report, verification.Finding, model.Maintained, relinking.Relinked, git_records.Pushed, remotes.Adopted),
)


def python_page() -> str:
    functions = [
        _function("clia.lineage", lineage.lineage),
        _function("clia.agent_cli", program.agent_cli),
        _function("clia.open", opening.open_space),
        _function("clia.init", setup.init_space),
    ]
    records = (
        lineage.ContextReport,
        contexts.IdentityContext,
        contexts.ExcludedPath,
        diagnostics.Diagnostic,
        origins.Explanation,
        origins.ValueOrigin,
    )
    return page(
        "# Python",
        f"`import clia` gives {', '.join(code(f'clia.{name}') for name in clia.__all__)}, and loads no third-party package. "
        "`clia.errors` has the [tree of errors](errors.md#the-tree), `clia.client` a [space over HTTP](#cliaclientremotespace). "
        "Everything else is internal and may change.",
        *functions,
        *(_class(kind) for kind in (lineage.Lineage, lineage.MergedDocument)),
        *(_record(kind) for kind in records),
        _space(),
        *(_service(name, member) for name, member in vars(space.Space).items() if isinstance(member, verbs.service)),
        _remote(),
        _class(session_model.Session),
        *(_record(kind) for kind in (*GIVEN, *ANSWERS)),
    )


def _space() -> str:
    """The façade, and which services it has."""
    services = {name: member.kind() for name, member in vars(space.Space).items() if isinstance(member, verbs.service)}
    rows = [(f"[`space.{name}`](#space{name})", prose(inspect.getdoc(kind) or "")) for name, kind in services.items()]
    return page(
        _class(space.Space),
        "Services are attributes; the verbs of each are listed below. A callable service lists its items: "
        "`space.sessions()`. *Also* gives the name of a verb on the space itself.",
        table(("service", "purpose"), rows),
    )


def _service(name: str, declared: verbs.service[Any]) -> str:
    """A service: its verbs, each with its other name on the space."""
    kind = declared.kind()
    moved = [name for name, member in vars(space.Space).items() if isinstance(member, alias)]
    aliases = {inspect.unwrap(getattr(space.Space, name)): name for name in moved}
    methods = []
    for node in _class_node(kind).body:
        if not isinstance(node, ast.FunctionDef) or (node.name.startswith("_") and node.name != "__call__"):
            continue
        member = vars(kind)[node.name]
        also = f" (also `space.{aliases[member]}`)" if inspect.isfunction(member) and member in aliases else ""
        shown = name if node.name == "__call__" else f"{name}.{node.name}"
        signature = _signature(shown, node) if inspect.isfunction(member) else f"{shown}: {ast.unparse(node.returns or node)}"
        methods.append(f"- {code(f'space.{signature}')}{also}: {prose(ast.get_docstring(node) or '')}")
    return page(f"## space.{name}", prose(inspect.getdoc(kind) or ""), "\n".join(methods))


def _remote() -> str:
    """The space over HTTP: how it is opened, and what it has beside the verbs of ``Space``."""
    methods = {method.name: method for method in _class_node(client_space.RemoteSpace).body if isinstance(method, ast.FunctionDef)}
    events = methods["events"]
    return page(
        "## clia.client.RemoteSpace",
        code(_signature("RemoteSpace", methods["__init__"]).removesuffix(" -> None")),
        prose(inspect.getdoc(client_space.RemoteSpace) or ""),
        "It has the methods of [Space](#space) with the same answers and errors, but for [those that stay "
        "local](api.md#verbs-that-stay-local). Beside them:",
        f"- {code(_signature('events', events))}: {prose(ast.get_docstring(events) or '')}",
    )


def _function(name: str, function: Callable[..., Any]) -> str:
    (node,) = ast.parse(inspect.getsource(function)).body
    assert isinstance(node, ast.FunctionDef)  # noqa: S101  # what a function's source is
    return page(f"## {name}", code(_signature(name, node)), _docstring(function))


class _WithoutDescriptions(ast.NodeTransformer):
    """Replaces ``Annotated[TYPE, …]``, and the names that ``clia.api.parameters`` has for it, by the type."""

    aliases: Mapping[str, ast.expr] = {
        statement.targets[0].id: statement.value
        for statement in ast.parse(inspect.getsource(parameters)).body
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
    }

    def visit_Name(self, node: ast.Name) -> Any:
        return self.visit(self.aliases[node.id]) if node.id in self.aliases else node

    def visit_Subscript(self, node: ast.Subscript) -> Any:  # called by this name
        is_annotated = isinstance(node.value, ast.Name) and node.value.id == "Annotated"
        inner: ast.AST = node.slice.elts[0] if is_annotated and isinstance(node.slice, ast.Tuple) else node
        return self.generic_visit(inner) if inner is node else self.visit(inner)


def _signature(name: str, node: ast.FunctionDef) -> str:
    node.args = _WithoutDescriptions().visit(node.args)
    arguments = _plain(ast.unparse(node.args).removeprefix("self").removeprefix(", "))
    return f"{name}({arguments})" + (f" -> {_plain(ast.unparse(node.returns))}" if node.returns else "")


def _plain(annotation: str) -> str:
    """An annotation without names that only matter for the wire format."""
    plain = annotation.replace("Count", "int").replace("Text", "str")
    plain = plain.replace("LandingEvent", "dict[str, Any]").replace("TraceEntry", "Mapping[str, Any]")
    return re.sub(r"^Annotated\[(.*), \w+\]$", r"\1", plain)


def _docstring(target: Any) -> str:
    """Its text; an example in it becomes a block."""
    text, separator, example = (inspect.getdoc(target) or "").replace("``", "`").partition(">>> ")
    return page(text.strip(), fenced("text", f">>> {example.strip()}") if separator else "")


def _class(kind: type) -> str:
    node = _class_node(kind)
    attributes = [f"- {code(f'{name}: {shown}')}" for name, shown in _attributes(node)]
    methods = []
    for member in node.body:
        if isinstance(member, ast.FunctionDef) and not member.name.startswith("_"):
            description = prose(ast.get_docstring(member) or "")
            if any(isinstance(decorator, ast.Name) for decorator in member.decorator_list) and member.returns:  # a property
                attributes.append(f"- {code(f'{member.name}: {ast.unparse(member.returns)}')}: {description}")
            else:
                methods.append(f"- {code(_signature(member.name, member))}: {description}")
    parts = ["Attributes:", "\n".join(attributes), "Methods:", "\n".join(methods)]
    return page(f"## {kind.__name__}", prose(inspect.getdoc(kind) or ""), *parts)


def _class_node(kind: type) -> ast.ClassDef:
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(node, ast.ClassDef)  # noqa: S101  # what a class's source is
    return node


def _attributes(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """The public attributes that the constructor sets from what it is given."""
    start = next(function for function in node.body if isinstance(function, ast.FunctionDef) and function.name == "__init__")
    annotations = {
        argument.arg: ast.unparse(argument.annotation)
        for argument in [*start.args.args, *start.args.kwonlyargs]
        if argument.annotation
    }
    for statement in start.body:
        if (
            isinstance(statement, ast.Assign)
            and isinstance(statement.targets[0], ast.Attribute)
            and statement.targets[0].attr in annotations
        ):
            yield statement.targets[0].attr, annotations[statement.targets[0].attr]


def _record(kind: type) -> str:
    """A named tuple: its fields, each with its documentation."""
    node, docs = _class_node(kind), field_docs(kind)
    rows = [
        (code(field.target.id), code(_plain(ast.unparse(field.annotation))), prose(docs[field.target.id]))
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    ]
    own = ast.get_docstring(node) or ""
    return page(
        f"## {kind.__name__}",
        prose(own),
        table(("field", "type", "meaning"), rows),
        "`to_json()` gives the JSON shape." * hasattr(kind, "to_json"),
    )

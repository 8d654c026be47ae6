"""Rules for the source of a flow.

Invariant: an error is certain to fail when it is reached; what may be intended is a warning. Each rule checks the whole source,
so that one check reports everything.
"""

from __future__ import annotations

import ast
import builtins

from clia.engine.calls import bound_arguments, label
from clia.engine.flow_source import FUNCTIONS, HOST, STOPS, FlowText, calls_in
from clia.values.json_values import CannotCross

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from clia.engine.records import Problem

_UNSUPPORTED: dict[type[ast.AST], str] = {
    ast.Yield: "`yield` does not work in a flow: collect a list and return it",
    ast.YieldFrom: "`yield from` does not work in a flow: collect a list and return it",
    ast.Delete: "`del` does not work in a flow: use pop(), or give the name another value",
    ast.TryStar: "`except*` does not work in a flow: use `except`",
    ast.AsyncFor: "`async for` does not work in a flow: use asyncio.gather",
    ast.AsyncWith: "`async with` does not work in a flow",
}
_CLASS_BODY = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Assign, ast.AnnAssign, ast.Pass)
# Places that need a value, not an awaitable.
_WANTS_VALUE = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Subscript, ast.Attribute, ast.FormattedValue, ast.Starred)
_AWAITED = (*HOST, "asyncio.sleep")


def problems_of(text: FlowText) -> Iterator[Problem]:
    rules = (_main, _unsupported, _exceptions, _host_calls, _callbacks, _special_methods, _coroutines, _denied, _shadowed)
    for rule in (*rules, _awaits_in_async if text.is_async else _awaits_in_plain):
        yield from rule(text)


def _main(text: FlowText) -> Iterator[Problem]:
    main = text.main
    if main is None:
        nested = [node for node in text.nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == "main"]
        bound = next(iter(nested), None) or text.scopes[0].bound.get("main")
        where = "at the top of the text" if bound else "in it"
        yield text.problem("no-main", f"a flow starts with `def main(input)`, which is missing {where}", bound)
        return
    args = main.args
    positional = [*args.posonlyargs, *args.args]
    required = len(positional) - len(args.defaults)
    if required > 1 or (not positional and args.vararg is None) or None in args.kw_defaults:
        yield text.problem("no-main", "main must take one argument, the input: `def main(input)`", main)


def _unsupported(text: FlowText) -> Iterator[Problem]:
    for node in text.nodes:
        message = _UNSUPPORTED.get(type(node))
        if message is not None:
            yield text.problem("unsupported", message, node)
        elif isinstance(node, ast.ClassDef):
            yield from _class(text, node)
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.MatMult):
            yield text.problem("unsupported", "`@=` does not work in a flow", node)
        elif isinstance(node, ast.ImportFrom) and (node.level or any(alias.name == "*" for alias in node.names)):
            yield text.problem("unsupported", "a flow is one text: import names from a module, not from a package or with *", node)
        elif isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)) and any(
            part.is_async for part in node.generators
        ):
            yield text.problem("unsupported", "an async comprehension does not work in a flow: use asyncio.gather", node)
    for call in text.calls:
        meaning = text.meaning(call.func)
        if meaning == "asyncio.gather" and call.keywords:
            yield text.problem("unsupported", "gather() takes no return_exceptions in a flow: catch inside each coroutine", call)
        if meaning == "next" and call.args and isinstance(call.args[0], ast.GeneratorExp):
            yield text.problem("unsupported", "a generator expression is a list in a flow: use `iter([…])`, or a loop", call)


def _class(text: FlowText, node: ast.ClassDef) -> Iterator[Problem]:
    if node.bases or node.keywords:
        yield text.problem("unsupported", f"class {node.name} inherits, which does not work in a flow: use a plain class", node)
    for item in node.body:
        if not isinstance(item, _CLASS_BODY) and not (isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant)):
            yield text.problem("unsupported", "a class may hold methods and plain variables only", item)
        for decorator in getattr(item, "decorator_list", []):
            yield text.problem("unsupported", "a method cannot be decorated in a flow; properties do not work either", decorator)


def _exceptions(text: FlowText) -> Iterator[Problem]:
    for call in text.calls:
        kind = getattr(builtins, text.meaning(call.func) or "", None)
        if not isinstance(kind, type) or not issubclass(kind, BaseException):
            continue
        constants = [arg for arg in call.args if isinstance(arg, ast.Constant)]
        not_text = any(isinstance(arg, (ast.Dict, ast.List, ast.Tuple, ast.Set)) for arg in call.args)
        if len(call.args) > 1 or call.keywords or not_text or any(not isinstance(arg.value, str) for arg in constants):
            yield text.problem("unsupported", f"{kind.__name__} takes one text in a flow, and nothing else", call)


def _host_calls(text: FlowText) -> Iterator[Problem]:
    for call in text.calls:
        name = text.meaning(call.func)
        unknowable = any(isinstance(arg, ast.Starred) for arg in call.args) or any(word.arg is None for word in call.keywords)
        if name not in HOST or unknowable:
            continue
        try:
            arguments = bound_arguments(name, call.args, {word.arg: word.value for word in call.keywords if word.arg})
            for field in ("kind", "tag"):
                value = arguments.get(field)
                optional = field == "tag" and name == HOST[0]
                if isinstance(value, ast.Constant) and not (optional and value.value is None):
                    label(field, value.value)
        except CannotCross as refused:
            yield text.problem("bad-call", refused.problem, call)


def _callbacks(text: FlowText) -> Iterator[Problem]:
    for call in text.calls:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else (text.meaning(call.func) or "").rpartition(".")[2]
        arguments = dict(enumerate(call.args)) | {word.arg: word.value for word in call.keywords}
        for place in NO_CALLBACK.get(name, ()):
            callback = arguments.get(place)
            if isinstance(callback, ast.Lambda):
                yield from _stops_in(text, callback, f"in what {name}() calls")
            elif isinstance(callback, ast.Name) and (text.meaning(callback) in HOST or callback.id in text.stopping):
                yield text.problem("suspends-in-callback", _cannot_stop(callback.id, f"in what {name}() calls"), callback)


def _special_methods(text: FlowText) -> Iterator[Problem]:
    for node in text.nodes:
        if isinstance(node, ast.FunctionDef) and isinstance(text.parents.get(node), ast.ClassDef):
            special = node.name.startswith("__") and node.name.endswith("__")
            if special and node.name not in STOPPING_METHODS:
                yield from _stops_in(text, node, f"in {node.name}()")


def _stops_in(text: FlowText, function: ast.FunctionDef | ast.Lambda, where: str) -> Iterator[Problem]:
    for call in calls_in(function):
        name = text.meaning(call.func) or (call.func.id if isinstance(call.func, ast.Name) else "")
        if name in STOPS or name in text.stopping:
            yield text.problem("suspends-in-callback", _cannot_stop(name, where), call)


def _cannot_stop(name: str, where: str) -> str:
    return f"{name}() cannot wait {where}: ask in a loop first, then use the answers"


def _awaits_in_async(text: FlowText) -> Iterator[Problem]:
    for call in text.calls:
        name = text.meaning(call.func)
        if name == "time.sleep":
            yield text.problem("missing-await", "time.sleep() does not work in an async flow: `await asyncio.sleep(…)`", call)
        if name in _AWAITED and _needs_await(text, call):
            yield text.problem("missing-await", f"{name}() must be awaited in an async flow: `await {name}(…)`", call)
        elif name in _AWAITED and _is_forgotten(text, call):
            yield text.problem("missing-await", f"what {name}() returns is never awaited", call, "warning")


def _needs_await(text: FlowText, call: ast.Call) -> bool:
    parent = text.parents[call]
    if isinstance(parent, ast.Return):
        functions = (node for node in text.around(call) if isinstance(node, FUNCTIONS))
        return isinstance(next(functions, None), ast.AsyncFunctionDef)
    if isinstance(parent, (ast.If, ast.While, ast.IfExp, ast.Assert)):
        return parent.test is call
    if isinstance(parent, (ast.For, ast.comprehension)):
        return parent.iter is call
    return isinstance(parent, (ast.Expr, *_WANTS_VALUE))


def _is_forgotten(text: FlowText, call: ast.Call) -> bool:
    parent = text.parents[call]
    if not isinstance(parent, ast.Assign) or len(parent.targets) != 1 or not isinstance(parent.targets[0], ast.Name):
        return False
    name = parent.targets[0].id
    return not any(use.id == name for scope in text.scopes for use in scope.used)


def _awaits_in_plain(text: FlowText) -> Iterator[Problem]:
    for call in text.calls:
        name, parent = text.meaning(call.func), text.parents[call]
        if name not in HOST:
            continue
        gathered = isinstance(parent, ast.Call) and text.meaning(parent.func) == "asyncio.gather"
        if gathered or isinstance(parent, ast.Await):
            message = f"{name}() cannot be awaited while main is not async: write `async def main(input)`"
            yield text.problem("await-in-plain-flow", message, call)


def _coroutines(text: FlowText) -> Iterator[Problem]:
    for call in text.calls:
        if not isinstance(call.func, ast.Name) or not isinstance(text.parents[call], ast.Expr):
            continue
        functions = text.functions.get(call.func.id, [])
        if functions and all(isinstance(function, ast.AsyncFunctionDef) for function in functions):
            yield text.problem("missing-await", f"{call.func.id}() does nothing until it is awaited", call, "warning")


def _denied(text: FlowText) -> Iterator[Problem]:
    for node in text.nodes:
        name = text.meaning(node) if isinstance(node, (ast.Name, ast.Attribute)) else None
        if name in DENIED and isinstance(getattr(node, "ctx", None), ast.Load):
            yield text.problem("denied", f"{name}: {DENIED[name]}", node)


def _shadowed(text: FlowText) -> Iterator[Problem]:
    for scope in text.scopes:
        for name in HOST:
            if name in scope.bound:
                message = f"this {name} is the flow's own: it hides the function that asks"
                yield text.problem("shadowed", message, scope.bound[name], "warning")


NO_SUCH_MODULE = {
    "collections.abc": "leave the annotation out, or take it from typing",
    "abc": "a flow's classes cannot inherit",
    "enum": "use plain constants, or typing.Literal",
    **dict.fromkeys(("requests", "httpx", "urllib"), 'ask for it: request("…", {…})'),
    "socket": "a flow has no network: ask with request()",
    "subprocess": 'a flow runs no programs: ask with request("command", {…})',
    "uuid": "use random.randbytes(16).hex()",
    "secrets": "use random, which is the same on every replay",
    **dict.fromkeys(("threading", "multiprocessing", "concurrent"), "use asyncio.gather in an async main"),
    "logging": "use print: it goes to the agent's trace",
}
"""Alternatives to modules that flows do not have."""

NO_CALLBACK: dict[str, tuple[int | str, ...]] = {
    **dict.fromkeys(("sorted", "min", "max", "sort", "bisect", "bisect_left", "bisect_right"), ("key",)),
    **dict.fromkeys(("insort", "insort_left", "insort_right"), ("key",)),
    **dict.fromkeys(("map", "filter", "iter", "starmap", "takewhile", "dropwhile", "filterfalse"), (0,)),
    "field": ("default_factory",),
    "groupby": (1, "key"),
    "accumulate": (1, "func"),
    "defaultdict": (0, "default_factory"),
}
"""Functions that call the argument at this position, or with this name, where a flow cannot suspend."""

STOPPING_METHODS = frozenset({"__init__", "__call__", "__enter__", "__exit__"})
"""The only special methods in which a flow can suspend."""

DENIED = {
    **dict.fromkeys(("open", "os.listdir", "os.walk", "os.scandir"), "a flow has no files"),
    **dict.fromkeys(("os.environ", "os.getenv"), "a flow has no environment; what it needs comes in as its input"),
    "os.urandom": "use random, which is the same on every replay",
}
"""Functions that exist and always refuse."""

"""Handlers in tests: a space with an agent, a local model server, and a fake coding agent."""

from __future__ import annotations

import json
import os
import sys
import threading
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple

import clia
from clia.facade.config import Config, ProgramRule, WorkerOptions
from clia.sessions.model import Request
from clia.store.store_queue import StoreQueue
from clia.workers.effects import Effects
from clia.workers.effects.context import Context, Tools
from clia.workers.setup import make_tools
from clia.workers.worker import Worker, WorkerDependencies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

SINCE = "2026-05-01T12:00:00Z"
QUICK = WorkerOptions(lease_seconds=30.0, attempts=3, backoff_seconds=0.01, backoff_max_seconds=0.05, poll_seconds=0.05)


def utc() -> datetime:
    return datetime.now(UTC)


def made_space(root: Path, *agents: str, **settings: Any) -> clia.Space:
    """A real space with some agents and the real clock."""
    space = clia.init(root, settings=clia.Settings(durable=False, person=("Tess", "tess@example.org"), **settings))
    for name in agents or ("scout",):
        space.spawn(name, clia.Briefing(title="Look around"))
    return space


def tools_for(**environment: str) -> Tools:
    inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return make_tools(utc, {**inherited, **environment})


def asked(kind: str, payload: Any, agent: str = "scout", request: str = "1.1", since: str = SINCE) -> Request:
    return Request(agent, request, kind, None, payload, since, 1, request.rpartition(".")[0], "plan")


def context_for(space: clia.Space, request: Request, config: Config, tools: Tools, **more: Any) -> Context:
    """The context that a worker gives a handler."""
    parts = {"attempt": 1, "options": {}, "cancelled": threading.Event(), "tell": lambda _: None, **more}
    return Context(space=space, request=request, config=config, tools=tools, **parts)


def worker_for(
    space: clia.Space, root: Path, handlers: Mapping[str, Any] | None = None, config: Config | None = None, **more: Any
) -> Worker:
    """A worker on a real space, with short retries."""
    chosen = config or Config(worker=QUICK)
    tools = more.pop("tools", None) or tools_for()
    effects = more.pop("effects", None) or Effects(chosen, tools.environment, others=handlers)
    queue = more.pop("queue", None) or StoreQueue(space.local.store)
    return Worker(WorkerDependencies(space, effects, queue, tools, chosen, more.pop("name", "w1"), **more))


class Asked(NamedTuple):
    """A request to a model server."""

    path: str
    headers: Mapping[str, str]
    body: Any


class HttpReply(NamedTuple):
    """Its answer."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = {}


def completion(text: str = "Look at the logs.", **more: Any) -> HttpReply:
    answer = {
        "model": "small-2026",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4},
    }
    return HttpReply(body=json.dumps({**answer, **more}).encode())


class CompletionServer:
    """An endpoint that sends its replies in turn and repeats the last one; ``asked`` has the requests."""

    def __init__(self, url: str, replies: Sequence[HttpReply | Callable[[BaseHTTPRequestHandler], None]]) -> None:
        self.url = url
        self.replies = list(replies)
        self.asked: list[Asked] = []


@contextmanager
def model_server(*replies: HttpReply | Callable[[BaseHTTPRequestHandler], None]) -> Iterator[CompletionServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {key.lower(): value for key, value in self.headers.items()}
            served.asked.append(Asked(self.path, headers, json.loads(data)))
            reply = served.replies.pop(0) if len(served.replies) > 1 else served.replies[0]
            if not isinstance(reply, HttpReply):
                return reply(self)
            self.send_response(reply.status)
            for key, value in {"Content-Length": str(len(reply.body)), **reply.headers}.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(reply.body)
            return None

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name it has above
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    served = CompletionServer(f"http://127.0.0.1:{server.server_address[1]}/v1", replies)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


FAKE_AGENT = '''\
"""A deterministic coding agent: does what each line of its input says."""
import os, pathlib, signal, subprocess, sys, time

for line in sys.stdin.read().splitlines():
    verb, _, rest = line.partition(" ")
    if verb == "say":
        print(rest, flush=True)
    elif verb == "complain":
        print(rest, file=sys.stderr, flush=True)
    elif verb == "write":
        path, _, text = rest.partition(" ")
        pathlib.Path(path).write_text(text + "\\\\n")
    elif verb == "append":
        path, _, text = rest.partition(" ")
        with open(path, "a") as file:
            file.write(text + "\\\\n")
    elif verb == "remove":
        os.unlink(rest)
    elif verb == "git":
        subprocess.run(["git", *rest.split()], check=True)
    elif verb == "bytes":
        sys.stdout.buffer.write(bytes.fromhex(rest))
    elif verb == "environment":
        print(sorted(os.environ))
    elif verb == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif verb == "child":
        subprocess.Popen([sys.executable, "-c", f"import os, time; open({rest!r}, 'w').write(str(os.getpid())); time.sleep(600)"])
    elif verb == "pid":
        pathlib.Path(rest).write_text(str(os.getpid()))
    elif verb == "hang-once":
        if not os.path.exists(rest):
            pathlib.Path(rest).write_text(str(os.getpid()))
            time.sleep(600)
    elif verb == "hang":
        time.sleep(600)
    elif verb == "exit":
        sys.exit(int(rest))
'''


def fake_agent(directory: Path) -> ProgramRule:
    """The fake coding agent as a program in the operator's list."""
    script = directory / "fake_agent.py"
    script.write_text(FAKE_AGENT.replace("\\\\n", "\\n"))
    return ProgramRule((sys.executable, str(script)), timeout_seconds=60.0)


def identity_effect(context: Context, payload: Any) -> Any:
    """An effect of another package."""
    del context
    return payload


def echo(context: Context, payload: Any) -> Any:
    """A handler that answers with its payload."""
    del context
    return payload


def in_background(worker: Worker, **options: bool) -> threading.Thread:
    thread = threading.Thread(target=worker.run, kwargs=options)
    thread.start()
    return thread

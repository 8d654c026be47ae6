"""Export of the authors of lines as Agent Trace records (https://agent-trace.dev, version 0.1.0).

Invariant: a commit to which an agent added lines, or whose lines have an unknown author, becomes one record, and each line that it
adds is in one range of that record. Exporting a commit again gives the same id. Nothing but git and the store is read.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from typing import NamedTuple
from uuid import UUID, uuid5

from clia.errors import NotFound
from clia.space.attribution.index import FILE_MAX
from clia.space.attribution.line_matching import lines_of
from clia.values.clock import timestamp
from clia.values.paths import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from clia.facade.space import Space
    from clia.space.attribution.authorship import AddedLines, CommitLines
    from clia.space.attribution.notes import LineAuthor

SPEC_VERSION = "0.1.0"
_MODEL_MAX = 250
_PROVIDERS = {"claude-": "anthropic", "gpt-": "openai", "codex-": "openai", "gemini-": "google", "o1": "openai", "o3": "openai"}
"""Providers of models, as models.dev names them, by the start of the model's name."""
_HUMAN, _UNKNOWN = "human", "unknown"


class TraceRecord(NamedTuple):
    """An Agent Trace record: the lines that one commit adds, by contributor."""

    version: str  # version of the specification
    id: str  # the same for each export of a commit
    timestamp: str  # time of the commit
    vcs: dict[str, str]  # the commit
    tool: dict[str, str]  # clia and its version
    files: list[dict[str, Any]]  # path and conversations of each file, as in the specification
    metadata: dict[str, Any]  # id of the space


class AgentTraceExport:
    """Builds the records of one space. ``version`` is clia's; ``forge`` the address of the space on a forge, for links."""

    def __init__(self, space: Space, version: str, forge: str | None = None) -> None:
        self._space = space
        self._version = version
        self._forge = None if forge is None else forge.rstrip("/")
        self._models: dict[str, str | None] = {}
        self._sources: dict[LineAuthor, dict[str, Any]] = {}

    def records(self, text: str, limit: int | None = None) -> Iterator[TraceRecord]:
        """The records of the newest commits of a history, or of a range ``A..B``."""
        for lines in self._space.history.added_lines(text, limit=limit):
            if any(file.by_agents or (file.unknown and file.added) for file in lines.files):
                yield self._record(lines)

    def _record(self, lines: CommitLines) -> TraceRecord:
        commit, space = lines.commit, self._space
        return TraceRecord(
            SPEC_VERSION,
            str(uuid5(UUID(space.id), f"agent-trace {commit.cid}")),
            timestamp(datetime.fromtimestamp(commit.committer.at, UTC)),
            {"type": "git", "revision": commit.cid},
            {"name": "clia", "version": self._version},
            [self._file(file) for file in lines.files if file.added],
            {"clia": {"space": space.id, **({"missing_files": lines.missing} if lines.missing else {})}},
        )

    def _file(self, file: AddedLines) -> dict[str, Any]:
        """The ranges of a file, grouped by the commit of the agent that wrote them; lines of people are a group, too."""
        data = self._space.views.blob(file.blob)
        lines = lines_of(data)
        if len(data) > FILE_MAX:  # which lines are new is unknown
            whole = _range(lines, 1, len(lines))
            return {"path": printable(file.path), "conversations": [{"contributor": {"type": _UNKNOWN}, "ranges": [whole]}]}
        groups: dict[LineAuthor | str, list[dict[str, Any]]] = {}
        for author, start, end in _runs(file):
            groups.setdefault(author, []).append(_range(lines, start, end))
        return {
            "path": printable(file.path),
            "conversations": [{**self._source(author), "ranges": ranges} for author, ranges in groups.items()],
        }

    def _source(self, author: LineAuthor | str) -> Mapping[str, Any]:
        """The conversation that a group of lines comes from, without its ranges."""
        if isinstance(author, str):
            return {"contributor": {"type": author}}
        if author not in self._sources:
            self._sources[author] = self._conversation(author)
        return self._sources[author]

    def _conversation(self, author: LineAuthor) -> dict[str, Any]:
        space, forge = self._space, self._forge
        related = [{"type": "commit", "url": f"swh:1:rev:{author.commit}"}]
        with suppress(NotFound):  # the agent's work is not here
            commit, trace = space.show(author.commit), space.traces.id_of(author.commit)
            related += [{"type": "trace", "url": f"swh:1:cnt:{trace}"}] if trace else []
            related += [{"type": "briefing", "url": f"swh:1:cnt:{commit.briefing}"}] if commit.briefing else []
        model = self._model(author.agent)
        source: dict[str, Any] = {} if forge is None else {"url": f"{forge}/commits/{author.commit}#trace"}
        related += [] if forge is None else [{"type": "agent", "url": f"{forge}/agents/{author.agent}"}]
        contributor = {"type": "ai"} if model is None else {"type": "ai", "model_id": model}
        return {**source, "contributor": contributor, "related": related}

    def _model(self, agent: str) -> str | None:
        """The model that the agent's session started with, if its tool reported it."""
        if agent not in self._models:
            meta: Mapping[str, Any] | None = None
            with suppress(NotFound):
                meta = self._space.agents.briefing(agent).meta
            self._models[agent] = model_id(meta.get("model") if isinstance(meta, dict) else None)
        return self._models[agent]


def model_id(name: object) -> str | None:
    """The identifier of a model as models.dev has it, ``provider/model``; the name alone if the provider is unknown."""
    if not isinstance(name, str) or not re.fullmatch(r"\S+", name):
        return None
    provider = next((provider for start, provider in _PROVIDERS.items() if name.startswith(start)), None)
    identifier = f"{provider}/{name}" if provider is not None and "/" not in name else name
    return identifier if len(identifier) <= _MODEL_MAX else None


def _runs(file: AddedLines) -> Iterator[tuple[LineAuthor | str, int, int]]:
    """The added lines as ranges with one author each: author, first and last line."""
    run: tuple[LineAuthor | str, int, int] | None = None
    for line in file.added:
        author = _UNKNOWN if file.unknown else file.by_agents.get(line, _HUMAN)
        if run is not None and run[0] == author and run[2] == line - 1:
            run = (author, run[1], line)
            continue
        if run is not None:
            yield run
        run = (author, line, line)
    if run is not None:
        yield run


def _range(lines: Sequence[bytes], start: int, end: int) -> dict[str, Any]:
    digest = sha256(b"\n".join(lines[start - 1 : end])).hexdigest()
    return {"start_line": start, "end_line": end, "content_hash": f"sha256:{digest}"}

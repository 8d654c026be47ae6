"""Blame: the author of each line of a file, in a commit or in the worktree.

Lines of the worktree that are not committed yet are matched with the lines that agents wrote, as those of a commit are. Other lines
belong to the agent whose turn is running there if they appeared since the turn started, otherwise to the person.
"""

from __future__ import annotations

from contextlib import suppress

from clia.errors import CliaError, InvalidInput, NotFound
from clia.git.line_diff import hunks, unchanged
from clia.git.records import FOLDER, LINK, NOT_COMMITTED, SUBMODULE, LineOrigin
from clia.space.attribution.authorship import BY_PERSON, BY_UNKNOWN, LineAuthors
from clia.space.attribution.index import FILE_MAX
from clia.space.attribution.line_matching import lines_of
from clia.space.attribution.notes import LineAuthor
from clia.space.attribution.running_turns import lines_since
from clia.values.paths import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from collections.abc import Set as AbstractSet

    from clia.git.porcelain import GitPorcelain
    from clia.space.attribution.attributions import Attributions
    from clia.space.attribution.running_turns import RunningTurn
    from clia.space.core import Core
    from clia.space.model import AgentCommit, BlamedLine
    from clia.space.traces import Traces

_KINDS = {FOLDER: "a directory", SUBMODULE: "a submodule", LINK: "a symbolic link"}


class FileBlame:
    def __init__(
        self,
        core: Core,
        traces: Traces,
        porcelain: GitPorcelain,
        attributions: Attributions,
        fetch_promised: Callable[[Sequence[AgentCommit]], None],
    ) -> None:
        self._core = core
        self._traces = traces
        self._porcelain = porcelain
        self._attributions = attributions
        self._fetch_promised = fetch_promised

    def of_commit(self, head: str, name: str, path: str, start: int, limit: int | None) -> list[BlamedLine]:
        """The lines of a file in a commit, which the user called ``name``; ``limit`` lines from ``start`` on."""
        size = self._check_file(head, name, path)
        if limit is None:
            _check_size(path, size)
        origins = _Origins(self._core, self._porcelain)
        lines = [origins.followed(line) for line in self._porcelain.blame(head, path, start=start, limit=limit)]
        authors = self._authors(origins, lines, [head])
        return [authors.blamed(number, line) for number, line in enumerate(lines, max(1, start))]

    def of_worktree(self, path: str, running: Sequence[RunningTurn]) -> list[BlamedLine]:
        """The lines of a file in the worktree."""
        data = self._porcelain.worktree_file(path)
        _check_size(path, len(data))
        origins = _Origins(self._core, self._porcelain)
        lines = [line if line.commit == NOT_COMMITTED else origins.followed(line) for line in self._blamed_by_git(path, data)]
        if len(lines) != len(lines_of(data)):  # a filter changes the file when git adds it
            data = "".join(f"{line.text}\n" for line in lines).encode("utf-8", "replace")
        new = {at for at, line in enumerate(lines) if line.commit == NOT_COMMITTED}
        committed = [line for at, line in enumerate(lines) if at not in new]
        paths = list(dict.fromkeys([path, *(line.path for line in committed)]))
        by_agents, unknown = self._new_lines(paths, data, new, running)
        tips = [head] if (head := self._core.objects.expand("HEAD")) is not None else []
        authors = self._authors(origins, committed, tips, {author.commit for author in by_agents.values()})
        return [
            authors.uncommitted(at + 1, line.text, by_agents.get(at), BY_UNKNOWN if at in unknown else BY_PERSON)
            if at in new
            else authors.blamed(at + 1, line)
            for at, line in enumerate(lines)
        ]

    def _new_lines(
        self, paths: Sequence[str], data: bytes, new: set[int], running: Sequence[RunningTurn]
    ) -> tuple[dict[int, LineAuthor], set[int]]:
        """The authors of uncommitted lines that agents wrote, and the lines with an unknown author."""
        matched = self._attributions.of_worktree_file(paths, data, new) if new else {}
        if matched is None:
            return {}, new
        by_turns = {turn.agent: lines_since(self._core.objects, paths[0], data, turn) & new - matched.keys() for turn in running}
        lines = set[int]().union(*by_turns.values())
        if len(by_turns) > 1:
            return matched, lines
        return matched | {at: LineAuthor(agent, NOT_COMMITTED) for agent in by_turns for at in lines}, set()

    def _authors(
        self, origins: _Origins, lines: Sequence[LineOrigin], tips: Sequence[str], more: AbstractSet[str] = frozenset()
    ) -> LineAuthors:
        commits = {line.commit: origins.commit(line.commit) for line in lines}
        self._fetch_promised(list(commits.values()))
        with suppress(CliaError):  # the repository may be read-only
            self._attributions.catch_up(tips)
        return LineAuthors(self._core, self._attributions, self._traces, commits, more)

    def _blamed_by_git(self, path: str, data: bytes) -> list[LineOrigin]:
        """The lines of the worktree's file; all are new in a file that git does not know."""
        try:
            return self._porcelain.blame(None, path)
        except NotFound:
            texts = (line.decode("utf-8", "replace") for line in lines_of(data))
            return [LineOrigin(NOT_COMMITTED, number, path, text) for number, text in enumerate(texts, 1)]

    def _check_file(self, head: str, name: str, path: str) -> int:
        """Return the size of a file or link, 0 if a partial clone lacks it; otherwise raise an error that says what the path is."""
        tree, parts = self._core.objects.commit(head).tree, path.split("/")
        entry = self._core.objects.entry(tree, path) if all(parts) else None
        if entry is not None and entry.mode not in (FOLDER, SUBMODULE):
            objects = self._core.objects
            return 0 if objects.kind(entry.cid) is None else objects.size(entry.cid)
        fields = {"path": printable(path), "commit": head}
        if entry is not None:
            raise InvalidInput(f"{path!r} in {name!r} is {_KINDS[entry.mode]}, not a file", code="not-a-file", fields=fields)
        message = f"no file {path!r} in {name!r}"
        for count in range(1, len(parts)):
            folder = self._core.objects.entry(tree, "/".join(parts[:count])) if all(parts[:count]) else None
            if folder is not None and folder.mode in (LINK, SUBMODULE):
                message += f": {'/'.join(parts[:count])!r} is {_KINDS[folder.mode]}"
        raise NotFound(message, code="no-such-path", fields=fields)


def _check_size(path: str, size: int) -> None:
    """Refuse all lines of a file that may have millions: they would take gigabytes of memory."""
    if size > FILE_MAX:
        message = f"{path!r} is too large: blame of a whole file is limited to {FILE_MAX // 2**20} MB"
        hints = [f"blame some lines of a commit: clia blame -L 1,100 HEAD {printable(path)}"]
        fields = {"path": printable(path), "bytes": size, "maximum": FILE_MAX}
        raise InvalidInput(message, code="file-too-large", hints=hints, fields=fields)


class _Origins:
    """Follows lines behind squashed landings to the agents' own commits; reads each landing once."""

    def __init__(self, core: Core, porcelain: GitPorcelain) -> None:
        self._core = core
        self._porcelain = porcelain
        self._commits: dict[str, AgentCommit] = {}
        self._behind: dict[tuple[str, str], dict[int, LineOrigin]] = {}

    def commit(self, cid: str) -> AgentCommit:
        if cid not in self._commits:
            self._commits[cid] = self._core.read(cid)
        return self._commits[cid]

    def followed(self, origin: LineOrigin) -> LineOrigin:
        landed = self.commit(origin.commit)
        if landed.agent is not None or landed.landed is None or not landed.range:
            return origin
        key = (origin.commit, origin.path)
        if key not in self._behind:
            self._behind[key] = self._lines(landed, landed.range.partition("..")[2], origin.path)
        line = self._behind[key].get(origin.number)
        return origin if line is None else line._replace(text=origin.text)

    def _lines(self, landed: AgentCommit, head: str, path: str) -> dict[int, LineOrigin]:
        """Line numbers of a landed file, and the origin of each in the agent's own file."""
        core = self._core
        if core.objects.kind(head) != "commit":
            return {}
        agent_file = core.objects.entry(core.objects.commit(head).tree, path)
        landed_file = core.objects.entry(landed.tree, path)
        if agent_file is None or landed_file is None:
            return {}
        lines = self._porcelain.blame(head, path)
        if agent_file.cid == landed_file.cid:
            return dict(enumerate(lines, 1))
        theirs, ours = core.objects.blob(agent_file.cid), core.objects.blob(landed_file.cid)
        shared = unchanged(len(lines), len(lines_of(ours)), hunks(theirs, ours))
        return {own + at + 1: lines[other + at] for other, own, count in shared for at in range(count)}

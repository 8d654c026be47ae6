"""The lanes of a commit graph, for a terminal or an SVG to draw.

Invariant: between two rows a lane carries the line to exactly one commit, and a commit's lines share one lane from where
they meet. A line followed downward leads to the parent it stands for, or leaves the window. The layout depends only on the commits
and their order.
"""

from __future__ import annotations

from itertools import compress
from typing import NamedTuple

from clia.errors import InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class GraphNode(NamedTuple):
    """One commit; ``group`` is the agent that made it, "" if no agent did."""

    id: str
    parents: tuple[str, ...]
    group: str = ""


class GraphRow(NamedTuple):
    """One commit in its lane, and the state of the other lanes in its row.

    ``above`` and ``below`` are the lanes with a line at the row's upper and lower edge, in order; a row's ``below`` is the next
    one's ``above``, and the lines ``below`` the last row leave the window. ``edges`` has the lane in which the line to each parent
    leaves the row. ``bend`` is a lane that passes the commit and then bends into the commit's own lane.
    """

    node: GraphNode
    lane: int
    above: tuple[int, ...]
    below: tuple[int, ...]
    edges: tuple[int, ...]
    bend: int | None = None

    @property
    def tip(self) -> bool:
        """Whether no line in the window leads to this commit."""
        return self.lane not in self.above

    @property
    def ends(self) -> bool:
        """Whether no line continues in the commit's own lane."""
        return self.lane not in self.below

    @property
    def through(self) -> tuple[int, ...]:
        """Lanes that pass this row straight, from its upper to its lower edge."""
        return tuple(lane for lane in self.above if lane not in (self.lane, self.bend))

    @property
    def opened(self) -> tuple[int, ...]:
        """Lanes that start at this commit, beside its own."""
        return tuple(lane for lane in self.below if lane != self.lane and lane not in self.above)

    @property
    def width(self) -> int:
        """The number of lanes to draw, including free ones between them."""
        return max((self.lane, *self.above[-1:], *self.below[-1:])) + 1


def layout(nodes: Sequence[GraphNode]) -> list[GraphRow]:
    """A row for each of ``nodes``, which come newest first, children before parents.

    Parents outside of ``nodes`` are allowed. A first parent keeps its child's lane; a group stays in its first
    lane, unless another commit is there; a lane that ended is reused.
    """
    board = _LaneBoard(nodes)
    rows = []
    above: tuple[int, ...] = ()
    for index, node in enumerate(nodes):
        lane, tip = board.place(index, node)
        edges, bend = board.lead_on(index, node, lane)
        below = above if edges == (lane,) and not tip and bend is None else board.lines()
        rows.append(GraphRow(node, lane, above, below, edges, bend))
        above = below
    return rows


class _LaneBoard:
    """The lanes in use while the rows are laid out, and their owners."""

    def __init__(self, nodes: Sequence[GraphNode]) -> None:
        self.nodes = nodes
        self.index = {node.id: index for index, node in enumerate(nodes)}
        if len(self.index) != len(nodes):
            twice = next(node.id for at, node in enumerate(nodes) if self.index[node.id] != at)
            raise InvalidInput(f"duplicate commit {twice}", code="invalid-graph", fields={"commit": twice})
        self.last = {node.group: index for index, node in enumerate(nodes)}
        self.home: dict[str, int] = {}  # the lane of each group so far
        self.where: dict[str, int] = {}  # the lane that leads to each awaited commit
        self.taken: list[bool] = []
        self.kept: list[bool] = []  # the lane leads to the awaited commit from a first child of its own group
        self.until: list[int] = []  # up to this row the lane is some group's home

    def place(self, index: int, node: GraphNode) -> tuple[int, bool]:
        """The lane of a commit, and whether it is a tip. For a moment the lane is free: its line ends here."""
        awaited = self.where.pop(node.id, None)
        lane = self._free_lane(index, node.group) if awaited is None else awaited
        self.taken[lane] = False
        if node.group and node.group not in self.home:
            self.home[node.group] = lane
            self.until[lane] = max(self.until[lane], self.last[node.group])
        return lane, awaited is None

    def lead_on(self, index: int, node: GraphNode, lane: int) -> tuple[tuple[int, ...], int | None]:
        """The lanes in which the lines to the parents leave, and the lane that bends into this one."""
        if not node.parents:
            return (), None
        first, bend = self._lead_to_first(index, node, lane)
        edges = (first, *[self._lead_to(index, node, parent) for parent in node.parents[1:]])
        if bend is not None:
            self.taken[bend] = False  # only now: it is still visible in this row
        return edges, bend

    def lines(self) -> tuple[int, ...]:
        return tuple(compress(range(len(self.taken)), self.taken))

    def _lead_to_first(self, index: int, node: GraphNode, lane: int) -> tuple[int, int | None]:
        parent = node.parents[0]
        group = self._group(index, node, parent)
        own = group == node.group
        home = self.home.get(group)
        present = self.where.get(parent)
        bend = None
        if present is None:
            target = lane if home is None or self.taken[home] else home
        elif own and present != home and not self.kept[present]:
            target, bend = lane, present  # the group's own line is straight; the lines of others bend into it
        else:
            return present, None
        self._take(target, parent, keep=own)
        return target, bend

    def _lead_to(self, index: int, node: GraphNode, parent: str) -> int:
        group = self._group(index, node, parent)
        if parent not in self.where:
            self._take(self._free_lane(index, group), parent, keep=False)
        return self.where[parent]

    def _take(self, lane: int, awaited: str, *, keep: bool) -> None:
        self.where[awaited] = lane
        self.taken[lane] = True
        self.kept[lane] = keep

    def _free_lane(self, index: int, group: str) -> int:
        """The group's own lane, else the first unowned lane, else a new one."""
        home = self.home.get(group)
        if home is not None and not self.taken[home]:
            return home
        for lane, taken in enumerate(self.taken):
            if not taken and self.until[lane] <= index:
                return lane
        self.taken.append(False)
        self.kept.append(False)
        self.until.append(-1)
        return len(self.taken) - 1

    def _group(self, index: int, node: GraphNode, parent: str) -> str:
        """The group of a parent; outside the window it has none."""
        at = self.index.get(parent)
        if at is None:
            return ""
        if at <= index:
            raise InvalidInput(
                f"commit {node.id} comes after its parent {parent}",
                code="invalid-graph",
                hints=["give the commits newest first, each before its parents"],
                fields={"commit": node.id, "parent": parent},
            )
        return self.nodes[at].group

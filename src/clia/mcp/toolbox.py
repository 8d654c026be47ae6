"""What a tool is: data, so that its description, its rights and its work stand in one place."""

from __future__ import annotations

from typing import NamedTuple

from clia.api.records import MAYBE_TEXT
from clia.mcp.shapes import Field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from clia.api.shapes import Shape
    from clia.mcp.shapes import Told


class Effect(NamedTuple):
    """What a client may be told of a tool before it is called."""

    reads: bool = False
    destroys: bool = False
    repeats: bool = False  # whether a second call with the same arguments changes nothing more


READS = Effect(reads=True, repeats=True)
ADDS = Effect()
ONCE = Effect(repeats=True)
ENDS = Effect(destroys=True)


class Tool(NamedTuple):
    name: str
    title: str
    said: str  # for the model
    role: str  # as the verb takes it over HTTP
    fields: Sequence[Field]
    result: Told | Shape
    run: Callable[..., Any]  # with a call and the arguments: in a thread, or a coroutine that takes an exchange
    effect: Effect = READS
    slow: str | None = None  # what is said while it goes on
    talks: bool = False  # ``run`` is a coroutine that may ask the client back


def agent_field(said: str = "the agent; leave it out to mean yourself") -> Field:
    return Field("agent", MAYBE_TEXT, said, None)


AGENT = agent_field()

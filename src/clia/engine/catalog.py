"""What a flow's Python does otherwise than CPython, as the engine of this version was seen to do.

Invariant: each entry was tried, and a test tries each again. What modules, members and built-in functions there are stands
nowhere here: the check asks the engine.
"""

from __future__ import annotations

NO_SUCH_MODULE = {
    "collections.abc": "leave the annotation out, or take it from typing",
    "abc": "a flow's classes cannot inherit",
    "enum": "use plain constants, or typing.Literal",
    "requests": 'ask for it: request("…", {…})',
    "httpx": 'ask for it: request("…", {…})',
    "urllib": 'ask for it: request("…", {…})',
    "socket": "a flow has no network: ask with request()",
    "subprocess": 'a flow runs no programs: ask with request("command", {…})',
    "uuid": "use random.randbytes(16).hex()",
    "secrets": "use random, which is the same on every replay",
    "threading": "use asyncio.gather in an async main",
    "multiprocessing": "use asyncio.gather in an async main",
    "concurrent": "use asyncio.gather in an async main",
    "logging": "use print: it goes to the agent's trace",
}
"""What to do instead, where that is plain."""

NO_CALLBACK = {
    "sorted": ("key",),
    "min": ("key",),
    "max": ("key",),
    "sort": ("key",),
    "bisect": ("key",),
    "bisect_left": ("key",),
    "bisect_right": ("key",),
    "insort": ("key",),
    "insort_left": ("key",),
    "insort_right": ("key",),
    "field": ("default_factory",),
    "groupby": (1, "key"),
    "accumulate": (1, "func"),
    "map": (0,),
    "filter": (0,),
    "iter": (0,),
    "starmap": (0,),
    "takewhile": (0,),
    "dropwhile": (0,),
    "filterfalse": (0,),
    "defaultdict": (0, "default_factory"),
}
"""Functions that call the argument at this place, or of this name, where a flow cannot stop."""

STOPPING_METHODS = frozenset({"__init__", "__call__", "__enter__", "__exit__"})
"""The special methods in which a flow can stop; in any other it cannot."""

DENIED = {
    "open": "a flow has no files",
    "os.environ": "a flow has no environment; what it needs comes in as its input",
    "os.getenv": "a flow has no environment; what it needs comes in as its input",
    "os.urandom": "use random, which is the same on every replay",
    "os.listdir": "a flow has no files",
    "os.walk": "a flow has no files",
    "os.scandir": "a flow has no files",
}
"""What is there and always refuses."""

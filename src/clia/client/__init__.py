"""A space on another machine, with the library's own interface.

Invariant: importing this loads no third-party module.
"""

from __future__ import annotations

from clia.client.space import RemoteSpace

__all__ = ["RemoteSpace"]

"""A space on another machine, with the library's own interface.

Invariant: importing this loads no third-party module.
"""

from __future__ import annotations

from clia.api.remote_space import RemoteSpace

__all__ = ["RemoteSpace"]

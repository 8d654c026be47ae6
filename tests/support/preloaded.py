"""The modules that forked drivers need, imported once before the fork.

Most modules of clia are imported when a verb first needs them. In a process with one verb this takes longer than the verb.
"""

from __future__ import annotations

import gc
import pkgutil
import sys
from importlib import import_module

import pydantic_monty  # noqa: F401

import clia
from clia.facade import opening

LIBRARY = ("behaviours", "engine", "facade", "federation", "git", "hub", "sessions", "space", "store", "values")
"""The packages behind a space; commands, forge and MCP server are not among them."""

for package in LIBRARY:
    for module in pkgutil.walk_packages([f"{clia.__path__[0]}/{package}"], f"clia.{package}."):
        import_module(module.name)
opening.MOVES = sys.maxsize  # as in conftest.py: no upkeep in the background by chance
gc.collect()
gc.freeze()  # otherwise the first collection of a forked process copies all of it

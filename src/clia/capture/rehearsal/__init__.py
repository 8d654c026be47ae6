"""A made-up session of a coding tool: the deterministic stand-in for an agent, for tests, for the demo and for people who try it.

Invariant: it does to the working directory what the tool would, writes the tool's own transcript, and sends the tool's own hook
events; it touches nothing of git. The same seed and script give the same ids, texts and files; only times and places differ.
Like a hook, it loads nothing of clia but this package, and nothing that is not in the standard library.
"""

from __future__ import annotations

from clia.capture.rehearsal.play import TOOLS, play, rehearsed
from clia.capture.rehearsal.script import ScriptError, parse, story
from clia.capture.rehearsal.stage import Setting

__all__ = ["TOOLS", "ScriptError", "Setting", "parse", "play", "rehearsed", "story"]

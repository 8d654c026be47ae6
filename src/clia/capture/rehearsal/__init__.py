"""Rehearsals: scripted sessions of a coding tool, for tests, demos and trying things out.

Invariant: a rehearsal changes the working directory, writes the transcript and sends the hook events as the tool would; it runs
no git command. The same seed and script give the same ids, texts and files; only times and paths differ. Like a hook, it loads
only this package, the hook's module and the standard library.
"""

from __future__ import annotations

from clia.capture.rehearsal.play import TOOLS, play, rehearsed
from clia.capture.rehearsal.script import ScriptError, parse, story
from clia.capture.rehearsal.stage import Setting

__all__ = ["TOOLS", "ScriptError", "Setting", "parse", "play", "rehearsed", "story"]

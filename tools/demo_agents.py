"""Demo of hooks, a rehearsed session, and any program as an agent."""

from __future__ import annotations

TOUR = (
    ("What would make Claude Code tell clia what it does? Nothing is written yet.", "hook install claude-code --dry-run"),
    (
        "A made-up session of Claude Code, with two sub-agents: it runs the hooks that the real one would.",
        "hook rehearse claude-code",
    ),
    ("What the hooks put down becomes agents, traces and commits; much of it has become so meanwhile.", "ingest"),
    ("Who worked for whom?", "tree"),
    (
        "Any program can be an agent: in its own worktree, with what it prints as its trace.",
        "run checker --quiet -- sh -c 'wc -l *.py | tee size.txt'",
    ),
    ("What did it do?", "log checker"),
)

"""Demo of hooks, a rehearsed session, and any program as an agent."""

from __future__ import annotations

TOUR = (
    ("Which settings make Claude Code report to clia? Nothing is written yet.", "hook install claude-code --dry-run"),
    (
        "A simulated session of Claude Code with two sub-agents; it runs the hooks as a real one would.",
        "hook rehearse claude-code --path .",
    ),
    ("Recorded events become agents, traces and commits; most of them have already been ingested.", "ingest"),
    ("Who worked for whom?", "tree"),
    (
        "Any program can be an agent: it runs in its own worktree, and its output is its trace.",
        "run checker --quiet -- sh -c 'wc -l *.py | tee size.txt'",
    ),
    ("What did it do?", "log checker"),
)

"""A space's git: libgit2 for objects, refs and merges, stock git for worktrees, transfer and upkeep."""

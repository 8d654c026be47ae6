"""Running programs: in a worktree, under a guard process, with a terminal or pipes."""

"""``clia agents``: one file a command. Each has ``configure(parser, slug)`` and ``run(args) -> exit code``."""

"""The commands of flows, sessions and decisions, one module each: ``configure(parser, slug)`` and ``run(args) -> exit code``."""

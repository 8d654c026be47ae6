"""The commands about the hub, one module each: ``configure(parser, slug)`` and ``run(args) -> exit code``."""

"""The commands about other spaces, one module each: ``configure(parser, slug)`` and ``run(args) -> exit code``."""

"""The commands about behaviours, one module each: ``configure(parser, slug)`` and ``run(args) -> exit code``."""

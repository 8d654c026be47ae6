"""The commands of a space, one module each: ``configure(parser, slug)`` and ``run(args) -> exit code``."""

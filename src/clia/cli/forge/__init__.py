"""The commands of the forge, one module each: ``configure(parser, slug)`` and ``run(args) -> exit code``."""

"""The command line: one module per noun, commands declared with ``clia.cli.command``.

Invariant: a module is imported only when one of its commands runs. People get tables and colours, programs get ``--json``.
"""

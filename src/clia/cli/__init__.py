"""The command line: a driving adapter over ``clia.facade``.

Invariant: a command's module is loaded only when that command runs; people get colours and tables, programs get
``--json``; errors become exit codes in one place.
"""

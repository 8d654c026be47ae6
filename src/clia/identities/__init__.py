"""Lineage: who an agent is, here. Triads merged over every enclosing directory and repository.

The package is called ``triads`` because ``clia.lineage`` is the public function: a package of that name would hide it.

Invariant: reading is pure. The same files under a working path's ancestors give the same bytes, whatever the
clock, the hash seed or the order of a directory listing; a read writes nothing and starts no process.
"""

"""Who an agent is, here: triads merged over every enclosing directory and repository.

Invariant: reading is pure. The same files under a working path's ancestors give the same bytes, whatever the
clock, the hash seed or the order of a directory listing; a read writes nothing and starts no process.
"""

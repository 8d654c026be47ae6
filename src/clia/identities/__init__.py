"""Identities: who an agent is at a working path.

An identity is a slug with documents (profile, agenda, agency), merged over the enclosing directories and repositories. The
package is not called ``lineage`` because it would hide the public function ``clia.lineage``.

Invariant: reading is pure. The same files give the same bytes, whatever the clock, the hash seed or the order of a directory
listing; a read writes nothing and starts no process.
"""

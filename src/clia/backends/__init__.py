"""Implementations of the ports. They import no domain package; ``clia.app`` wires them."""

"""Checkpoints of the record: signed Merkle roots that witnesses cosign, in the formats of C2SP."""

"""Basic values: names, refs, canonical JSON, pointers, types, the clock. Imports only ``errors``."""

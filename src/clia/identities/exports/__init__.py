"""Identities in the formats of other tools, and as Markdown."""

"""Exports: copies of a merged profile for the tools people already run.

Invariant: an export is a copy, never input to lineage. Only managed blocks, and whole files listed in clia's manifest,
are ever rewritten; everything is checked before the first write; the same profile gives the same bytes everywhere.
The agency is never exported.
"""

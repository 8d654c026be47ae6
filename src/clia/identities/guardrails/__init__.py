"""Guardrails of identities: their rules, waivers, lint checks, and changes that weaken them."""

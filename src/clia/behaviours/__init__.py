"""Behaviours: content-addressed versions of flows and prompts, observations of them, and suggestions."""

"""Behaviours: skills as content-addressed versions, what was observed of each, and what follows from that."""

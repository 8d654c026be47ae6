"""Test doubles and seams for tests: the in-memory store."""

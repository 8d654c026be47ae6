"""Redaction: secret patterns, and the streaming filter that removes secrets before anything is stored."""

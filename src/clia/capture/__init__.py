"""Capture of sessions of coding tools, from their hooks and transcripts."""

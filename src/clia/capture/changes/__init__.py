"""What a captured tool changed in a directory: its files and its commits."""

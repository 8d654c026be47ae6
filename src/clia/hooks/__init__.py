"""What a tool's hook starts: it puts the event down, and nothing more."""

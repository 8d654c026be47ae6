"""Sessions: where an agent is, and what it waits for."""

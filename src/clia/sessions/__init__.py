"""Sessions: runs of flows by agents, their requests and decisions."""

"""A space for agents, over the Model Context Protocol."""

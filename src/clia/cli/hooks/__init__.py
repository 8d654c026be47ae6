"""Commands about the tools that agents run in."""

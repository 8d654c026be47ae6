"""The gate of a server: what may be pushed to its protected branches."""

"""The API: verbs, their JSON shapes, and the remote client."""

"""The REST API, made from the table of verbs."""

"""The REST API, generated from the table of verbs."""

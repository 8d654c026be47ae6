"""The forge: web pages and the HTTP API."""

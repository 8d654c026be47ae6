"""The forge: pages and the API for people and programs, over HTTP."""

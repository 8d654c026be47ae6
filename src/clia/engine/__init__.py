"""The engine that runs flows: pydantic-monty, an interpreter in worker processes of its own."""

"""The engine that runs flows: pydantic-monty, a Python interpreter in separate worker processes."""

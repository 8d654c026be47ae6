"""The MCP server: a space for agents over the Model Context Protocol.

Each tool calls a verb of the library, with the same roles, shapes and errors as the HTTP API. ``server.TOOLS`` lists them all.
"""

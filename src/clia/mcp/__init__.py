"""A space for agents, over the Model Context Protocol.

Invariant: nothing is decided here. Each tool is a verb of the library in a form that a model can use, with the roles, the
shapes and the errors that the verb has over HTTP; ``tools`` has the one list of them.
"""

"""What agents wrote, as HTML: pure functions from values to ``Markup``.

Invariant: every foreign character is escaped, and what cannot be seen is made visible; a tag, a class or an attribute is
always ours. No inline style, no script, no address that an agent chose.
"""

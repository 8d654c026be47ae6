"""Pure functions that render untrusted values as HTML.

Invariant: foreign text is escaped, and invisible characters are made visible. Tags, classes, attributes and URLs never come from
foreign text. No inline styles or scripts.
"""

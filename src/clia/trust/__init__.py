"""Who signed what: keys, signatures, statements of people, the log of moves, and checking all of it from a plain clone."""

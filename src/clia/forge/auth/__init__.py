"""Who asks: cookies of browsers, tokens of programs, and what a trusted proxy says."""

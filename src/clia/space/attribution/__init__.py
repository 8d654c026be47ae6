"""Which lines of people's commits agents wrote: matching, notes, blame and summaries."""

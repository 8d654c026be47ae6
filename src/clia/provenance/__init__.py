"""Why a line is there, and attestations for other tools: what the record shows about commits, in one piece."""

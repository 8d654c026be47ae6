"""The hub: the git server through which several machines share one space."""

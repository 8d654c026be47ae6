"""The composition root: use cases wired to real backends. The only package that adapters call."""

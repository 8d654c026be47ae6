"""The ``Space`` class, and how one is opened: wires services to git, the store and the engine."""

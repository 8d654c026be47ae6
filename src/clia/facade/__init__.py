"""The ``Space`` class, its settings and configuration, and how one is created and opened."""

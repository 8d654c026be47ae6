"""Benchmarks: each row is measured against a floor in the same run."""

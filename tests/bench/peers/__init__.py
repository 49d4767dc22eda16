"""Benchmarks of afterwrite beside its peers, on the same input in the same run."""

"""Benchmarks that anyone can rerun: rocade beside its rivals in one process, with medians and ratios."""

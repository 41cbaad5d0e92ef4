"""Conformance: an fp64 oracle, a grid of cases, and a runner that holds every backend to the contract."""

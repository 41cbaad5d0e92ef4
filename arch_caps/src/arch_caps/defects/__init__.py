"""Recorded defects, one file per backend that has them."""

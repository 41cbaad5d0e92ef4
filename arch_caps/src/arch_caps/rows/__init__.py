"""The rows of the table, one file per backend."""

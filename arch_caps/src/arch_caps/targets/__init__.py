"""Facts of silicon, one literal per file. A test refuses anything that computes."""

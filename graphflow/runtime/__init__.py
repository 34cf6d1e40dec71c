"""Running a graph: the fold that decides, the ledger that counts, and the runner that acts."""

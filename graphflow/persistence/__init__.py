"""Where the records of runs are kept."""

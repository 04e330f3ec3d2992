"""What `benchmarks/frameworks.py` runs: one script, and a side for each way to run it."""

"""The demo's report: one HTML page without a script that needs nothing else."""

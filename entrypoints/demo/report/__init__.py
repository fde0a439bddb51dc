"""The demo's report: one self-contained HTML page without scripts."""

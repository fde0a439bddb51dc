"""How results are shown, to people and as JSON."""

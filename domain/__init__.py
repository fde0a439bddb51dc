"""The rules: pure values and decisions. No I/O, no clock, no chance; those come in as arguments."""

"""The domain: pure values and rules. No I/O, clock or randomness; these are passed as arguments."""

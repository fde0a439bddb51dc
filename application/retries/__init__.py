"""Retrying, and doing things once: one loop, in all the forms in which it is used."""

"""Checkers: each watches some calls and says which invariants it checks."""

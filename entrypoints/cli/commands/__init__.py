"""What an operator types: one module a noun."""

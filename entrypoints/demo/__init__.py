"""The demo: plays an operator's day with real commands against a faulty provider."""

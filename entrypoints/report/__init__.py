"""Pages for people: markup that cannot be injected, a style, maps; the report of a flight."""

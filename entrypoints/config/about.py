"""What settings are for, said where they are declared."""

ABOUT = "about"
EXAMPLE = "example"


def about(text: str, example: float | str | None = None) -> dict[str, object]:
    """Say what a setting is for, and what it may look like where it has no default.

    ``config init`` writes it down.
    """
    return {ABOUT: text, EXAMPLE: example}

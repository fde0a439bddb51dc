"""What settings are for, said where they are declared."""

ABOUT = "about"


def about(text: str) -> dict[str, str]:
    """Say what a setting is for: `config init` and `config show` read it."""
    return {ABOUT: text}

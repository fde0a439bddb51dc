"""Removal of the API key from texts of other parties, in every encoding that they may use."""

import html
import re
from urllib.parse import quote

REDACTED = "***"


def redact_key(text: str, key: str) -> str:
    """Mask the key: verbatim, URL-encoded, JSON-escaped or HTML-escaped, in upper or lower case."""
    if not key:
        return text
    forms = {key, quote(key), quote(key, safe=""), key.replace("/", r"\/"), html.escape(key)}
    longest_first = sorted(forms, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, longest_first)), REDACTED, text, flags=re.IGNORECASE)

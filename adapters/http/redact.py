"""Taking our key out of somebody else's words, in whichever form they repeat it."""

import html
import re
from urllib.parse import quote

REDACTED = "***"


def redact_key(text: str, key: str) -> str:
    """Hide the key: as it is, as in an address, as in JSON, as in HTML, in any case."""
    if not key:
        return text
    forms = {key, quote(key), quote(key, safe=""), key.replace("/", r"\/"), html.escape(key)}
    longest_first = sorted(forms, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, longest_first)), REDACTED, text, flags=re.IGNORECASE)

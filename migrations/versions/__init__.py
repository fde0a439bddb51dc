"""One file per migration; its number is the revision."""

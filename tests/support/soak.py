"""How often crash tests crash: ten times as often in ``make soak``."""

import os

TIMES = 10 if os.environ.get("SOAK") else 1

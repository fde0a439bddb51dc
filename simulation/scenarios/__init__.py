"""The scenarios, by name."""

from simulation.scenarios.base import Scenario
from simulation.scenarios.download import DownloadScenario

SCENARIOS: dict[str, type[Scenario]] = {"download": DownloadScenario}

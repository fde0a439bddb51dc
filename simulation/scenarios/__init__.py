"""The scenarios, by name."""

from simulation.scenarios.base import Scenario
from simulation.scenarios.download import DownloadScenario
from simulation.scenarios.idempotency import IdempotencyScenario
from simulation.scenarios.queue import QueueScenario
from simulation.scenarios.upload import UploadScenario

SCENARIOS: dict[str, type[Scenario]] = {
    kind.name: kind
    for kind in (DownloadScenario, IdempotencyScenario, QueueScenario, UploadScenario)
}

"""Where a program that embeds tileferry lives, in tests."""

from pathlib import Path
from typing import Any

from attrs import define, field

from support.provider import API_KEY, RunningProvider
from tileferry.application.ports.progress import ProgressEvent
from tileferry.entrypoints.config import C11Config, Config, PartitionsConfig
from tileferry.entrypoints.embedding import Tileferry

BOX = "36.20,49.90,36.24,49.92"
AREA: dict[str, Any] = {"bbox": BOX, "zoom_levels": [14], "sector": "stable_rear"}


@define
class EmbeddingEnv:
    """Where an instance lives."""

    home: Path
    database_url: str
    provider: RunningProvider
    heard: list[ProgressEvent] = field(factory=list)

    def create_config(self, name: str = "cache") -> Config:
        return Config(
            database_url=self.database_url,
            c11=C11Config(
                cache_root=self.home / name,
                satellite_provider_url=self.provider.url,
                service_api_key=API_KEY,
                backoff_base_s=0.0,
            ),
            partitions=PartitionsConfig(raw_root=self.home / "raw"),
        )

    def create_tileferry(self, name: str = "cache") -> Tileferry:
        return Tileferry(self.create_config(name), listener=self.heard.append)

    def list_events(self, kind: type[ProgressEvent]) -> list[ProgressEvent]:
        return [event for event in self.heard if isinstance(event, kind)]

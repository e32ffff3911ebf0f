"""Represents one end of a pipeline: a connector with the user's configuration, or with the one that
the connector changed.

Moves no record. Neighbours: ``engine.plan.source_endpoint``, ``destination_endpoint`` and
``transform_endpoint`` are the kinds of ends; ``connectors`` runs a connector.
"""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from penstock.config.pipeline import ConnectorSection, Pipeline
from penstock.config.sections import Resources
from penstock.connectors.connector import RunnableConnector
from penstock.connectors.reference import RefKind, parse_ref
from penstock.engine.plan.named_packages import meant
from penstock.engine.specs.lane import NewConfig
from penstock.engine.specs.observer import RunObserver
from penstock.errors import ConfigError
from penstock.model.events import Control, Error, Event, LogEvent, SkippedItems
from penstock.runtimes.contract import RunTimeouts
from penstock.store.contract import Store

SOURCE, DESTINATION = "source", "destination"
Save = Callable[[NewConfig], None]


C = TypeVar("C", bound=RunnableConnector)


class Endpoint(Generic[C]):
    """A connector with its configuration. ``connector`` is set by the subclass. ``role``: names its
    configuration in the store and its log lines; ``path``: its path in the pipeline file, where
    that differs. ``save`` stores a configuration that the connector changed while it answered
    (CONTROL)."""

    connector: C

    def __init__(
        self,
        pipeline: Pipeline,
        section: ConnectorSection,
        role: str,
        store: Store,
        observer: RunObserver,
        save: Save,
        path: str | None = None,
    ) -> None:
        self.observer, self.role_name = observer, role
        self._pipeline, self._path = pipeline, path or role
        self.notes: list[str] = []
        self.user_config = section.config
        self.base_hash = _config_hash(section.config)
        self.timeouts = timeouts_of(pipeline, section)
        self.meant = meant(store, pipeline.pipeline, section.use)
        override = store.config_override(pipeline.pipeline, role)
        holds = override is not None and override[0] == self.base_hash
        self.config = override[1] if override is not None and holds else section.config
        self.changed_before = holds
        self._save = save

    def validate(self) -> None:
        """Checks the configuration against the connector's own schema, before any other call.
        Problems and ``notes`` name the line of the pipeline file. Raises ``ConfigError``."""
        try:
            self.notes = [self._placed(note) for note in self.connector.validate(self.config)]
        except ConfigError as e:
            problems = [self._placed(problem) for problem in e.problems]
            if e.message in e.problems:
                e.message = problems[e.problems.index(e.message)]
                e.args = (e.message,)
            e.problems = problems
            raise

    def _placed(self, text: str) -> str:
        """Replaces the leading ``config.port: ...`` of a text with its line and its path in the
        pipeline file."""
        path, _, rest = text.partition(": ")
        if not path.startswith("config"):
            return text
        steps = path.split(".")[1:]
        key = (
            self._path
            + ".config"
            + "".join(f"[{step}]" if step.isdigit() else f".{step}" for step in steps)
        )
        line = self._pipeline.position(key)
        return f"{key}: {rest}" if line is None else f"{line}: {key}: {rest}"

    def secrets(self) -> list[str]:
        """Returns the values that must be masked in every log, report and error (L10)."""
        return self.connector.secrets(self.config)

    def take(self, event: Event) -> None:
        """Handles an event that the connector sends in addition to its answers: logs it, or stores
        a new configuration."""
        match event:
            case LogEvent():
                self.observer.log(event.level, self.role_name, event.message)
            case Error():
                self.observer.log("ERROR", self.role_name, event.message)
            case Control():
                self.change_config(NewConfig(self.base_hash, event.config), self._save)
            case SkippedItems():
                self.observer.log("DEBUG", self.role_name, f"{event.what}: {event.count}")
            case _:
                pass

    def change_config(self, new: NewConfig, save: Save) -> None:
        """Stores the connector's new configuration with ``save``, then uses it."""
        save(new)
        self.config = new.config
        self.connector.changed(self.user_config, self.config)


def component_settings(pipeline: Pipeline, section: ConnectorSection, place: str) -> dict[str, Any]:
    """Returns ``Component.settings``: the pipeline's settings for a WebAssembly connector.
    ``place``: the connector's role, with its index where there are several."""
    destination = pipeline.destination
    asked: dict[str, Any] = {
        "place": place,
        "assume_manifest": section.assume_manifest,
        "folder": section.folder,
        "resources": pipeline.resources or Resources(),
        "on_data_error": destination.on_data_error,
        "schema_evolution": destination.schema_evolution,
        "original_names": pipeline.dialect != "penstock",
    }
    return msgspec.to_builtins(asked)


def folder_of(section: ConnectorSection) -> Path | None:
    """Returns the folder that a local connector runs in; None: the current one."""
    return None if section.folder is None else Path(section.folder)


def running_folder(section: ConnectorSection) -> Path:
    """Returns the folder that a local connector runs in, and where its relative paths start."""
    return folder_of(section) or Path.cwd()


def timeouts_of(pipeline: Pipeline, section: ConnectorSection) -> RunTimeouts:
    """Returns the timeouts of a connector. A component's ``timeout_seconds`` bounds its work, not
    the time it waits, and its runtime enforces it; so it is left out."""
    asked, component = pipeline.timeouts, parse_ref(section.use).kind is RefKind.component
    limit = section.limits.timeout_seconds if section.limits and not component else None
    bounds = [b for b in (asked.total, limit) if b is not None]
    return RunTimeouts(asked.start, asked.heartbeat, min(bounds, default=None), asked.stop)


def _config_hash(config: Mapping[str, Any]) -> str:
    return hashlib.sha256(msgspec.json.encode(config, order="sorted")).hexdigest()

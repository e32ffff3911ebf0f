"""Turns a Meltano project (``meltano.yml``) into pipeline files, one for each tap and target that
run together, and says what could not be carried over.

Read are plugins with ``inherit_from``, the definitions that Meltano locked beside them, ``select``
and ``metadata``, environments, jobs and schedules. Nothing is run and no value of the environment
is read: references to variables stay references, and secrets that stand in the project become
variables. Not here: writing the files (``cli.import_``). Source: Meltano's project file reference,
plugin extras, plugin settings.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple, cast

import yaml

from penstock.api.imported_file import (
    ImportedFile,
    Reference,
    TypedVariable,
    holds_a_secret,
    pipeline_file,
)
from penstock.errors import ConfigError

_KINDS = ("extractors", "loaders")
_REFERENCE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
_REQUIREMENT = re.compile(r"([A-Za-z0-9][\w.-]*)(\[[^\]]*\])?\s*(.*)")
_SENSITIVE = ("password", "oauth")
_TYPED = ("integer", "boolean", "decimal", "array", "object")
# Keys of a plugin that are read, or that say nothing of what it does.
_KNOWN = """
annotations capabilities commands config definition description docs domain_url executable ext_repo
hidden inherit_from keywords label load_schema logo_url maintenance_status metadata name namespace
next_steps pip_url prereq quality repo requires select settings settings_group_validation
settings_preamble supported_python_versions usage variant
"""
_METHODS = {"INCREMENTAL": "incremental", "FULL_TABLE": "full_refresh", "LOG_BASED": "cdc"}


def meltano_pipelines(path: Path) -> tuple[list[ImportedFile], list[str]]:
    """Returns the pipelines of the project whose file is ``path``, and notes of the project as a
    whole. Raises ``ConfigError``."""
    project = _Project(path)
    pairs = [*project.pairs()]
    if not pairs:
        raise ConfigError(
            f"{path} names no extractor with a loader",
            code="import.nothing",
            hint="a pipeline needs both: under plugins, and in a job or a schedule where there are "
            "several loaders",
        )
    return [project.pipeline(pair) for pair in pairs], project.notes


class _Pair(NamedTuple):
    tap: str
    target: str
    origin: str
    notes: tuple[str, ...] = ()


class _Project:
    def __init__(self, path: Path) -> None:
        self._path, self._folder = path, path.parent
        self._document = _document(path)
        self.notes: list[str] = []
        self._plugins = {kind: self._listed(kind) for kind in _KINDS}
        if self._document.get("env"):
            self.notes.append(f"`env` of {path.name}: set {_names(self._document['env'])} yourself")
        other = [k for k in _mapping(self._document.get("plugins")) if k not in _KINDS]
        if other:
            self.notes.append(f"plugins that move no rows: {', '.join(other)}")

    def _listed(self, kind: str) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for document in (self._document, *self._included()):
            for each in _list(_mapping(document.get("plugins")).get(kind)):
                plugin = _mapping(each)
                found[str(plugin.get("name"))] = plugin
        return found

    def _included(self) -> Iterator[dict[str, Any]]:
        for pattern in _list(self._document.get("include_paths")):
            for file in sorted(self._folder.glob(str(pattern))):
                if file.is_file() and file.suffix in (".yml", ".yaml"):
                    yield _document(file)

    # -- which tap runs with which target

    def pairs(self) -> Iterator[_Pair]:
        jobs = {
            str(_mapping(j).get("name")): _mapping(j) for j in _list(self._document.get("jobs"))
        }
        found: dict[tuple[str, str], _Pair] = {}
        for each in _list(self._document.get("schedules")):
            schedule = _mapping(each)
            origin = f"schedule {schedule.get('name')}, {schedule.get('interval')}"
            job = jobs.pop(str(schedule.get("job")), None)
            made = (
                self._of_job(job, origin)
                if job is not None
                else [_Pair(str(schedule.get("extractor")), str(schedule.get("loader")), origin)]
            )
            for pair in made:
                found.setdefault(pair[:2], pair)
        for job in jobs.values():
            for pair in self._of_job(job, f"job {job.get('name')}"):
                found.setdefault(pair[:2], pair)
        yield from (pair for pair in found.values() if self._known(pair))
        taps = {pair.tap for pair in found.values()} | self._parents("extractors")
        targets = [t for t in self._plugins["loaders"] if t not in self._parents("loaders")]
        for tap in self._plugins["extractors"]:
            if tap not in taps:
                yield from (_Pair(tap, target, "plugins") for target in targets)

    def _parents(self, kind: str) -> set[str]:
        """The plugins that others inherit from: those run."""
        return {str(p["inherit_from"]) for p in self._plugins[kind].values() if "inherit_from" in p}

    def _known(self, pair: _Pair) -> bool:
        missing = [
            name
            for kind, name in zip(_KINDS, pair[:2], strict=True)
            if name not in self._plugins[kind]
        ]
        if missing:
            self.notes.append(
                f"{pair.origin}: {', '.join(missing)} is not a plugin of this project"
            )
        return not missing

    def _of_job(self, job: Mapping[str, Any], origin: str) -> Iterator[_Pair]:
        for task in _list(job.get("tasks")):
            steps = (
                [str(step) for step in cast(list[Any], task)] if isinstance(task, list) else [task]
            )
            words = [word for step in steps for word in shlex.split(str(step))]
            tap, between, left = None, list[str](), list[str]()
            for word in words:
                if word in self._plugins["extractors"]:
                    tap, between = word, []
                elif word in self._plugins["loaders"] and tap is not None:
                    notes = tuple(f"the mapper {m} between them" for m in between)
                    yield _Pair(tap, word, origin, notes)
                    tap = None
                elif tap is not None:
                    between.append(word)
                else:
                    left.append(word)
            if left:
                self.notes.append(f"{origin}: {', '.join(left)} is run by nobody now")

    # -- one pipeline

    def pipeline(self, pair: _Pair) -> ImportedFile:
        notes = list(pair.notes)
        name = f"{pair.tap}-to-{pair.target}"
        source = self._end("extractors", pair.tap, notes)
        tap = self._resolved("extractors", pair.tap, notes)
        source |= _selection(tap, notes)
        destination = self._end("loaders", pair.target, notes, self._schema_of(pair.tap, tap))
        profiles = dict(self._profiles(pair, notes))
        document: dict[str, Any] = {"pipeline": name, "source": source, "destination": destination}
        if profiles:
            document["profiles"] = profiles
        first = f"From {self._path.name}: {pair.tap} into {pair.target} ({pair.origin})."
        state = (
            "its state: save the singer_state of `meltano state get ID` as a file, then `penstock "
            f"state import {name}.yaml FILE`; without it the first run reads from the start"
        )
        notes.append(state)
        return pipeline_file(name, first, notes, document)

    def _resolved(self, kind: str, name: str, notes: list[str]) -> dict[str, Any]:
        """A plugin with what it inherits."""
        chain: list[dict[str, Any]] = []
        seen: set[str] = set()
        while name in self._plugins[kind] and name not in seen:
            seen.add(name)
            chain.append(self._plugins[kind][name])
            name = str(chain[-1].get("inherit_from", ""))
        found: dict[str, Any] = {}
        for each in reversed(chain):
            merged = {key: {**_mapping(found.get(key)), **_mapping(each.get(key))}
                      for key in ("config", "metadata") if key in found or key in each}  # fmt: skip
            found |= each | merged
        found["base"] = name or str(chain[-1].get("name"))
        lock = self._lock(kind, found["base"], found.get("variant"))
        for key in ("pip_url", "namespace", "executable"):
            if key not in found and key in lock:
                found[key] = lock[key]
        found["settings"] = [*_list(lock.get("settings")), *_list(found.get("settings"))]
        unknown = sorted(set(found) - {*_KNOWN.split(), "base"})
        notes += [f"{found['name']}: {key}" for key in unknown]
        return found

    def _lock(self, kind: str, name: str, variant: Any) -> dict[str, Any]:
        """What Meltano's hub said of a plugin when it was added; empty: it is not there."""
        folder = self._folder / "plugins" / kind
        files = (
            [folder / f"{name}--{variant}.lock"]
            if variant
            else sorted(folder.glob(f"{name}--*.lock"))
        )
        for file in files:
            try:
                return _mapping(json.loads(file.read_text()))
            except (OSError, ValueError):
                continue
        return {}

    def _schema_of(self, name: str, tap: Mapping[str, Any]) -> str:
        """The schema that Meltano gives a target by default."""
        fallback = tap.get("namespace") or str(tap.get("base", name)).replace("-", "_")
        return str(tap.get("load_schema") or fallback)

    def _end(
        self, kind: str, name: str, notes: list[str], schema: str | None = None
    ) -> dict[str, Any]:
        plugin = self._resolved(kind, name, [] if kind == "extractors" else notes)
        use, install = _package(plugin, notes)
        config = _Config(name, plugin, schema, notes)
        end: dict[str, Any] = {"use": use}
        if values := config.values(_mapping(plugin.get("config")), defaults=True):
            end["config"] = values
        return end | ({"install": {"constraints": install}} if install else {})

    def _profiles(self, pair: _Pair, notes: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        for each in _list(self._document.get("environments")):
            environment = _mapping(each)
            name = str(environment.get("name"))
            plugins = _mapping(_mapping(environment.get("config")).get("plugins"))
            profile: dict[str, Any] = {}
            for kind, plugin_name, end in zip(
                _KINDS, pair[:2], ("source", "destination"), strict=True
            ):
                for own in map(_mapping, _list(plugins.get(kind))):
                    if own.get("name") != plugin_name:
                        continue
                    plugin = self._resolved(kind, plugin_name, [])
                    values = _Config(plugin_name, plugin, None, notes).values(
                        _mapping(own.get("config")), defaults=False
                    )
                    section: dict[str, Any] = {"config": values} if values else {}
                    if kind == "extractors" and ("select" in own or "metadata" in own):
                        section |= _selection({**plugin, **own}, notes)
                    if section:
                        profile[end] = section
            if environment.get("env"):
                notes.append(
                    f"`env` of environment {name}: set {_names(environment['env'])} yourself"
                )
            if profile:
                yield name, profile


class _Config:
    """The configuration of one plugin, in Penstock's words."""

    def __init__(
        self, name: str, plugin: Mapping[str, Any], schema: str | None, notes: list[str]
    ) -> None:
        self._name, self._schema, self._notes = name, schema, notes
        self._settings = {
            str(_mapping(s).get("name")): _mapping(s) for s in _list(plugin.get("settings"))
        }

    def values(self, given: Mapping[str, Any], *, defaults: bool) -> dict[str, Any]:
        """``defaults``: with the values that Meltano gives where nobody set one."""
        config: dict[str, Any] = {}
        if defaults:
            config = {
                n: s["value"] for n, s in self._settings.items() if s.get("value") is not None
            }
        config |= given
        found: dict[str, Any] = {}
        for name, value in config.items():
            setting = self._settings.get(name, {})
            _put(found, name.split("."), self._value(name, value, setting))
        if defaults:
            secret = [n for n, s in self._settings.items() if n not in config and _sensitive(s)]
            for name in secret:
                self._notes.append(
                    f"{self._name}: Meltano reads {name} from {self._variable(name)} where that is "
                    f"set; write it as config.{name}: ${{{self._variable(name)}}}"
                )
        return found

    def _value(self, name: str, value: Any, setting: Mapping[str, Any]) -> Any:
        if _is_secret(name, value, setting):
            variable = self._variable(name)
            self._notes.append(
                f"{self._name}: {name} is a secret that stood in the project; set {variable}"
            )
            return Reference(f"${{{variable}}}")
        if isinstance(value, dict):
            inner = cast(dict[str, Any], value)
            return {k: self._value(f"{name}.{k}", v, {}) for k, v in inner.items()}
        if isinstance(value, list):
            return [self._value(name, v, setting) for v in cast(list[Any], value)]
        return self._converted(value, str(setting.get("kind", "")))

    def _converted(self, value: Any, kind: str) -> Any:
        if not isinstance(value, str):
            return value
        if self._schema is not None:
            value = re.sub(r"\$\{?MELTANO_EXTRACT__LOAD_SCHEMA\}?", self._schema, value)
        names = [a or b for a, b in _REFERENCE.findall(value)]
        if not names:
            return value
        for name in names:
            if name.startswith("MELTANO_"):
                self._notes.append(f"{self._name}: Meltano sets {name} itself; set it")
        text = _REFERENCE.sub(lambda found: f"${{{found[1] or found[2]}}}", value)
        return TypedVariable(text) if kind in _TYPED else Reference(text)

    def _variable(self, setting: str) -> str:
        """The variable that Meltano takes the setting from."""
        return re.sub(r"[^A-Z0-9]+", "_", f"{self._name}_{setting}".upper())


def _sensitive(setting: Mapping[str, Any]) -> bool:
    return setting.get("sensitive") is True or setting.get("kind") in _SENSITIVE


def _is_secret(name: str, value: Any, setting: Mapping[str, Any]) -> bool:
    """Whether the value is a secret that stands in the project: where its setting says so or, of a
    setting whose kind nobody declared, where its name does."""
    if isinstance(value, str) and _REFERENCE.search(value):
        return False
    undeclared = not setting.keys() & {"kind", "sensitive"}
    by_name = isinstance(value, str) and holds_a_secret(name.rpartition(".")[2])
    return _sensitive(setting) or (undeclared and by_name)


def _put(into: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """``a.b`` is the property b of the object a, as Meltano gives it to a plugin."""
    for step in path[:-1]:
        inner = into.setdefault(step, {})
        if not isinstance(inner, dict):
            return
        into = cast(dict[str, Any], inner)
    into[path[-1]] = value


def _package(plugin: Mapping[str, Any], notes: list[str]) -> tuple[str, list[str]]:
    """The reference of a plugin's package, and constraints of what it needs."""
    base = str(plugin["base"])
    words = shlex.split(str(plugin.get("pip_url") or ""))
    wanted = [w for w in words if not w.startswith("-")]
    if len(wanted) < len(words):
        options = ", ".join(w for w in words if w.startswith("-"))
        notes.append(f"{base}: pip's options {options}")
    if not wanted:
        if plugin.get("variant"):
            notes.append(
                f"{base}: its variant {plugin['variant']}; Penstock looks the package up by its "
                "name, so name the one you want"
            )
        return f"singer:{base}", []
    constraints: list[str] = []
    for extra in wanted[1:]:
        if re.search(r"[<>=~!]", extra):
            constraints.append(extra)
        else:
            notes.append(f"{base}: the further package {extra}")
    first = wanted[0]
    if re.match(r"(git\+)?(https?|ssh)://", first):
        return f"singer:{first}", constraints
    if first.startswith((".", "/", "file:")):
        executable = str(plugin.get("executable") or base)
        notes.append(f"{base}: install {first} yourself, and name its executable in `use`")
        return f"singer:./{executable}", constraints
    match = _REQUIREMENT.fullmatch(first)
    if match is None:
        notes.append(f"{base}: {first} is not a requirement that Penstock knows")
        return f"singer:{base}", constraints
    name, extras, version = match[1], match[2], match[3].strip()
    if extras:
        notes.append(f"{base}: the extras {extras} of {name}")
    if version.startswith("==") and "," not in version and "*" not in version:
        return f"singer:{name}@{version.removeprefix('==').strip()}", constraints
    return f"singer:{name}", [*([f"{name}{version}"] if version else []), *constraints]


def _selection(tap: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    """``streams``, ``exclude`` and ``defaults`` of a source, from ``select`` and ``metadata``."""
    wanted: list[tuple[str, str]] = []
    excluded: dict[str, None] = {}
    for pattern in [str(p) for p in _list(tap.get("select"))] or ["*.*"]:
        entity, column = _split(pattern.removeprefix("!"))
        if not pattern.startswith("!"):
            wanted.append((entity, column))
            continue
        if column != "*":
            notes.append(
                f"the stream {entity}, of which Meltano leaves out {column}: Penstock "
                "can only list columns to keep, so take it out of `exclude` and list them"
            )
        excluded[entity] = None
    streams = {entity: _stream(entity, wanted, notes) for entity, _ in wanted}
    defaults: dict[str, Any] = {}
    for key, each in _mapping(tap.get("metadata")).items():
        pattern = str(key)
        about = _metadata(pattern, _mapping(each), excluded, notes)
        if pattern in ("*", "*.*"):
            defaults = about
            continue
        meant = [entry for name, entry in streams.items() if fnmatchcase(name, pattern)]
        if not meant and any(fnmatchcase(pattern, name) for name in streams):
            meant = [streams.setdefault(pattern, _stream(pattern, wanted, notes))]
        for entry in meant:
            entry.update(about)
        if about and not meant:
            notes.append(f"metadata of {pattern}, which is not selected")
    found: dict[str, Any] = {}
    if set(streams) != {"*"} or len(streams["*"]) > 1:
        listed = [entry if len(entry) > 1 else entry["name"] for entry in streams.values()]
        found["streams"] = listed
    if excluded:
        found["exclude"] = [*excluded]
    if defaults:
        found["defaults"] = defaults
    return found


def _stream(name: str, wanted: Sequence[tuple[str, str]], notes: list[str]) -> dict[str, Any]:
    """A stream, or a pattern of streams, with the columns that all that selects it names."""
    columns = [column for entity, column in wanted if fnmatchcase(name, entity)]
    if "*" in columns:
        return {"name": name}
    if any(re.search(r"[*?\[]", c) for c in columns):
        notes.append(f"columns by a pattern, {', '.join(columns)}: all of {name} come")
        return {"name": name}
    return {"name": name, "columns": [*dict.fromkeys(columns)]}


def _metadata(
    pattern: str, each: Mapping[str, Any], excluded: dict[str, None], notes: list[str]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in each.items():
        method = _METHODS.get(str(value).upper())
        if key in ("replication-method", "forced-replication-method") and method:
            found["sync_mode"] = method
        elif key == "replication-key" and isinstance(value, str):
            found["cursor_field"] = [value] if "." in value else value
        elif key in ("table-key-properties", "view-key-properties") and value:
            found["primary_key"] = [str(v) for v in _list(value)]
        elif key == "selected" and value is False:
            excluded[pattern] = None
        elif key != "selected":
            notes.append(f"metadata of {pattern}: {key}")
    return found


def _split(pattern: str) -> tuple[str, str]:
    """Stream and column of ``stream.column``; ``\\.`` is a dot in the stream's name."""
    entity, _, column = re.sub(r"\\\.", "\0", pattern).partition(".")
    return entity.replace("\0", "."), column.replace("\0", ".") or "*"


# -- YAML


def _document(path: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise ConfigError(f"{path} cannot be read: {e.strerror}", code="import.file") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as e:
        where = getattr(e, "problem_mark", None)
        line = f":{where.line + 1}" if where is not None else ""
        raise ConfigError(f"{path}{line} is not YAML", code="import.file") from None
    if not isinstance(found, dict):
        raise ConfigError(
            f"{path} is not a project of Meltano: it is not a mapping", code="import.file"
        )
    return cast(dict[str, Any], found)


def _mapping(value: Any) -> dict[str, Any]:
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    if isinstance(value, list):
        return cast(list[Any], value)
    return [] if value is None else [value]


def _names(value: Any) -> str:
    return ", ".join(str(name) for name in _mapping(value))

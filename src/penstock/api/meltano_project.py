"""Turns a Meltano project (``meltano.yml``) into pipeline files, one for each tap and target that
run together, and reports what could not be carried over.

It reads plugins with ``inherit_from``, the definitions that Meltano locked with them, ``select``
and ``metadata``, environments, jobs and schedules. It runs nothing and reads no value of the
environment, and of ``.env`` only the names: references to variables stay references, and secrets in
the project become variables. Not here: what a plugin's settings (``meltano_settings``) and
its selection (``meltano_select``) become, writing the files (``cli.import_``). Source: Meltano's
project file reference, its environments, schedules and plugin inheritance.
"""

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import yaml

from penstock.api.imported_file import ImportedFile, pipeline_file
from penstock.api.meltano_select import selection
from penstock.api.meltano_settings import PluginConfig, as_list, mapping, merged
from penstock.config.named_files import may_be_path
from penstock.config.variables import read_env_file
from penstock.errors import ConfigError

_KINDS = ("extractors", "loaders")
_OF_A_PATH = re.compile(r"(?i)path|file|dir|folder")  # in the name of a setting
_REQUIREMENT = re.compile(r"([A-Za-z0-9][\w.-]*)(\[[^\]]*\])?\s*(.*)")
# Keys of a plugin that are read, or that do not affect what it does.
_KNOWN = """
annotations capabilities commands config definition description docs domain_url executable ext_repo
hidden inherit_from keywords label load_schema logo_url maintenance_status metadata name namespace
next_steps pip_url prereq quality repo requires select settings settings_group_validation
settings_preamble supported_python_versions usage variant
"""
_OVERRIDES = frozenset({"name", "config", "select", "metadata"})
"""The plugin keys of an environment that become keys of a profile."""


def meltano_pipelines(
    path: Path, out: Path = Path("pipelines")
) -> tuple[list[ImportedFile], list[str]]:
    """Returns the pipelines of the project whose file is ``path``, for the folder ``out``, and
    notes on the project as a whole. Raises ``ConfigError``."""
    project = _Project(path, out)
    pairs = [*project.pairs()]
    if not pairs:
        raise ConfigError(
            f"{path} names no extractor with a loader",
            code="import.nothing",
            hint="a pipeline needs both: under plugins, and in a job or a schedule where there are "
            "several loaders",
        )
    return [project.pipeline(pair) for pair in pairs], project.notes


class _Origin(NamedTuple):
    """What runs a pair of tap and target. ``schedule``: its name, else empty; ``variables``: those
    that it sets."""

    text: str
    schedule: str = ""
    variables: Mapping[str, str] = MappingProxyType({})


_Ends = dict[str, tuple[Mapping[str, Any], str | None]]
"""The plugin of each end of a pipeline, and the schema that a target is given."""


class _Pair(NamedTuple):
    tap: str
    target: str
    origins: tuple[_Origin, ...]
    notes: tuple[str, ...] = ()


class _Project:
    def __init__(self, path: Path, out: Path) -> None:
        self._path, self._folder, self._out = path, path.parent, out
        self._document = _document(path)
        self.notes: list[str] = []
        self._plugins = {kind: self._listed(kind) for kind in _KINDS}
        if self._document.get("env"):
            self.notes.append(f"`env` of {path.name}: set {_names(self._document['env'])} yourself")
        other = [k for k in mapping(self._document.get("plugins")) if k not in _KINDS]
        if other:
            self.notes.append(f"plugins that move no rows: {', '.join(other)}")

    def _listed(self, kind: str) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for document in (self._document, *self._included()):
            for each in as_list(mapping(document.get("plugins")).get(kind)):
                plugin = mapping(each)
                found[str(plugin.get("name"))] = plugin
        return found

    def _included(self) -> Iterator[dict[str, Any]]:
        for pattern in as_list(self._document.get("include_paths")):
            for file in sorted(self._folder.glob(str(pattern))):
                if file.is_file() and file.suffix in (".yml", ".yaml"):
                    yield _document(file)

    # -- which tap runs with which target

    def pairs(self) -> Iterator[_Pair]:
        jobs = {
            str(mapping(j).get("name")): mapping(j) for j in as_list(self._document.get("jobs"))
        }
        found: dict[tuple[str, str], _Pair] = {}
        scheduled = set[str]()
        for each in as_list(self._document.get("schedules")):
            schedule = mapping(each)
            origin = _of_schedule(schedule)
            scheduled.add(str(schedule.get("job")))
            job = jobs.get(str(schedule.get("job")))
            pair = _Pair(str(schedule.get("extractor")), str(schedule.get("loader")), (origin,))
            for one in [pair] if job is None else self._of_job(job, origin):
                _join(found, one)
        for name, job in jobs.items():
            if name not in scheduled:
                for one in self._of_job(job, _Origin(f"job {name}")):
                    _join(found, one)
        yield from (pair for pair in found.values() if self._known(pair))
        taps = {pair.tap for pair in found.values()} | self._parents("extractors")
        targets = [t for t in self._plugins["loaders"] if t not in self._parents("loaders")]
        for tap in self._plugins["extractors"]:
            if tap not in taps:
                yield from (_Pair(tap, target, (_Origin("plugins"),)) for target in targets)

    def _parents(self, kind: str) -> set[str]:
        """Returns the names of the plugins that others inherit from."""
        return {str(p["inherit_from"]) for p in self._plugins[kind].values() if "inherit_from" in p}

    def _known(self, pair: _Pair) -> bool:
        missing = [
            name
            for kind, name in zip(_KINDS, pair[:2], strict=True)
            if name not in self._plugins[kind]
        ]
        if missing:
            self.notes.append(
                f"{pair.origins[0].text}: {', '.join(missing)} is not a plugin of this project"
            )
        return not missing

    def _of_job(self, job: Mapping[str, Any], origin: _Origin) -> Iterator[_Pair]:
        for task in as_list(job.get("tasks")):
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
                    yield _Pair(tap, word, (origin,), notes)
                    tap = None
                elif tap is not None:
                    between.append(word)
                else:
                    left.append(word)
            if left:
                note = f"{origin.text}: {', '.join(left)} no longer runs"
                if note not in self.notes:
                    self.notes.append(note)

    # -- one pipeline

    def pipeline(self, pair: _Pair) -> ImportedFile:
        notes = list(pair.notes)
        name = f"{pair.tap}-to-{pair.target}"
        file = shlex.quote(str(self._out / f"{name}.yaml"))
        tap = self._resolved("extractors", pair.tap, notes)
        target = self._resolved("loaders", pair.target, notes)
        schema = self._schema_of(pair.tap, tap)
        ends: _Ends = {"source": (tap, None), "destination": (target, schema)}
        document: dict[str, Any] = {"pipeline": name}
        for end, (plugin, of_tap) in ends.items():
            document[end] = self._end(plugin, of_tap, notes)
        document["source"] |= selection(tap, notes)
        profiles = dict(self._environments(pair, schema, notes))
        for schedule, profile in _schedules(pair, ends, notes):
            called = schedule if schedule not in profiles else f"schedule-{schedule}"
            profiles[called] = profile
            notes.append(
                f"schedule {schedule}: its own settings are the profile {called} (`penstock run"
                f" {file} --with {called}`), which has its own state"
            )
        for end in ends:
            self._run_in_project(document, end, profiles)
        if profiles:
            document["profiles"] = profiles
        first, *others = pair.origins
        also = [o.text for o in others if o.schedule]
        if also:
            notes.append(f"run by {', '.join(also)} too: run the same file at those times")
        state = (
            "its state: save the singer_state of `meltano state get ID` as a file, then `penstock "
            f"state import {file} FILE`; without it the first run reads from the start"
        )
        notes.append(state)
        title = f"From {self._path.name}: {pair.tap} into {pair.target} ({first.text})."
        return pipeline_file(name, title, [*dict.fromkeys(notes)], document)

    def _chain(self, kind: str, name: str) -> list[str]:
        """Returns the plugin and those that it inherits from, in order."""
        chain: list[str] = []
        while name in self._plugins[kind] and name not in chain:
            chain.append(name)
            name = str(self._plugins[kind][name].get("inherit_from", ""))
        return chain

    def _resolved(
        self,
        kind: str,
        name: str,
        notes: list[str],
        own: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    ) -> dict[str, Any]:
        """Returns a plugin with what it inherits. ``own``: what an environment sets over
        plugins."""
        chain = self._chain(kind, name)
        found: dict[str, Any] = {}
        for each in reversed(chain):
            for plugin in (self._plugins[kind][each], own.get(each, {})):
                deep = {
                    key: merged(mapping(found.get(key)), mapping(plugin.get(key)))
                    for key in ("config", "metadata")
                    if key in found or key in plugin
                }
                found |= {**plugin, **deep}
        last = self._plugins[kind][chain[-1]]
        found["base"] = str(last.get("inherit_from") or chain[-1])
        lock = self._lock(kind, found["base"], found.get("variant"))
        for key in ("pip_url", "namespace", "executable"):
            if key not in found and key in lock:
                found[key] = lock[key]
        found["settings"] = [*as_list(lock.get("settings")), *as_list(found.get("settings"))]
        unknown = sorted(set(found) - {*_KNOWN.split(), "base"})
        notes += [f"{found['name']}: {key}" for key in unknown]
        return found

    def _lock(self, kind: str, name: str, variant: Any) -> dict[str, Any]:
        """Returns the definition that Meltano's hub had when the plugin was added; empty: it is
        missing."""
        folder = self._folder / "plugins" / kind
        files = (
            [folder / f"{name}--{variant}.lock"]
            if variant
            else sorted(folder.glob(f"{name}--*.lock"))
        )
        for file in files:
            try:
                return mapping(json.loads(file.read_text()))
            except (OSError, ValueError):
                continue
        return {}

    def _schema_of(self, name: str, tap: Mapping[str, Any]) -> str:
        """Returns the schema that Meltano gives a target by default."""
        fallback = tap.get("namespace") or str(tap.get("base", name)).replace("-", "_")
        return str(tap.get("load_schema") or fallback)

    def _end(
        self, plugin: Mapping[str, Any], schema: str | None, notes: list[str]
    ) -> dict[str, Any]:
        end: dict[str, Any] = self._connector(plugin, notes)
        config, given = _config(plugin, schema, notes), mapping(plugin.get("config"))
        names = [name for kind in self._plugins.values() for name in kind]
        of_file = config.of_env_file(self._variables(), given, names)
        values = config.values({**given, **of_file}, defaults=True)
        if values:
            end["config"] = values
        return end

    def _variables(self) -> list[str]:
        """Returns the names of the variables in the project's ``.env``, which Meltano reads."""
        try:
            return [*read_env_file(self._folder / ".env")]
        except ConfigError:  # no such file, or an unreadable one: it sets nothing
            return []

    def _connector(self, plugin: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
        """Returns a plugin's ``use`` and the keys that go with it."""
        executable = str(plugin.get("executable") or "")
        if plugin.get("pip_url") or plugin.get("variant") or not executable:
            use, constraints = _package(plugin, notes)
            return {"use": use} | ({"install": {"constraints": constraints}} if constraints else {})
        if "/" not in executable:
            notes.append(f"{plugin['name']}: nothing installs {executable}, which must be on PATH")
            return {"use": f"singer:env {shlex.quote(executable)}"}
        start = "" if executable.startswith(("/", "./", "../", "~/")) else "./"
        return {"use": f"singer:{shlex.quote(start + executable)}", "folder": self._from_out()}

    def _from_out(self) -> str:
        """Returns the project's folder, in which Meltano runs each plugin, as the files name it."""
        return os.path.relpath(self._folder.absolute(), self._out.absolute())

    def _run_in_project(
        self, document: dict[str, Any], end: str, profiles: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Makes a connector run in the project's folder, where relative paths of its configuration
        start, if it has any."""
        sections = [document[end], *(profile.get(end, {}) for profile in profiles.values())]
        folder = self._from_out()
        if folder != "." and any(self._has_paths("", each.get("config")) for each in sections):
            first = {"use": document[end].pop("use"), "folder": folder}
            document[end] = first | document[end]

    def _has_paths(self, name: str, value: Any) -> bool:
        """Returns whether a value may hold a relative path: by its form, the name of its setting,
        or a file of the project. A connector without paths runs as well there."""
        if isinstance(value, dict):
            inner = cast(dict[str, Any], value).items()
            return any(self._has_paths(key, each) for key, each in inner)
        if isinstance(value, list):
            return any(self._has_paths(name, each) for each in cast(list[Any], value))
        if not isinstance(value, str) or not may_be_path(value) or "://" in value:
            return False
        formed = "/" in value or value.startswith(".") or _OF_A_PATH.search(name) is not None
        return formed or (self._folder / value).exists()

    def _environments(
        self, pair: _Pair, schema: str, notes: list[str]
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields the keys that each environment sets differently, as a profile."""
        for each in as_list(self._document.get("environments")):
            environment = mapping(each)
            name = str(environment.get("name"))
            plugins = mapping(mapping(environment.get("config")).get("plugins"))
            profile: dict[str, Any] = {}
            for kind, plugin, end in zip(_KINDS, pair[:2], ("source", "destination"), strict=True):
                known = {str(p.get("name")): p for p in map(mapping, as_list(plugins.get(kind)))}
                own = {p: known[p] for p in self._chain(kind, plugin) if p in known}
                for p, keys in own.items():
                    notes += [f"environment {name}: {p}: {k}" for k in keys.keys() - _OVERRIDES]
                section = self._changed(kind, plugin, own, schema, notes)
                if section:
                    profile[end] = section
            if environment.get("env"):
                notes.append(
                    f"`env` of environment {name}: set {_names(environment['env'])} yourself"
                )
            if profile:
                yield name, profile

    def _changed(
        self,
        kind: str,
        name: str,
        own: Mapping[str, dict[str, Any]],
        schema: str,
        notes: list[str],
    ) -> dict[str, Any]:
        """Returns the keys of a plugin that differ where an environment sets ``own``. Lists replace
        those of the file, so a stream that is included again is written too."""
        before, now = self._resolved(kind, name, []), self._resolved(kind, name, [], own)
        had, has = mapping(before.get("config")), mapping(now.get("config"))
        new = {k: v for k, v in has.items() if k not in had or had[k] != v}
        tap = kind == "extractors"
        section: dict[str, Any] = {}
        if values := _config(now, None if tap else schema, notes).values(new, defaults=False):
            section["config"] = values
        if tap and any(before.get(key) != now.get(key) for key in ("select", "metadata")):
            section |= _over(selection(before, []), selection(now, notes))
        return section


def _config(plugin: Mapping[str, Any], schema: str | None, notes: list[str]) -> PluginConfig:
    return PluginConfig(str(plugin["name"]), as_list(plugin.get("settings")), schema, notes)


def _over(before: Mapping[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Returns the keys of a selection that replaces another one in a profile."""
    nothing: dict[str, Any] = {"streams": ["*"], "exclude": None}
    return {key: value for key, value in nothing.items() if key in before} | now


def _of_schedule(schedule: Mapping[str, Any]) -> _Origin:
    name = str(schedule.get("name"))
    variables = {
        str(key): str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in mapping(schedule.get("env")).items()
    }
    return _Origin(f"schedule {name}, {schedule.get('interval')}", name, variables)


def _join(found: dict[tuple[str, str], _Pair], pair: _Pair) -> None:
    """Adds a pair, or one more origin to a known pair."""
    first = found.setdefault(pair[:2], pair)
    origins = dict.fromkeys(o.text for o in first.origins)
    if pair.origins[0].text not in origins:
        found[pair[:2]] = first._replace(origins=(*first.origins, *pair.origins))


def _schedules(pair: _Pair, ends: _Ends, notes: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the profile of each schedule that sets variables which the configuration takes."""
    for origin in pair.origins:
        profile: dict[str, Any] = {}
        left = dict.fromkeys(origin.variables)
        for end, (plugin, schema) in ends.items():
            config = _config(plugin, schema, notes)
            given, taken = config.by_variable(origin.variables, mapping(plugin.get("config")))
            left = {v: None for v in left if v not in taken}
            if given:
                profile[end] = {"config": config.values(given, defaults=False)}
        if left:
            notes.append(f"`env` of {origin.text}: set {', '.join(left)} yourself")
        if profile:
            yield origin.schedule, profile


def _package(plugin: Mapping[str, Any], notes: list[str]) -> tuple[str, list[str]]:
    """Returns the reference of a plugin's package, and constraints on its dependencies."""
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


def _names(value: Any) -> str:
    return ", ".join(str(name) for name in mapping(value))

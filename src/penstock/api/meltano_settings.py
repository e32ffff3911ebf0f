"""Turns the configuration of a Meltano plugin into the ``config`` of a connector: values of their
setting's type, references to variables, and variables in place of secrets.

Pure; no value of the environment is read. Not here: which values a plugin has
(``meltano_project``). Source: Meltano's guide to configuration and its plugin definition syntax;
how it casts texts: ``true``, ``t``, ``yes``, ``y``, ``on`` and ``1`` are true, an array and an
object are JSON.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any, cast

from penstock.api.imported_file import Reference, TypedVariable, YamlNumber, holds_a_secret

_REFERENCE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
_SENSITIVE = ("password", "oauth")
_SCALARS = ("integer", "boolean", "decimal")
_TRUE = ("true", "t", "yes", "y", "on", "1")
_JSON: dict[str, type] = {"array": list, "object": dict}


class PluginConfig:
    """The settings of one plugin, ``name``. ``schema``: the value of
    ``MELTANO_EXTRACT__LOAD_SCHEMA``. ``notes`` gets what cannot be carried over."""

    def __init__(
        self, name: str, settings: Sequence[Any], schema: str | None, notes: list[str]
    ) -> None:
        self._name, self._schema, self._notes = name, schema, notes
        known = map(mapping, settings)
        self._settings = {str(s.get("name")): s for s in known}
        self._called = {
            str(alias): name
            for name, setting in self._settings.items()
            for alias in as_list(setting.get("aliases"))
        }

    def values(self, given: Mapping[str, Any], *, defaults: bool) -> dict[str, Any]:
        """Returns the configuration. ``defaults``: includes the values that Meltano gives where
        nobody set one."""
        config: dict[str, Any] = {}
        if defaults:
            config = {
                n: s["value"] for n, s in self._settings.items() if s.get("value") is not None
            }
        config |= {self._called.get(name, name): value for name, value in given.items()}
        found: dict[str, Any] = {}
        for name, value in config.items():
            setting = self._settings.get(name, {})
            _put(found, name.split("."), self._value(name, value, setting))
        if defaults:
            secret = [n for n, s in self._settings.items() if n not in config and _sensitive(s)]
            for name in secret:
                variable = _variable(self._name, name)
                self._notes.append(
                    f"{self._name}: Meltano reads {name} from {variable} where that is set; write"
                    f" it as config.{name}: ${{{variable}}}"
                )
        return found

    def of_env_file(
        self, names: Collection[str], config: Mapping[str, Any], others: Collection[str]
    ) -> dict[str, Any]:
        """Returns references to the variables of Meltano's ``.env`` that set what ``config`` does
        not have. ``names``: of its variables; ``others``: the names of other plugins. Without
        declared settings a setting is named like the rest of its variable."""
        known = {_variable(self._name, name): name for name in self._settings}
        prefix = _variable(self._name, "")
        longer = [p for p in (_variable(o, "") for o in others) if len(p) > len(prefix)]
        found: dict[str, Any] = {}
        for variable in names:
            name = known.get(variable)
            if name is None and not self._settings and variable.startswith(prefix):
                of_other = any(variable.startswith(p) for p in longer)
                name = None if of_other else variable.removeprefix(prefix).lower()
            if name is None or name in config or name.startswith("_"):
                continue
            found[name] = f"${{{variable}}}"
            self._notes.append(
                f"{self._name}: {name} comes from {variable} of the project's .env: copy that file"
                " next to the pipeline file, or give it by --env-file"
            )
        return found

    def by_variable(
        self, variables: Mapping[str, str], config: Mapping[str, Any]
    ) -> tuple[dict[str, Any], set[str]]:
        """Returns the configuration that Meltano takes from these variables (settings that are
        named by a variable, and values of ``config`` that refer to one), and the variables
        taken."""
        named = {_variable(self._name, name): name for name in (*config, *self._settings)}
        taken = {v for v in variables if v in named or _refers(config, (v,))}
        found = {
            name: _expanded(value, variables)
            for name, value in config.items()
            if _refers(value, variables)
        }
        return found | {named[v]: variables[v] for v in variables if v in named}, taken

    def _value(self, name: str, value: Any, setting: Mapping[str, Any]) -> Any:
        if _is_secret(name, value, setting):
            variable = _variable(self._name, name)
            self._notes.append(f"{self._name}: {name} was a secret in the project; set {variable}")
            return Reference(f"${{{variable}}}")
        if isinstance(value, str):
            value = self._cast(name, value, str(setting.get("kind") or ""))
        if isinstance(value, dict):
            inner = cast(dict[str, Any], value)
            return {k: self._value(f"{name}.{k}", v, {}) for k, v in inner.items()}
        if isinstance(value, list):
            declared = {"kind": None} if "kind" in setting else {}
            return [self._value(name, v, declared) for v in cast(list[Any], value)]
        return value.isoformat() if isinstance(value, date) else value

    def _cast(self, name: str, text: str, kind: str) -> Any:
        """Casts a text to its setting's kind; a reference to variables stays a reference."""
        if self._schema is not None:
            text = re.sub(r"\$\{?MELTANO_EXTRACT__LOAD_SCHEMA\}?", self._schema, text)
        if names := [a or b for a, b in _REFERENCE.findall(text)]:
            return self._reference(name, text, names, kind)
        try:
            return _of_kind(text, kind)
        except (ValueError, InvalidOperation):
            self._notes.append(f"{self._name}: {name} is no {kind}, which its setting wants")
            return text

    def _reference(self, name: str, text: str, names: Sequence[str], kind: str) -> str:
        for variable in names:
            if variable.startswith("MELTANO_"):
                self._notes.append(f"{self._name}: Meltano sets {variable} itself; set it")
        if kind in _JSON:
            self._notes.append(
                f"{self._name}: {name} is an {kind}, which no variable can hold; write the value of"
                f" {', '.join(names)} into config.{name}"
            )
        text = _REFERENCE.sub(lambda found: f"${{{found[1] or found[2]}}}", text)
        return TypedVariable(text) if kind in _SCALARS else Reference(text)


def _variable(plugin: str, setting: str) -> str:
    """Returns the variable that Meltano reads a plugin's setting from."""
    return re.sub(r"[^A-Z0-9]+", "_", f"{plugin}_{setting}".upper())


def _of_kind(text: str, kind: str) -> Any:
    if kind == "boolean":
        return text.strip().lower() in _TRUE
    if kind == "integer":
        return int(text)
    if kind == "decimal":
        number = format(Decimal(text.strip()), "f")  # of NaN and infinities no number
        return YamlNumber(number) if "." in number else int(number)
    if kind in _JSON:
        value = json.loads(text)
        if not isinstance(value, _JSON[kind]):
            raise ValueError(kind)
        return value
    return text


def _expanded(value: Any, variables: Mapping[str, str]) -> Any:
    """Returns the value with references to these variables replaced by their values."""
    if isinstance(value, str):
        return _REFERENCE.sub(lambda m: variables.get(m[1] or m[2], m[0]), value)
    if isinstance(value, dict):
        return {k: _expanded(v, variables) for k, v in cast(dict[str, Any], value).items()}
    if isinstance(value, list):
        return [_expanded(v, variables) for v in cast(list[Any], value)]
    return value


def _refers(value: Any, variables: Collection[str]) -> bool:
    """Returns whether the value refers to one of these variables, at any depth."""
    texts = _REFERENCE.findall(value if isinstance(value, str) else json.dumps(value, default=str))
    return any((a or b) in variables for a, b in texts)


def _sensitive(setting: Mapping[str, Any]) -> bool:
    return setting.get("sensitive") is True or setting.get("kind") in _SENSITIVE


def _is_secret(name: str, value: Any, setting: Mapping[str, Any]) -> bool:
    """Returns whether the value is a secret written in the project: by its setting's kind or, where
    no kind is declared, by its name."""
    if isinstance(value, str) and _REFERENCE.search(value):
        return False
    undeclared = not setting.keys() & {"kind", "sensitive"}
    by_name = isinstance(value, str) and holds_a_secret(name.rpartition(".")[2])
    return _sensitive(setting) or (undeclared and by_name)


def _put(into: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Sets ``a.b`` as the property b of the object a, as Meltano passes it to a plugin."""
    for step in path[:-1]:
        inner = into.setdefault(step, {})
        if not isinstance(inner, dict):
            return
        into = cast(dict[str, Any], inner)
    into[path[-1]] = value


# -- YAML


def mapping(value: Any) -> dict[str, Any]:
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    if isinstance(value, list):
        return cast(list[Any], value)
    return [] if value is None else [value]


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Returns one mapping merged over another, level by level, as Meltano merges settings."""
    found = dict(under)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(found.get(key), dict)
        found[key] = merged(mapping(found[key]), mapping(value)) if both else value
    return found

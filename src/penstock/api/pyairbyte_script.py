"""Turns a Python program that uses PyAirbyte into pipeline files, and reports what is not in them.

The program is parsed, not run: calls of ``get_source`` and ``get_destination`` with their literal
arguments, the selected streams, ``set_cursor_key`` and ``set_primary_key``, and ``get_secret``,
which becomes a variable. A variable also replaces a computed value. Not here: writing the files
(``cli.import_``). Source: PyAirbyte's documentation of ``get_source``, ``Source`` and
``get_secret``.
"""

import ast
from pathlib import Path
from typing import Any

from penstock.api.imported_file import ImportedFile, Reference, holds_a_secret, pipeline_file
from penstock.errors import ConfigError

_SOURCES = ("get_source",)
_DESTINATIONS = ("get_destination",)
_STREAM_CALLS = ("set_cursor_key", "set_primary_key")


def pyairbyte_pipelines(path: Path) -> tuple[list[ImportedFile], list[str]]:
    """Returns a pipeline for each source of the program at ``path``, and notes of the program as a
    whole. Raises ``ConfigError``."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    except OSError as e:
        raise ConfigError(f"{path} cannot be read: {e.strerror}", code="import.file") from None
    except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
        line = f":{e.lineno}" if isinstance(e, SyntaxError) and e.lineno else ""
        raise ConfigError(f"{path}{line} is not Python", code="import.file") from None
    reader = _Reader()
    reader.visit(tree)
    if not reader.sources:
        raise ConfigError(
            f"{path} has no call of get_source with a connector's name",
            code="import.nothing",
            hint="penstock new airbyte:NAME writes a file for a connector",
        )
    into = reader.destinations[0] if reader.destinations else None
    notes = []
    if len(reader.destinations) > 1:
        notes.append(f"{len(reader.destinations)} destinations: each source goes to the first")
    names = [each.name.removeprefix("source-") for each in reader.sources]
    for index, name in enumerate(names):
        if (before := names[:index].count(name)) > 0:
            names[index] = f"{name}-{before + 1}"
    made = zip(reader.sources, names, strict=True)
    return [each.pipeline(name, path.name, into) for each, name in made], notes


class _End:
    """One source or destination of the program."""

    def __init__(self, name: str, variable: str | None) -> None:
        self.name, self.variable = name, variable
        self.section: dict[str, Any] = {}
        self.streams: dict[str, dict[str, Any]] = {}
        self.all = False
        self.notes: list[str] = []

    def pipeline(self, name: str, origin: str, into: "_End | None") -> ImportedFile:
        notes = [*self.notes, *(into.notes if into else ())]
        source = dict(self.section)
        listed = [s if len(s) > 1 else s["name"] for s in self.streams.values()]
        if self.all:
            listed = [s for s in listed if not isinstance(s, str)]
            listed += ["*"] if listed else []
        if listed:
            source["streams"] = listed
        if into is None:
            notes.append("its cache: the rows go to Parquet tables; name another destination here")
        destination = dict(into.section) if into else {"use": "parquet:./lake"}
        document = {"pipeline": name, "source": source, "destination": destination}
        first = f"From {origin}: {self.name} into {into.name if into else 'a cache'}."
        return pipeline_file(name, first, notes, document)


class _Reader(ast.NodeVisitor):
    def __init__(self) -> None:
        self.sources: list[_End] = []
        self.destinations: list[_End] = []
        self._names: dict[str, Any] = {}

    def visit_Assign(self, node: ast.Assign) -> None:
        names = [t.id for t in node.targets if isinstance(t, ast.Name)]
        if isinstance(node.value, ast.Call):
            self._call(node.value, names[0] if len(names) == 1 else None)
        self._names |= dict.fromkeys(names, node.value)
        for child in ast.iter_child_nodes(node):
            if child is not node.value or not isinstance(node.value, ast.Call):
                self.visit(child)

    def visit_Call(self, node: ast.Call) -> None:
        self._call(node, None)
        self.generic_visit(node)

    def _call(self, node: ast.Call, variable: str | None) -> None:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        called = node.func.id if isinstance(node.func, ast.Name) else called
        if called in _SOURCES or called in _DESTINATIONS:
            end = self._end(node, variable)
            if end is not None:
                (self.sources if called in _SOURCES else self.destinations).append(end)
            return
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        name = owner.id if isinstance(owner, ast.Name) else None
        for end in self.sources:
            if name is not None and end.variable == name:
                self._asked(end, called, node)

    def _end(self, node: ast.Call, variable: str | None) -> "_End | None":
        given = dict(zip(("name", "config"), node.args, strict=False))
        given |= {k.arg: k.value for k in node.keywords if k.arg is not None}
        name = given.get("name")
        if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
            return None
        end = _End(name.value, variable)
        use = f"airbyte:{name.value}"
        for key, value in given.items():
            found = value.value if isinstance(value, ast.Constant) else None
            if key == "config":
                config = self._value(value, end, f"{_upper(name.value)}_CONFIG")
                if isinstance(config, dict):
                    end.section["config"] = config
                else:
                    end.notes.append("its config, which the program computes")
            elif key == "version" and isinstance(found, str) and found != "latest":
                use = f"airbyte:{name.value}@{found}"
            elif key == "docker_image" and isinstance(found, str):
                use = f"airbyte:docker:{found}"
            elif key == "docker_image" and found is True:
                use = f"airbyte:docker:airbyte/{name.value}"
            elif key == "local_executable" and isinstance(found, str):
                use = f"airbyte:{found}"
            elif key == "pip_url" and isinstance(found, str):
                plain = "/" not in found and "==" in found
                use = f"airbyte:{found.replace('==', '@') if plain else found}"
            elif key == "streams":
                self._select(end, value)
            elif key not in ("name", "install_if_missing"):
                end.notes.append(f"{key} of {name.value}")
        end.section = {"use": use, **end.section}
        return end

    def _asked(self, end: _End, called: str, node: ast.Call) -> None:
        given = {k.arg: k.value for k in node.keywords}
        if called == "select_all_streams":
            end.all = True
        elif called == "select_streams" and (node.args or "streams" in given):
            self._select(end, node.args[0] if node.args else given["streams"])
        elif called == "set_config" and (node.args or "config" in given):
            config = self._value(
                node.args[0] if node.args else given["config"], end, f"{_upper(end.name)}_CONFIG"
            )
            if isinstance(config, dict):
                end.section["config"] = config
            else:
                end.notes.append("its config, which the program computes")
        elif called in _STREAM_CALLS:
            values = [self._value(a, end, "") for a in [*node.args, *given.values()]]
            if len(values) == 2 and isinstance(values[0], str):
                stream = end.streams.setdefault(values[0], {"name": values[0]})
                stream["cursor_field" if called == "set_cursor_key" else "primary_key"] = values[1]
        elif called == "read":
            for key in given:
                if key == "force_full_refresh":
                    end.notes.append("force_full_refresh: penstock run --full-refresh")
                elif key not in ("cache", "streams"):
                    end.notes.append(f"read's {key}")
            if "streams" in given:
                self._select(end, given["streams"])

    def _select(self, end: _End, node: ast.expr) -> None:
        value = self._value(node, end, "")
        if value == "*":
            end.all = True
        elif isinstance(value, list):
            for name in value:
                end.streams.setdefault(str(name), {"name": str(name)})
        else:
            end.notes.append("its streams, which the program computes")

    def _value(self, node: ast.expr, end: _End, path: str, *, secret: bool = False) -> Any:
        """Returns a literal value; a variable where it is a secret or computed. ``secret``: by the
        name of its property."""
        match node:
            case ast.Constant(value=str(text)) if text.startswith("secret_reference::"):
                return Reference(f"${{{_upper(text.partition('::')[2])}}}")
            case ast.Constant(value=str()) if secret:
                end.notes.append(f"a secret in the program: set {path}")
                return Reference(f"${{{path}}}")
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name) if name in self._names:
                known = self._names.pop(name)  # stops where names refer to each other in a circle
                try:
                    return self._value(known, end, path, secret=secret)
                finally:
                    self._names[name] = known
            case ast.Dict(keys=keys, values=values) if _are_constants(keys):
                names = [str(k.value) for k in keys if isinstance(k, ast.Constant)]
                return {
                    n: self._value(v, end, f"{path}_{_upper(n)}", secret=holds_a_secret(n))
                    for n, v in zip(names, values, strict=True)
                }
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                return [self._value(e, end, path) for e in elements]
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return -number
            case _:
                variable = _asked_for(node) or path
                if not path:
                    return None
                end.notes.append(f"a value that the program computes: set {variable}")
                return Reference(f"${{{variable}}}")


def _are_constants(keys: list[ast.expr | None]) -> bool:
    return all(isinstance(key, ast.Constant) for key in keys)


def _asked_for(node: ast.expr) -> str | None:
    """Returns the name in ``get_secret("NAME")``, ``os.environ["NAME"]``, ``os.getenv("NAME")``."""
    inner: ast.expr | None = None
    if isinstance(node, ast.Call) and node.args:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        called = node.func.id if isinstance(node.func, ast.Name) else called
        inner = node.args[0] if called in ("get_secret", "getenv", "get") else None
    elif isinstance(node, ast.Subscript):
        inner = node.slice
    if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
        return _upper(inner.value)
    return None


def _upper(text: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in text.upper()).strip("_")

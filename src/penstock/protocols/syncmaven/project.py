"""Reads a Syncmaven project (``models/``, ``connections/``, ``syncs/``) as pipelines, one a sync.

A sync becomes the text of a pipeline file and is read as one, so that every key has one meaning:
its model is the source, its connection the destination. A request of a selected sync that cannot be
met is a fault with its file and line; unselected syncs are not checked. Not here: the files and
their variables (``project_files``). Source: reference §3.
"""

import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from penstock.config.did_you_mean import closest, hint
from penstock.config.load import parse_pipeline
from penstock.config.pipeline import Pipeline
from penstock.config.project import Project, ProjectSelection, chosen
from penstock.config.relative_paths import placed_at
from penstock.errors import ConfigError
from penstock.protocols.syncmaven.project_files import File, Variables, files_in, variables

_FOLDERS = ("models", "connections", "syncs")
_ABOUT = ("id", "name", "description")
_KEYS: dict[str, tuple[str, ...]] = {
    "models": (
        *_ABOUT, "datasource", "query", "cursor", "pageSize", "pauseBetweenPagesMs", "deleteField",
    ),
    "connections": (*_ABOUT, "package", "credentials"),
    "syncs": (
        *_ABOUT, "model", "destination", "stream", "options", "checkpointEvery", "enrichment",
        "enrichments", "mapping", "disabled", "penstock",
    ),
}  # fmt: skip
_ENRICHMENT = ("connection", "options", "penstock")
_KEYS_TO_VALUES = "it is not a mapping of keys to values"
_CURSOR = re.compile(r"(?<![:\w]):cursor\b")
_NPM = re.compile(r"(?:@[a-z0-9][\w.~-]*/)?[a-z0-9][\w.~-]*(?:@[0-9][\w.+-]*)?")
_POSTGRES = ("postgres://", "postgresql://")
_YAML_ONLY = re.compile(r"[^\x20-\x7e]")
_MAIN = "index.js"

Values = dict[str, Any]


def read_project(wanted: ProjectSelection) -> Project:
    """Implements ``config.project.ReadProject``."""
    folder = wanted.folder.absolute()
    missing = [name for name in ("models", "syncs") if not (folder / name).is_dir()]
    if missing:
        raise ConfigError(
            f"the project {folder} has no folder {missing[0]}/",
            problems=[f"the project {folder} has no folder {name}/" for name in missing],
            code="config.project",
            where=str(folder),
            hint="a project has models/ and syncs/, and connections/ where syncs name them",
        )
    reading = _Reading(folder, wanted)
    ids = chosen(list(reading.syncs), wanted.select, folder)
    pipelines: dict[str, Pipeline] = {}
    for id_ in ids:
        made = reading.pipeline(id_, asked=id_ in wanted.select)
        if made is not None:
            pipelines[id_] = made
    if reading.problems:
        problems = list(dict.fromkeys(reading.problems))
        unset = any("is not set" in problem for problem in problems)
        raise ConfigError(
            problems[0] if len(problems) == 1 else f"{folder} has {len(problems)} problems",
            problems=problems,
            code="config.project",
            where=problems[0].partition(": ")[0],
            hint="set the variable in the environment, in .env or with --env-file"
            if unset
            else "nothing was run; --select A,B runs only these syncs",
        )
    if not pipelines:
        raise ConfigError(
            f"the project {folder} has no sync to run",
            code="config.project",
            where=str(folder),
            hint="; ".join(reading.notes) or "write one to syncs/NAME.yml",
        )
    return Project(name=reading.name, pipelines=pipelines, notes=tuple(reading.notes))


class _Reading:
    """One reading of a project. ``syncs``: their files by id, in the order of the files' names."""

    def __init__(self, folder: Path, wanted: ProjectSelection) -> None:
        self.notes: list[str] = []
        self.problems: list[str] = []
        self.name, self._named = wanted.name or folder.resolve().name, wanted.name is not None
        self._folder = folder
        self._values = variables(folder, wanted.environ, tuple(wanted.env_files))
        found = {kind: self._by_id(kind) for kind in _FOLDERS}
        self._models, self._connections = found["models"], found["connections"]
        self.syncs = found["syncs"]

    def _by_id(self, kind: str) -> dict[str, File]:
        if not (self._folder / kind).is_dir():
            return {}
        found: dict[str, File] = {}
        for file in files_in(self._folder, kind, self.notes):
            first = found.setdefault(file.id(), file)
            if first is not file:
                self.problems.append(f"{file.at('id')}: {first.name} has the id {file.id()!r} too")
        return found

    def pipeline(self, id_: str, *, asked: bool) -> Pipeline | None:
        """Reads a sync. ``asked``: the user named it. None: it is disabled, or has faults."""
        file, put = self.syncs[id_], Variables(self._values)
        sync = file.values(put)
        if sync.get("disabled") is True and not asked:
            self.notes.append(f"{id_} is disabled in {file.name}: --select {id_} runs it")
            return None
        before = len(self.problems)
        self._keys(file, "syncs", sync)
        self._refused(file, sync)
        source = self._source(file, sync, put)
        destination = self._destination(file, sync, put)
        enrichments = self._enrichments(file, sync, put)
        more = self._more(file, sync)
        self.problems[before:before] = put.problems
        if source is None or destination is None or len(self.problems) > before:
            return None
        document: Values = {
            "pipeline": f"{self.name}.{id_}", "source": source, "destination": destination,
        }  # fmt: skip
        if enrichments:
            document["enrichments"] = enrichments
        try:
            made = parse_pipeline(
                _as_yaml(_over(document, more)), {}, name=file.name, folder=self._folder
            )
        except ConfigError as e:
            self.problems += [
                re.sub(rf"^{re.escape(file.name)}:\d+:", f"{file.name}:", problem)
                for problem in e.problems or [f"{file.name}: {e.message}"]
            ]
            return None
        made = msgspec.structs.replace(made, secret_values=frozenset(put.secrets), lines={})
        return self._placed(made)

    def _placed(self, made: Pipeline) -> Pipeline:
        """Sets the project's folder as the pipeline's place. A name derived from the folder may
        belong to another project elsewhere, and so may its relative paths."""
        placed = placed_at(made, self._folder)
        assert placed.place is not None
        relative = placed.place.relative or not self._named
        place = msgspec.structs.replace(placed.place, relative=relative, project=True)
        return msgspec.structs.replace(placed, place=place)

    def _keys(self, file: File, kind: str, values: Values) -> None:
        """Notes keys unknown to any project, which the real host ignores."""
        for key in values:
            if key not in _KEYS[kind]:
                near = closest(key, _KEYS[kind])
                meant = f"; did you mean {near!r}?" if near is not None else ""
                self.notes.append(f"{file.at(key)}: unknown key {key!r} is ignored{meant}")

    def _refused(self, file: File, sync: Values) -> None:
        if sync.get("mapping"):
            self._fault(
                file,
                "mapping",
                "mapping: write it under `penstock`, as"
                " penstock: { destination: { mapping: { FIELD: COLUMN } } }",
            )

    def _more(self, file: File, sync: Values) -> Values:
        return self._mapping(file, "penstock", sync, "it holds keys of a pipeline file")

    def _mapping(self, file: File, key: str, values: Values, what: str) -> Values:
        """Returns the mapping under a key, or an empty one."""
        found = values.get(key)
        if found is not None and not isinstance(found, dict):
            self._fault(file, key, f"{key}: {what}")
        return cast(Values, found) if isinstance(found, dict) else {}

    # -- the model

    def _source(self, file: File, sync: Values, put: Variables) -> Values | None:
        id_ = sync.get("model")
        found = self._models.get(str(id_)) if id_ is not None else None
        if found is None:
            self._unknown(file, "model", id_, self._models)
            return None
        model = found.values(put)
        self._keys(found, "models", model)
        query, cursor = model.get("query"), model.get("cursor")
        if not isinstance(query, str) or not query.strip():
            self._fault(found, "query", "query: a model is one SELECT")
            return None
        if cursor is not None and (not isinstance(cursor, str) or not cursor):
            self._fault(found, "cursor", "cursor: it names a column of the query")
        if cursor and not _CURSOR.search(query):
            self._fault(
                found, "cursor",
                f"cursor: the query does not use :cursor, as in WHERE :cursor IS NULL OR {cursor}"
                " >= :cursor",
            )  # fmt: skip
        if not cursor and _CURSOR.search(query):
            self._fault(found, "query", "query: it has :cursor; name its column with `cursor`")
        if model.get("deleteField"):
            self._fault(found, "deleteField", "deleteField: deleted rows are not marked by a field")
        config: Values = {"stream": str(id_)}
        datasource = self._datasource(found, model.get("datasource"))
        if datasource is not None:
            config["datasource"] = datasource
        defaults: Values = {"mode": "append"}
        if cursor:
            defaults["cursor_field"] = [cursor]
        return {"use": f"spark: {query}", "config": config, "defaults": defaults}

    def _datasource(self, file: File, given: Any) -> str | None:
        """Returns the address of the database that runs the query; None: Spark runs it."""
        if given is None:
            return None
        if isinstance(given, str) and given.startswith(_POSTGRES):
            return given
        kind = "it"
        if isinstance(given, dict):
            kind = f"{cast(Values, given).get('type')!r}"
        elif isinstance(given, str) and "://" in given:
            kind = f"{given.partition('://')[0]!r}"
        self._fault(
            file, "datasource",
            f"datasource: {kind} cannot be queried: give postgres://USER:PASSWORD@HOST/DATABASE,"
            " or no datasource to have Spark run the query",
        )  # fmt: skip
        return None

    # -- the connection

    def _destination(self, file: File, sync: Values, put: Variables) -> Values | None:
        made = self._connector(file, "destination", sync.get("destination"), put)
        options = self._mapping(file, "options", sync, _KEYS_TO_VALUES)
        if made is None:
            return None
        made |= {"stream": str(sync.get("stream") or ""), "options": options}
        if sync.get("checkpointEvery") is not None:
            made["checkpoint_every"] = sync["checkpointEvery"]
        return made

    def _enrichments(self, file: File, sync: Values, put: Variables) -> list[Values]:
        """Reads ``enrichments`` (a list) or ``enrichment`` (one): each names its connection, or has
        it inline, and has options."""
        found: list[Values] = []
        for key in ("enrichment", "enrichments"):
            given = sync.get(key) or []
            entries = cast(list[Any], given) if isinstance(given, list) else [given]
            for entry in entries:
                if not isinstance(entry, dict):
                    self._fault(file, key, f"{key}: each entry has a `connection` and `options`")
                    continue
                one = cast(Values, entry)
                for name in one.keys() - set(_ENRICHMENT):
                    self.notes.append(f"{file.at(key)}: unknown key {name!r} is ignored")
                made = self._connector(file, key, one.get("connection"), put)
                options = self._mapping(file, key, {key: one.get("options")}, _KEYS_TO_VALUES)
                what = "its `penstock` holds keys of an enrichment in a pipeline file"
                more = self._mapping(file, key, {key: one.get("penstock")}, what)
                if made is not None:
                    found.append(_over({**made, "options": options}, more))
        return found

    def _connector(self, file: File, key: str, given: Any, put: Variables) -> Values | None:
        """Returns how a connection's package is run, and with which credentials. ``given``: a
        connection's id, or an inline one. None: it cannot be run."""
        at = file
        if isinstance(given, dict):
            connection = cast(Values, given)
        else:
            found = self._connections.get(str(given)) if given is not None else None
            if found is None:
                self._unknown(file, key, given, self._connections)
                return None
            at, connection = found, found.values(put)
        self._keys(at, "connections", connection)
        launch = self._launch(at, "package" if at is not file else key, connection.get("package"))
        credentials = self._mapping(at, "credentials", connection, _KEYS_TO_VALUES)
        return None if launch is None else {**launch, "config": credentials}

    def _launch(self, file: File, key: str, given: Any) -> Values | None:
        """Returns how a connection's package is run; None: it cannot be run."""
        if not isinstance(given, dict):
            return self._fault(file, key, "package: it needs `type`, and `image` or `dir`")
        package = cast(Values, given)
        kind = package.get("type", "docker")
        if kind == "docker" and package.get("image"):
            return {"use": f"syncmaven:docker:{package['image']}"}
        if kind == "npm" and package.get("dir"):
            return self._in_folder(file, key, package)
        if kind == "npm" and package.get("package"):
            name = str(package["package"])
            if not _NPM.fullmatch(name):
                return self._fault(
                    file,
                    key,
                    f"package: {name!r} is not NAME or NAME@VERSION with an exact version",
                )
            return {"use": f"syncmaven:{name}"}
        known = "docker with `image`, npm with `dir` or `package`"
        return self._fault(file, key, f"package: {kind!r} is not known so; known: {known}")

    def _in_folder(self, file: File, key: str, package: Values) -> Values | None:
        folder = (self._folder / Path(str(package["dir"])).expanduser()).absolute()
        if not folder.is_dir():
            return self._fault(file, key, f"package: there is no folder {folder}")
        words = str(package.get("command") or "").split()
        if not words:
            words = ["node", str(folder / _main(folder))]
            if not Path(words[1]).is_file():
                return self._fault(file, key, f"package: there is no file {words[1]}")
        program = shutil.which(words[0], path=None) or str(folder / words[0])
        if not Path(program).is_file():
            return self._fault(file, key, f"package: there is no program {words[0]!r}")
        command = shlex.join([program, *words[1:]])
        return {"use": f"syncmaven:{command}", "folder": str(folder)}

    # -- faults

    def _fault(self, file: File, key: str, text: str) -> None:
        self.problems.append(f"{file.at(key)}: {text}")

    def _unknown(self, file: File, key: str, named: Any, known: Mapping[str, File]) -> None:
        folder = "models" if key == "model" else "connections"
        if named is None:
            self._fault(file, key, f"{key}: it is missing; it names a file of {folder}/")
            return
        near = hint(str(named), known)
        self._fault(file, key, f"{key}: there is no {named!r} in {folder}/; {near}")


def _main(folder: Path) -> str:
    """Returns the file that an npm package runs."""
    try:
        manifest = msgspec.json.decode((folder / "package.json").read_bytes())
    except (OSError, msgspec.DecodeError):
        return _MAIN
    main = cast(Values, manifest).get("main") if isinstance(manifest, dict) else None
    return main if isinstance(main, str) and main else _MAIN


def _over(base: Values, more: Values) -> Values:
    """Returns ``base`` with the keys of ``more`` in place of its own, mapping by mapping."""
    found = dict(base)
    for key, value in more.items():
        inner = found.get(key)
        if isinstance(inner, dict) and isinstance(value, dict):
            found[key] = _over(cast(Values, inner), cast(Values, value))
        else:
            found[key] = value
    return found


def _as_yaml(document: Values) -> str:
    """Returns the document as a pipeline file without variables: JSON whose escapes are also valid
    YAML."""
    text = msgspec.json.encode(_escaped(document)).decode()
    return _YAML_ONLY.sub(lambda m: _escape(ord(m[0])), text)


def _escape(code: int) -> str:
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("${", "$${")
    if isinstance(value, dict):
        return {key: _escaped(item) for key, item in cast(Values, value).items()}
    if isinstance(value, Sequence):
        return [_escaped(item) for item in cast(list[Any], value)]
    return value

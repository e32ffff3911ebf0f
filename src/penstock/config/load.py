"""Loads a pipeline file as a :class:`Pipeline`, or raises one ``ConfigError`` with all its faults.

Neighbours: ``config.yaml_nodes`` (YAML), ``config.variables`` (``${NAME}``), ``config.reader`` and
``config.cross_checks`` (structs). Not here: connectors and catalogs (``engine.plan``).
"""

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from penstock.config import yaml_nodes
from penstock.config.converters import LITERALS
from penstock.config.pipeline import Pipeline, PipelineFile
from penstock.config.profiles import applied, names_of_profiles
from penstock.config.reader import BAD, NodeReader, replace_at
from penstock.config.relative_paths import placed_at, placed_here
from penstock.config.v4_dialect import PENSTOCK, V4, is_v4
from penstock.config.variables import EnvFileBeside, VariableResolver, merged
from penstock.errors import ConfigError

EnvFiles = str | Path | Iterable[str | Path] | None

_LONGEST_MESSAGE_LIST = 200


def load_pipeline(
    source: str | Path,
    env: Mapping[str, str] | None = None,
    env_file: EnvFiles = None,
    *,
    lenient: bool = False,
    profile: str | None = None,
    starts_none: bool = False,
) -> Pipeline:
    """Reads a pipeline file: a path, ``-`` for stdin, or the text itself (a string with a line
    break). Relative paths start at the file's folder; of stdin and text at the folder in which
    Penstock was started. ``env``: variables, by default the process's; ``env_file``: files of
    variables, which the environment overrides; ``.env`` in the file's folder provides what both
    lack. ``lenient``: unknown keys are ``warnings``; ``profile``: one of the file's ``profiles``,
    whose keys override the others; ``starts_none``: the caller starts no connector, so a variable
    in a connector's ``config`` may be unset.

    Raises ``ConfigError`` (``code`` ``config.not_found``, ``config.unreadable``, ``config.yaml``,
    ``config.empty``, ``config.env_file``, ``config.unknown_profile``, ``config.invalid``) whose
    ``problems`` are all faults, one line each, in the order of the file."""
    files = [env_file] if isinstance(env_file, str | Path) else list(env_file or ())
    values = merged(os.environ if env is None else env, files)
    if isinstance(source, str) and "\n" in source:
        return placed_here(
            parse_pipeline(
                source, values, lenient=lenient, folder=Path(), profile=profile,
                starts_none=starts_none,
            )
        )  # fmt: skip
    text, name = _read(source)
    if source == "-":
        return placed_here(
            parse_pipeline(
                text, values, name=name, lenient=lenient, folder=Path(), profile=profile,
                starts_none=starts_none,
            )
        )  # fmt: skip
    folder = Path(source).parent
    found = parse_pipeline(
        text, values, name=name, lenient=lenient, folder=folder, profile=profile,
        beside=EnvFileBeside(folder), starts_none=starts_none,
    )  # fmt: skip
    options = ("--with", profile) if profile is not None else ()
    options += tuple(word for file in files for word in ("--env-file", str(file)))
    return msgspec.structs.replace(
        placed_at(found, folder), read_with=(*options, *(("--lenient",) if lenient else ()))
    )


def parse_pipeline(
    text: str,
    values: Mapping[str, str],
    *,
    name: str = "pipeline",
    lenient: bool = False,
    folder: Path | None = None,
    profile: str | None = None,
    beside: EnvFileBeside | None = None,
    starts_none: bool = False,
) -> Pipeline:
    """Parses the text of a file like :func:`load_pipeline`. ``values``: the variables; ``beside``:
    a file with more. ``name``: of the file, in messages. ``folder``: relative paths in the file
    start there; None: they are kept as written."""
    tree = yaml_nodes.compose(text, name)
    v4 = is_v4(tree.root)
    dialect = V4 if v4 else PENSTOCK
    reader = NodeReader(
        dialect,
        VariableResolver(values, v4=v4, beside=beside),
        LITERALS,
        lenient=lenient,
        folder=folder,
        starts_none=starts_none,
    )
    reader.problems.extend(tree.problems)
    if not isinstance(tree.root, yaml_nodes.Mapping):
        reader.problem(tree.root, "a pipeline file is a mapping of keys to values")
        file = BAD
    else:
        file = reader.read(applied(tree.root, profile, name), PipelineFile)
    fault = None if beside is None else beside.fault
    if reader.problems or file is BAD:
        raise _invalid(reader, name, fault)
    assert isinstance(file, PipelineFile)
    file = _defaults(file, dialect.defaults, reader.given)
    return Pipeline(
        **{f: getattr(file, f) for f in PipelineFile.__struct_fields__},
        origin=name,
        profiles=names_of_profiles(tree.root),
        dialect="rapidbyte-v4" if v4 else "penstock",
        warnings=(*_lines(name, reader.warnings), *([fault] if fault else [])),
        env_file=None if beside is None or not beside.given else str(beside.path),
        env_file_names=() if beside is None else tuple(beside.given),
        secret_paths=tuple(dict.fromkeys(reader.secret_paths)),
        secret_values=frozenset(reader.secret_values),
        lines=reader.lines,
    )


def _defaults(file: PipelineFile, defaults: Mapping[str, object], given: set[str]) -> PipelineFile:
    for path, value in defaults.items():
        if path not in given:
            file = replace_at(file, path, value)
    resources = file.resources
    if resources is not None and "lanes" not in given:
        lanes = resources.autotune.pin_parallelism or resources.parallelism
        file = msgspec.structs.replace(file, lanes=lanes)
    return file


def _lines(name: str, found: Iterable[tuple[int, str]]) -> list[str]:
    """Returns the problems as ``FILE:LINE: TEXT`` in the order of the file, without repeats (an
    alias repeats the faults of its anchor)."""
    ordered = sorted(found, key=lambda problem: problem[0])
    return list(dict.fromkeys(f"{name}:{line}: {text}" for line, text in ordered))


def _invalid(reader: NodeReader, name: str, fault: str | None) -> ConfigError:
    """``fault``: the fault of ``.env``, which may explain a missing variable."""
    problems = [*_lines(name, reader.problems), *([fault] if fault else [])]
    if len(problems) > _LONGEST_MESSAGE_LIST:
        more = len(problems) - _LONGEST_MESSAGE_LIST
        problems = [*problems[:_LONGEST_MESSAGE_LIST], f"{name}: and {more} more"]
    missing = any("is not set" in problem for problem in problems)
    message = problems[0] if len(problems) == 1 else f"{name} has {len(problems)} problems"
    return ConfigError(
        message,
        problems=problems,
        code="config.invalid",
        where=problems[0].split(": ", 1)[0],
        hint=(
            "set the variable in the environment, in --env-file or in .env next to the file, "
            "or write ${NAME:-default}"
            if missing
            else "`penstock schema` prints what a pipeline file may hold"
        ),
    )


def _read(source: str | Path) -> tuple[str, str]:
    if source == "-":
        return yaml_nodes.decode(sys.stdin.buffer.read(yaml_nodes.MAX_BYTES + 1), "stdin"), "stdin"
    path = Path(source)
    name = str(source)
    try:
        with path.open("rb") as file:
            raw = file.read(yaml_nodes.MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(
            f"there is no pipeline file {name}",
            code="config.not_found",
            where=name,
            hint=_missing_file_hint(path),
        ) from None
    except OSError as error:
        raise ConfigError(
            f"the pipeline file {name} cannot be read: {error.strerror}",
            code="config.unreadable",
            where=name,
            hint="give the path of a YAML file that you may read, or - for stdin",
        ) from None
    return yaml_nodes.decode(raw, name), name


def _missing_file_hint(path: Path) -> str:
    from penstock.config.did_you_mean import closest

    try:
        found = [p for p in path.parent.iterdir() if p.suffix in (".yml", ".yaml")]
    except OSError:
        found = []
    files = {p.stem: p.name for p in found}  # the endings alone make no two names alike
    near = closest(path.stem, files)
    if near is not None:
        return f"did you mean {path.parent / files[near]}?"
    return "give the path of a pipeline file, or a source and a destination"

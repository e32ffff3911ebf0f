"""Checks whether this machine can run pipelines, and how to fix what is missing (`penstock
doctor`).

Uses no network. ``mend`` changes only what a run would change itself, and starts Java once to make
later starts quicker. Neighbours: ``machine_checks`` has the checks that ``runs_here`` makes too,
``spark`` finds Java and jars, ``connectors`` environments, ``state`` the store; ``cli.doctor``
prints.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path

import msgspec
import platformdirs

from penstock.codec import duckdb_call
from penstock.config.home import Home
from penstock.config.packages import install
from penstock.config.table_formats import TableFormatSpec, table_formats
from penstock.connectors import uv
from penstock.connectors.environments import (
    Installed,
    discard,
    installed,
    installed_of,
    locked,
    mark_ready,
)
from penstock.connectors.install import rebuild
from penstock.engine.inspect.machine_checks import (
    DoctorCheck,
    guarded,
    java_check,
    python_check,
)
from penstock.engine.specs.observer import counted
from penstock.errors import ConfigError, ConnectorError, PenstockError
from penstock.runtimes.container.engine import find_engine
from penstock.runtimes.container.orphans import orphans, remove_orphans
from penstock.spark.class_archive import archive_path, trusted
from penstock.spark.jars import FOLDER_VARIABLE, find_jars
from penstock.spark.java import JavaHome, find_java
from penstock.spark.session import MASTER_VARIABLE
from penstock.tables.contract import SessionNeeds
from penstock.tables.formats import session_needs

_PYSPARK = "pyspark>=4.1,<4.2"
_SPARKS = ((4, 1), (4, 3))
_LEAST_FREE = 1_000_000_000
_ASK_SECONDS = 20.0


def examine(home: Home, *, mend: bool = False) -> list[DoctorCheck]:
    """Runs every check, in an order that puts causes before effects. A problem is a result, never
    raised. ``mend``: fix what can be fixed."""
    steps: list[tuple[str, Callable[[], DoctorCheck]]] = [
        ("python", python_check),
        ("java", java_check),
        ("spark", _spark),
        ("packages", _packages),
        ("duckdb", _duckdb),
        ("classes", lambda: _classes(mend)),
        *((spec.name, partial(_jars, spec)) for spec in _with_jars()),
        ("home", lambda: _home(home, mend)),
        ("disk", lambda: _disk(home)),
        ("uv", _uv),
        ("connectors", lambda: _connectors(home, mend)),
        ("containers", lambda: _containers(mend)),
        ("state", lambda: _state(home)),
    ]
    return [guarded(name, step) for name, step in steps]


def _spark() -> DoctorCheck:
    try:
        version = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return DoctorCheck(
            name="spark", ok=False, detail="PySpark is not installed", fix=install(_PYSPARK)
        )
    found = tuple(int(part) for part in version.split(".")[:2])
    ok = _SPARKS[0] <= found <= _SPARKS[1]
    named = os.environ.get(MASTER_VARIABLE)
    where = f"master {named} ({MASTER_VARIABLE})" if named else "local master"
    fix = None if ok else install(_PYSPARK)
    return DoctorCheck(name="spark", ok=ok, detail=f"PySpark {version}, {where}", fix=fix)


def _packages() -> DoctorCheck:
    """Compares the installed packages with those that this package was tested with."""
    stated = [r for r in metadata.requires("penstock") or () if ";" not in r]
    wrong: dict[str, str] = {}
    for requirement in stated:
        name, bounds = _parsed(requirement)
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            wrong[requirement] = f"{name} is not installed"
            continue
        if not all(_holds(version, *bound) for bound in bounds):
            wrong[requirement] = f"{name} {version} was not tested"
    return DoctorCheck(
        name="packages",
        ok=not wrong,
        detail="; ".join(wrong.values())
        or f"{counted(len(stated), 'package')}, of versions that were tested",
        fix=install(*wrong) if wrong else None,
    )


def _parsed(requirement: str) -> tuple[str, list[tuple[str, str]]]:
    """Splits ``name[extra]>=1,<2`` into the name and its bounds, (operator, version) each."""
    name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
    return name, re.findall(r"(>=|<=|==|<|>)\s*([0-9.]+)", requirement)


def _holds(version: str, operator: str, bound: str) -> bool:
    have, wanted = _numbers(version), _numbers(bound)
    return {
        ">=": have >= wanted,
        "<=": have <= wanted,
        "==": have == wanted,
        "<": have < wanted,
        ">": have > wanted,
    }[operator]


def _numbers(version: str) -> list[int]:
    """Returns the numbers of a version, without trailing zeros: 2.0 and 2.0.0 are the same."""
    numbers = [int(n) for n in re.split(r"[^0-9.]", version)[0].split(".") if n]
    while numbers and not numbers[-1]:
        numbers.pop()
    return numbers


def _duckdb() -> DoctorCheck:
    """Runs the guard of the decoder, which each lane runs too."""
    duckdb_call.warm()
    return DoctorCheck(
        name="duckdb",
        ok=True,
        detail=f"DuckDB {duckdb_call.version()} keeps every digit of JSON numbers",
    )


def _classes(mend: bool) -> DoctorCheck:
    """Checks the archives of Java classes for the tables whose jars are on disk: Spark's alone, and
    with Delta's."""
    java, cache = find_java(), _cache()
    lacking = [(name, needs) for name, needs in _sets() if not _archived(java, needs, cache)]
    if mend:
        from penstock.spark.class_archive_build import make_now

        try:
            for _, needs in lacking:
                make_now(needs, cache)
        except ConfigError as error:
            return DoctorCheck(name="classes", ok=True, detail=error.message, fix=error.hint)
    left = [] if mend else [name for name, _ in lacking]
    return DoctorCheck(
        name="classes",
        ok=True,
        detail=f"Spark reads its classes again at each start for {' and '.join(left)}"
        if left
        else "Spark starts from archives of its classes",
        fix="penstock doctor --fix archives them at once, else the next run that succeeds does: "
        "a start takes half the time then"
        if left
        else None,
        mended=mend and bool(lacking),
    )


def _sets() -> list[tuple[str, SessionNeeds]]:
    """Returns the table formats whose jars are on disk; formats without jars count as one."""
    found: list[tuple[str, SessionNeeds]] = []
    for spec in table_formats().values():
        needs = session_needs(spec.name)
        known = any(needs == other for _, other in found)
        if not known and not find_jars(needs.packages, _cache()).missing:
            found.append((spec.label, needs))
    return found


def _archived(java: JavaHome, needs: SessionNeeds, cache: Path) -> bool:
    return trusted(archive_path(java, find_jars(needs.packages, cache).files, cache))


def _with_jars() -> list[TableFormatSpec]:
    return [spec for spec in table_formats().values() if session_needs(spec.name).packages]


def _jars(spec: TableFormatSpec) -> DoctorCheck:
    jars = find_jars(session_needs(spec.name).packages, _cache())
    if jars.missing:
        return DoctorCheck(
            name=spec.name,
            ok=True,
            detail=f"{len(jars.missing)} jars of {spec.label} are not here yet: the first run into "
            f"a {spec.label} table fetches them from Maven",
            fix=f"without network: put them in a folder and name it by {FOLDER_VARIABLE}",
        )
    return DoctorCheck(name=spec.name, ok=True, detail=f"jars in {jars.files[0].parent}")


def _home(home: Home, mend: bool) -> DoctorCheck:
    place = home.path
    mended = False
    if not place.exists():
        if not mend:
            return DoctorCheck(
                name="home",
                ok=_may_create(place),
                detail=f"{place} does not exist yet; the first run makes it",
                fix="penstock doctor --fix makes it" if _may_create(place) else _OTHER_HOME,
            )
        place.mkdir(mode=0o700, parents=True)
        mended = True
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        why = error.strerror or str(error)
        return DoctorCheck(
            name="home", ok=False, detail=f"{place} cannot be written: {why}", fix=_OTHER_HOME
        )
    made = "was made now and " if mended else ""
    return DoctorCheck(name="home", ok=True, detail=f"{place} {made}can be written", mended=mended)


_OTHER_HOME = "set PENSTOCK_HOME or --home to a folder that you may write to"


def _may_create(place: Path) -> bool:
    return os.access(_existing(place), os.W_OK | os.X_OK)


def _existing(place: Path) -> Path:
    return next(p for p in (place, *place.parents) if p.is_dir())


def _disk(home: Home) -> DoctorCheck:
    tight: list[str] = []
    shown: list[str] = []
    for what, place in (("home", home.path), ("temporary files", Path(tempfile.gettempdir()))):
        free = shutil.disk_usage(_existing(place)).free
        shown.append(f"{free / 1e9:.1f} GB free for {what}")
        if free < _LEAST_FREE:
            tight.append(str(place))
    return DoctorCheck(
        name="disk",
        ok=not tight,
        detail=", ".join(shown),
        fix=f"free at least 1 GB for {' and '.join(tight)}" if tight else None,
    )


def _uv() -> DoctorCheck:
    path = uv.find_uv()
    try:
        answer = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=_ASK_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        return DoctorCheck(
            name="uv", ok=False, detail=f"{path}: {error}", fix="pip install --force-reinstall uv"
        )
    return DoctorCheck(name="uv", ok=True, detail=f"{answer.stdout.strip()} at {path}")


def _connectors(home: Home, mend: bool) -> DoctorCheck:
    """Counts the environments that are complete, and lists those that an interrupted build or a
    removed Python left broken."""
    root = home.path / "connectors"
    broken = _broken(root)
    mended = [path for path in broken if mend and _mend_environment(path)]
    left = [path for path in broken if path not in mended]
    detail = f"{counted(len(installed(root)), 'environment')} ready"
    for what, paths in (("mended", mended), ("broken", left)):
        if paths:
            detail += f"; {what}: {', '.join(str(p.relative_to(root)) for p in paths)}"
    return DoctorCheck(
        name="connectors",
        ok=not left,
        detail=detail,
        fix="penstock doctor --fix builds them again" if left else None,
        mended=bool(mended),
    )


def _containers(mend: bool) -> DoctorCheck:
    """Checks the engine that runs images, and the containers that killed runs left in it. Without
    images no engine is needed."""
    try:
        engine = find_engine()
    except ConnectorError as error:
        return DoctorCheck(
            name="containers",
            ok=True,
            detail=f"{error.message}; only images (PROTOCOL:docker:IMAGE) need one",
            fix=error.hint,
        )
    left = remove_orphans(engine) if mend else orphans(engine)
    lacking = [
        what
        for what, can in (
            ("memory", engine.limits_memory),
            ("the number of processes", engine.limits_processes),
        )
        if not can
    ]
    detail = f"{engine.kind} {engine.version} at {engine.command}"
    if left:
        what = "removed" if mend else "left by killed runs"
        detail += f"; {what}: {counted(len(left), 'container')}"
    if lacking:
        detail += f"; its kernel does not bound {' and '.join(lacking)} of a container"
    return DoctorCheck(
        name="containers",
        ok=True,
        detail=detail,
        fix="penstock doctor --fix removes them, as the next run of an image does"
        if left and not mend
        else None,
        mended=mend and bool(left),
    )


def _broken(root: Path) -> list[Path]:
    whole = {entry.path for entry in installed(root)}
    return [p for p in sorted(root.glob("*/*/*/")) if p.is_dir() and str(p) not in whole]


def _mend_environment(path: Path) -> bool:
    """Deletes an environment whose build was interrupted; builds one that was complete before again
    from its lock."""
    try:
        marker = msgspec.json.decode((path / "READY").read_bytes(), type=Installed)
    except (OSError, msgspec.DecodeError):
        marker = None
    folder = path.parent
    try:
        with locked(folder, lambda _: None):
            discard(path)
        if marker is None:
            return True
        rebuild(msgspec.structs.replace(marker.environment, folder=str(folder.parent.parent)))
        with locked(folder, lambda _: None):
            for entry in installed_of(folder):
                if entry.environment.key == marker.environment.key:
                    # a lock has neither the user's name of the connector nor the constraints
                    mark_ready(
                        msgspec.structs.replace(
                            entry, name=marker.name, constraints=marker.constraints
                        )
                    )
    except PenstockError:
        return False
    return True


def _state(home: Home) -> DoctorCheck:
    place = home.path / "state.db"
    if not place.exists():
        return DoctorCheck(
            name="state", ok=True, detail="no state store yet; the first run makes it"
        )
    from penstock.store.open import open_store

    store = open_store(place)
    try:
        count = len(store.pipelines())
    finally:
        store.close()
    return DoctorCheck(name="state", ok=True, detail=f"{place} knows {counted(count, 'pipeline')}")


def _cache() -> Path:
    return platformdirs.user_cache_path("penstock").resolve()

"""Two real users, neither with a home folder nor an entry in the password database, write the same
tables in turn (issue 36, 7): nothing is refused, lost, or closed to the other."""

import json
import os
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import platformdirs
import pytest
from deltalake import DeltaTable

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two other users"),
]

USERS, GROUP = (51234, 51235), 62345
STUB = Path(__file__).parents[1] / "stubs" / "stub_source.py"
PROGRAM = """
import sys
from penstock.config.home import Home
from penstock.config.load import load_pipeline
from penstock.config.user_folders import provide
from penstock.engine.run.start import run_pipeline
from penstock.engine.specs.observer import NullObserver
from penstock.spark import session
from penstock.tables.delta.tables import DeltaTables
provide(Home().path)
scratch = Home().path / "scratch"
spark = session.open_session(DeltaTables(".").needs(), scratch_dir=scratch, cores=2)
for file in sys.argv[1:]:
    report = run_pipeline(load_pipeline(file, env={}), Home(), observer=NullObserver())
    assert report.status == "succeeded", report.error
session.close_session(spark)
"""
MODES: dict[str, dict[str, Any]] = {
    "appended": {"mode": "incremental_append"},
    "merged": {"mode": "upsert"},  # by Spark: each turn has a new column
    "replaced": {"mode": "full_refresh_overwrite"},
}


def pipeline(place: Path, format: str, turn: int) -> str:
    """The file of a pipeline that brings three rows to each table, of which the next turn's have
    one key."""
    rows = [{"id": n, "who": f"turn {turn}", "at": turn} for n in (turn, turn + 1, 100 + turn)]
    columns = {"id": {"type": "integer"}, "who": {"type": "string"}, "at": {"type": "integer"}}
    new = {f"new{turn}": {"type": "integer"}}
    streams: list[Any] = []
    steps: list[Any] = []
    for name in MODES:
        wider = name == "merged"
        streams.append({
            "name": name,
            "json_schema": {"type": "object", "properties": {**columns, **(new if wider else {})}},
            "supported_sync_modes": ["full_refresh", "incremental"],
            "source_defined_cursor": True,
            "default_cursor_field": ["at"],
            "source_defined_primary_key": [["id"]],
        })  # fmt: skip
        data = [{**row, **(dict.fromkeys(new, turn) if wider else {})} for row in rows]
        steps += [{"record": {"stream": name, "data": each}} for each in data]
        steps += [
            {"state": {"stream": name, "state": {"at": turn}}},
            {"status": {"stream": name, "status": "COMPLETE"}},
        ]
    told = shlex.quote(json.dumps({"streams": streams, "steps": steps}))
    file = place / f"{format}-{turn}.json"
    file.write_text(json.dumps({
        "pipeline": f"{format}-{turn}",
        "source": {
            "use": f"airbyte:{sys.executable} {STUB} --with {told}",
            "streams": [{"name": name, **mode} for name, mode in MODES.items()],
        },
        "destination": {"use": f"{format}:{place}/lake/{format}"},
    }))  # fmt: skip
    return str(file)


@pytest.fixture
def place() -> Iterator[Path]:
    """Where other users may enter, as they may not pytest's own folder. With Delta's jars, which
    root's cache has."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-lake-"))
    folder.chmod(0o755)
    jars = platformdirs.user_cache_path("penstock") / "jars"
    if not jars.is_dir():
        pytest.skip("no run of this user has fetched Delta's jars yet")
    shutil.copytree(jars, folder / "jars")
    yield folder
    shutil.rmtree(folder)


def turn(place: Path, number: int, umask: int) -> None:
    user = USERS[number % 2]
    home = place / f"home{user}-{number}"
    home.mkdir(mode=0o700)
    os.chown(home, user, user)
    names = ("CI", "PATH", "JAVA_HOME", "JDK_JAVA_OPTIONS")
    kept = {k: os.environ[k] for k in names if k in os.environ}
    files = [pipeline(place, format, number) for format in ("parquet", "delta")]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *files],
        user=user,
        group=user,
        extra_groups=[GROUP],
        umask=umask,
        env={
            **kept,
            "HOME": "/nonexistent",
            "PENSTOCK_HOME": str(home),
            "PENSTOCK_JARS": str(place / "jars"),
            "PENSTOCK_DAEMON": "0",
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        cwd=home,
        capture_output=True,
        text=True,
        timeout=380,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert {p.name for p in home.iterdir()} >= {"state.db", "runs"}
    assert not Path("/nonexistent").exists()


def test_two_users_of_a_group_write_the_same_tables_in_turn(place: Path) -> None:
    lake = place / "lake"
    lake.mkdir()
    os.chown(lake, 0, GROUP)
    lake.chmod(0o2770)
    for number in range(2):
        turn(place, number, 0o007)
    for path in lake.rglob("*"):
        made = path.stat()
        open_to_group = 0o2770 if path.is_dir() else 0o660
        assert (made.st_gid, oct(stat.S_IMODE(made.st_mode))) == (GROUP, oct(open_to_group)), path
    for format in ("parquet", "delta"):
        if format == "parquet":
            tables = {n: f"'{lake}/parquet/{n}/*.parquet'" for n in ("appended", "merged")}
            replaced = f"'{lake}/parquet/replaced/*.parquet'"
        else:
            tables, found = {}, {}
            for name in ("appended", "merged", "replaced"):
                found[name] = DeltaTable(str(lake / "delta" / name)).to_pyarrow_table()
                duckdb.register(f"delta_{name}", found[name])
                tables[name] = f"delta_{name}"
            replaced = tables.pop("replaced")
        count = duckdb.sql(f"SELECT count(*), count(DISTINCT id) FROM {tables['appended']}")
        assert count.fetchall() == [(6, 5)], format
        merged = duckdb.sql(f"SELECT id, who FROM {tables['merged']} ORDER BY id").fetchall()
        assert merged == [
            (0, "turn 0"), (1, "turn 1"), (2, "turn 1"), (100, "turn 0"), (101, "turn 1")
        ], format  # fmt: skip
        rows = duckdb.sql(f"SELECT id, who FROM {replaced} ORDER BY id").fetchall()
        assert rows == [(1, "turn 1"), (2, "turn 1"), (101, "turn 1")], format

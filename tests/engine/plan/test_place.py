"""The place of a pipeline (L3): the state of a name is gone on with from its own place alone, and
tables that moved are found before a run.

The ledger and the markers of tables are written here as a run writes them; no Spark, no connector.
"""

import json
import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.config.command_line import Options, pipeline_from_arguments, with_options
from penstock.config.home import Home
from penstock.config.load import load_pipeline
from penstock.config.pipeline import Pipeline
from penstock.engine.inspect import states
from penstock.engine.inspect.pipelines import open_known
from penstock.engine.plan.lost_tables import lost_tables, refuse_moved
from penstock.engine.plan.place import SettledPlace, settle_place, store_place
from penstock.engine.specs.plan import PlannedStream
from penstock.errors import ConfigError, DestinationError
from penstock.model.catalog import ConfiguredStream, DestinationSyncMode, Stream, StreamId, SyncMode
from penstock.model.names import clean_tables
from penstock.model.segments import PartRef, SegmentId, WriteDisposition
from penstock.model.types import RowSchema
from penstock.store.contract import GroupIntent, Lease, LoadIntent
from penstock.store.lock_holder import this_holder
from penstock.store.open import open_store
from penstock.store.remembered import Remembered, StoredPlace, TableNames
from penstock.tables.contract import TableName
from penstock.tables.parquet.folders import Marker, write_marker

USERS, ORDERS = StreamId(None, "users"), StreamId(None, "orders")


def planned(
    *streams: StreamId, mode: DestinationSyncMode = DestinationSyncMode.append
) -> list[PlannedStream]:
    return [
        PlannedStream(
            configured=ConfiguredStream(
                stream=Stream(id=s, json_schema={}, sync_modes=(SyncMode.incremental,)),
                sync_mode=SyncMode.incremental,
                destination_sync_mode=mode,
            ),
            schema=RowSchema(fields=()),
            columns={},
            disposition=WriteDisposition(mode=mode),
            table=TableName(None, s.name),
        )
        for s in streams
    ]


class World:
    """A home, and folders with pipeline files. A run is what it leaves: loads in the ledger, and
    their numbers in the tables of the folder that it took."""

    def __init__(self, root: Path) -> None:
        self.root, self.home = root, Home(root / "home")
        self.store = open_store(self.home.state_url(None))

    def file(self, folder: str, path: str = "./lake", **keys: Any) -> Path:
        """Writes a pipeline file into a folder."""
        place = self.root / folder
        place.mkdir(parents=True, exist_ok=True)
        document = {
            "pipeline": "shop",
            "source": {"use": "airbyte:source-faker"},
            "destination": {"use": "parquet", "config": {"path": path}},
            **keys,
        }
        (place / "shop.yaml").write_text(json.dumps(document))
        return place / "shop.yaml"

    def lease(self, name: str = "shop") -> Lease:
        return self.store.acquire(name, this_holder("r1", "2026-11-20T10:00:00Z"), 60.0)

    def run(
        self,
        pipeline: Pipeline,
        *streams: StreamId,
        before: bool = False,
        lake: Path | None = None,
        fails: bool = False,
    ) -> SettledPlace:
        """``before``: as a version that knew no place, which loaded into ``lake``. ``fails``: after
        it began to read."""
        streams = streams or (USERS,)
        settled = SettledPlace(pipeline)
        if not before:
            settled = settle_place(pipeline, self.store, self.home)
            refuse_moved(settled.pipeline, self.store, self.home, planned(*streams))
        lease = self.lease(pipeline.pipeline)
        names = TableNames(tables=clean_tables(streams, {}))
        self.store.remember(lease, Remembered(tables=names))
        if not before:
            store_place(settled, self.store, lease, planned(*streams))
        epoch = self.store.new_epoch(lease, 0)
        if not fails:
            self._load(
                lease, epoch, lake or Path(settled.pipeline.destination.config["path"]), streams
            )
        self.store.release(lease)
        return settled

    def _load(self, lease: Lease, epoch: int, lake: Path, streams: tuple[StreamId, ...]) -> None:
        loads = tuple(
            LoadIntent(
                stream=s,
                disposition=WriteDisposition(mode=DestinationSyncMode.append),
                segments=(SegmentId(epoch, 1),),
                parts=(PartRef("e1/a.parquet", 3, 30, 20, 1),),
                schema_version=1,
                generation=0,
            )
            for s in streams
        )
        consumes = tuple((SegmentId(epoch, 1), s) for s in streams)
        intent = GroupIntent(loads=loads, states=(), epoch=epoch, consumes=consumes)
        (group,) = self.store.intend(lease, [intent], lambda saved, new: [*saved, *new])
        for load in group.loads:
            folder = lake / load.stream.name
            folder.mkdir(parents=True, exist_ok=True)
            write_marker(folder, Marker(columns=(), applied={load.key: load.number}))
        done = [(group.id, load) for load in group.loads]
        self.store.loaded(lease, done, lambda saved, new: [*saved, *new])

    def place(self, name: str = "shop") -> StoredPlace | None:
        return self.store.remembered(name, ()).place


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PENSTOCK_HOME", raising=False)
    yield made
    made.store.close()


def commands(hint: str | None) -> list[list[str]]:
    """The commands that a text names."""
    return [shlex.split(text) for text in (hint or "").split("`")[1::2] if text[:9] == "penstock "]


# -- the place


def test_a_copy_of_a_file_is_refused_with_its_ways_out(world: World) -> None:
    first, second = world.file("a"), world.file("b")
    world.run(load_pipeline(first))
    assert world.place() == StoredPlace(
        folder=str(first.parent), lake=str(first.parent / "lake"), written="./lake"
    )
    with pytest.raises(ConfigError) as told:
        world.run(load_pipeline(second))
    error = told.value
    assert (error.code, error.exit_code) == ("config.other_place", 2)
    assert str(first.parent) in error.message and str(second.parent) in error.message
    home = str(world.home.path)
    rename, adopt = commands(error.hint)
    assert rename == ["penstock", "run", str(second), "--name", "shop-2", "--home", home]
    assert adopt == ["penstock", "state", "adopt", str(second), "--place", "--home", home]
    assert "`id: shop`" in str(error.hint)
    world.run(load_pipeline(first))  # the first goes on


def test_another_name_is_another_pipeline(world: World) -> None:
    first, second = world.file("a"), world.file("b")
    world.run(load_pipeline(first))
    renamed = with_options(load_pipeline(second), Options(name="shop-2"))
    world.run(renamed)
    assert world.place() != world.place("shop-2")


def test_adopt_place_moves_the_place_alone_and_a_lost_load_is_noticed(world: World) -> None:
    first, second = world.file("a"), world.file("b")
    world.run(load_pipeline(first))
    expected = world.store.expected_loads("shop")
    with open_known(load_pipeline(second), world.home) as known:
        answer = states.adopt_place(known)
    assert answer == {"pipeline": "shop", "adopted": [], "place": str(second.parent)}
    assert world.store.expected_loads("shop") == expected
    with pytest.raises(ConfigError) as told:  # the tables did not move: not written to from here
        world.run(load_pipeline(second))
    assert told.value.code == "config.other_folder"
    assert f"`path: {first.parent / 'lake'}`" in str(told.value.hint)
    shutil.rmtree(first.parent / "lake")
    with pytest.raises(DestinationError) as lost:  # nor are they anywhere
        world.run(load_pipeline(second))
    assert lost.value.code == "destination.table_behind"
    assert str(first.parent / "lake") in lost.value.message


def test_a_checkout_that_was_moved_with_its_tables_goes_on_once_it_is_adopted(world: World) -> None:
    first = world.file("a")
    world.run(load_pipeline(first))
    shutil.move(first.parent, world.root / "b")
    moved = world.root / "b" / "shop.yaml"
    with pytest.raises(ConfigError):
        world.run(load_pipeline(moved))
    with open_known(load_pipeline(moved), world.home) as known:
        states.adopt_place(known)
    world.run(load_pipeline(moved))
    assert world.place() == StoredPlace(
        folder=str(moved.parent), lake=str(moved.parent / "lake"), written="./lake"
    )


def test_an_id_stands_for_the_place(world: World) -> None:
    first = world.file("ci-1", "/", id="shop-ci")
    lake = world.root / "lake"
    first.write_text(first.read_text().replace('"/"', json.dumps(str(lake))))
    text = first.read_text().replace("airbyte:source-faker", "airbyte:./source-shop")
    first.write_text(text)
    world.run(load_pipeline(first))
    for number in range(2, 5):
        folder = world.root / f"ci-{number}"
        folder.mkdir()
        (folder / "shop.yaml").write_text(text)
        world.run(load_pipeline(folder / "shop.yaml"))
    other = world.file("other", id="another")
    with pytest.raises(ConfigError) as told:
        world.run(load_pipeline(other))
    assert "'shop-ci'" in told.value.message and "'another'" in told.value.message


def test_under_an_id_a_copy_for_a_test_does_not_write_into_the_first_ones_lake(
    world: World,
) -> None:
    first = world.file("prod", id="shop")
    world.run(load_pipeline(first))
    copy = world.file("copy", id="shop")
    with pytest.raises(ConfigError) as told:
        world.run(load_pipeline(copy))
    assert told.value.code == "config.other_folder"
    assert f"`path: {first.parent / 'lake'}`" in str(told.value.hint)
    # with the line it goes on
    world.run(load_pipeline(world.file("copy", str(first.parent / "lake"), id="shop")))


def test_an_id_that_is_new_in_a_file_is_taken_where_the_tables_prove_it(world: World) -> None:
    first = world.file("a")
    world.run(load_pipeline(first))
    copy = world.file("b", id="shop")
    with pytest.raises(ConfigError):  # its lake is empty
        world.run(load_pipeline(copy))
    shutil.copytree(first.parent / "lake", copy.parent / "lake")
    world.run(load_pipeline(copy))
    found = world.place()
    assert found is not None and found.id == "shop"


def test_where_no_path_is_relative_no_place_is_asked(world: World) -> None:
    lake = str(world.root / "lake")
    world.run(load_pipeline(world.file("a", lake)))
    world.run(load_pipeline(world.file("b", lake)))


def test_a_failed_first_run_keeps_its_place(world: World) -> None:
    first, second = world.file("a"), world.file("b")
    world.run(load_pipeline(first), fails=True)
    with pytest.raises(ConfigError):  # rows of the first may be sealed
        world.run(load_pipeline(second))


def test_links_are_not_resolved(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    releases = [world.file(f"releases/{n}", "../../lake").parent for n in (1, 2)]
    current = world.root / "app" / "current"
    current.parent.mkdir()
    current.symlink_to(releases[0])
    world.run(load_pipeline(current / "shop.yaml"))
    found = world.place()
    assert found is not None and found.folder == str(current)
    current.unlink()
    current.symlink_to(releases[1])
    world.run(load_pipeline(current / "shop.yaml"))
    monkeypatch.chdir(current)  # as the shell names it
    monkeypatch.setenv("PWD", str(current))
    world.run(load_pipeline("shop.yaml"))
    assert world.place() == found


def test_a_file_that_moves_without_its_tables_is_the_same_pipeline(world: World) -> None:
    world.run(load_pipeline(world.file("a")))
    world.run(load_pipeline(world.file("a/pipelines", "../lake")))
    found = world.place()
    assert found is not None and found.folder == str(world.root / "a" / "pipelines")


def test_the_command_line_starts_at_the_folder(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def named() -> Pipeline:
        return pipeline_from_arguments("airbyte:source-faker", "parquet:./lake", name="shop")

    (world.root / "b").mkdir()
    world.run(named())
    monkeypatch.chdir("b")
    with pytest.raises(ConfigError) as told:
        world.run(named())
    assert "give it another `--name`" in str(told.value.hint)
    (adopt,) = commands(told.value.hint)
    assert adopt[:5] == ["penstock", "state", "adopt", "shop", "--place"]
    unnamed = pipeline_from_arguments("airbyte:source-faker", "parquet:./lake")
    assert unnamed.place is None
    world.run(unnamed)


def test_changes_of_the_state_by_a_file_of_another_place_are_refused(world: World) -> None:
    world.run(load_pipeline(world.file("a")))
    with (
        open_known(load_pipeline(world.file("b")), world.home) as known,
        pytest.raises(ConfigError) as told,
        known.lease("reset"),
    ):
        pass
    assert told.value.code == "config.other_place"


# -- states and files of before


def test_a_state_without_a_place_is_never_refused_for_it(world: World) -> None:
    old = load_pipeline(world.file("a"))
    world.run(old, before=True)
    assert world.place() is None
    world.run(old)
    found = world.place()
    assert found is not None and found.folder == str(world.root / "a")


def test_a_place_is_stored_only_where_the_tables_have_the_last_numbers(world: World) -> None:
    world.run(load_pipeline(world.file("a")), before=True)
    copy = load_pipeline(world.file("b"))
    settled = settle_place(copy, world.store, world.home)  # not refused for its place
    lease = world.lease()
    store_place(settled, world.store, lease, planned(USERS))
    world.store.release(lease)
    assert world.place() is None
    (problem,) = lost_tables(settled.pipeline, world.store, world.home, planned(USERS))
    assert "nothing is there" in problem


def test_a_file_of_before_keeps_the_folder_with_the_tables(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = world.file("pipelines")
    lake = world.root / "lake"
    world.run(load_pipeline("pipelines/shop.yaml"), before=True, lake=lake)
    settled = world.run(load_pipeline("pipelines/shop.yaml"))
    connectors, note = settled.notes
    assert "connector of source runs" in connectors and "`source.folder: ..`" in connectors
    assert f"`path: {lake}`" in note and str(file) not in note
    assert settled.pipeline.destination.config["path"] == str(lake)
    found = world.place()
    assert found is not None and found.kept
    monkeypatch.chdir("pipelines")  # from wherever it is started
    assert world.run(load_pipeline("shop.yaml")).pipeline.destination.config["path"] == str(lake)
    world.file("pipelines", "../lake")  # the line is written
    settled = world.run(load_pipeline("shop.yaml"))
    assert not settled.notes and not settled.kept
    found = world.place()
    assert found is not None and not found.kept and found.lake == str(lake)
    assert not (world.root / "pipelines" / "lake").exists()


def test_a_file_of_before_under_an_id_is_refused_with_the_line(world: World) -> None:
    world.file("pipelines")
    lake = world.root / "lake"
    world.run(load_pipeline("pipelines/shop.yaml"), before=True, lake=lake)
    world.file("pipelines", id="shop")
    with pytest.raises(ConfigError) as told:
        world.run(load_pipeline("pipelines/shop.yaml"))
    assert told.value.code == "config.other_folder" and f"`path: {lake}`" in str(told.value.hint)


def test_where_neither_folder_has_the_tables_the_run_is_refused(world: World) -> None:
    world.file("pipelines")
    lake = world.root / "lake"
    world.run(load_pipeline("pipelines/shop.yaml"), USERS, ORDERS, before=True, lake=lake)
    shutil.rmtree(lake)
    with pytest.raises(DestinationError) as told:
        world.run(load_pipeline("pipelines/shop.yaml"), USERS, ORDERS)
    error = told.value
    assert (error.code, error.exit_code) == ("destination.table_behind", 5)
    assert "the tables of orders, users lack" in error.message and str(lake) in error.message


def test_a_new_pipeline_begins_at_the_file_whatever_lies_elsewhere(world: World) -> None:
    (world.root / "lake" / "users").mkdir(parents=True)
    world.file("pipelines")
    settled = world.run(load_pipeline("pipelines/shop.yaml"))
    assert settled.pipeline.destination.config["path"] == str(world.root / "pipelines" / "lake")


# -- what a plan finds


def test_plan_names_where_the_tables_were(world: World) -> None:
    world.run(load_pipeline(world.file("a")), USERS, ORDERS)
    pipeline = load_pipeline(world.file("a", "./other"))
    (problem,) = lost_tables(pipeline, world.store, world.home, planned(USERS, ORDERS))
    old = world.root / "a" / "lake"
    assert "the tables of orders, users lack" in problem
    assert (
        f"The last run wrote to {old}, which still has them" in problem
        and f"`path: {old}`" in problem
    )
    recreate, adopt = commands(problem)
    home = str(world.home.path)
    file = str(world.root / "a" / "shop.yaml")
    assert recreate == ["penstock", "run", file, "--recreate", "--home", home]
    assert adopt == ["penstock", "state", "adopt", "shop", "--home", home]


def test_plan_finds_a_table_that_is_gone_anothers_or_ahead(world: World) -> None:
    pipeline = load_pipeline(world.file("a"))
    world.run(pipeline, USERS, ORDERS)
    lake = world.root / "a" / "lake"
    assert lost_tables(pipeline, world.store, world.home, planned(USERS, ORDERS)) == []
    shutil.rmtree(lake / "users")
    (problem,) = lost_tables(pipeline, world.store, world.home, planned(USERS, ORDERS))
    assert "the table of users lacks" in problem and "nothing is there" in problem
    (lake / "users").mkdir()
    write_marker(lake / "users", Marker(columns=(), applied={"somebody": 7}))
    (problem,) = lost_tables(pipeline, world.store, world.home, planned(USERS, ORDERS))
    assert "lacks loads" in problem
    replaced = planned(USERS, mode=DestinationSyncMode.overwrite)
    assert lost_tables(pipeline, world.store, world.home, replaced) == []
    key = world.store.expected_loads("shop")[ORDERS].key
    write_marker(lake / "orders", Marker(columns=(), applied={key: 9}))
    (problem,) = lost_tables(pipeline, world.store, world.home, planned(ORDERS))
    assert "did not begin" in problem and commands(problem)[0][2] == "adopt"


def test_no_table_is_read_where_the_place_is_known(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = load_pipeline(world.file("a"))
    world.run(pipeline)
    world.run(pipeline)

    def fails(*_: object) -> None:
        raise AssertionError("a table was read")

    monkeypatch.setattr("penstock.tables.parquet.tables.read_marker", fails)
    world.run(pipeline)


def test_paths_of_connectors_state_and_log_start_at_the_file(world: World) -> None:
    keys = {
        "source": {"use": "airbyte:./source-shop", "config": {"file": "./rows.csv"}},
        "state": {"path": "state.db"},
        "log": {"path": "./log"},
        "hooks": {"on_success": ["./notify.sh", "./x"]},
    }
    world.file("p", **keys)
    found = load_pipeline("p/shop.yaml")
    at = str(world.root / "p")
    assert found.source.folder == at and found.source.use == "airbyte:./source-shop"
    assert (found.state.path, found.log.path) == (f"{at}/state.db", f"{at}/log")
    assert found.hooks.on_success == (f"{at}/notify.sh", "./x") and not found.warnings
    for name in ("state.db", "source-shop"):  # of before, in the folder of the start
        (world.root / name).write_text("")
    found = load_pipeline("p/shop.yaml")
    assert found.state.path == f"{world.root}/state.db" and found.source.folder is None
    source, state = found.warnings
    assert "`source.folder: ..`" in source and "`../state.db`" in state
    for name in ("state.db", "source-shop"):
        (world.root / "p" / name).write_text("")
    assert not load_pipeline("p/shop.yaml").warnings
    os.chdir("p")
    assert load_pipeline("shop.yaml").source.folder is None


@pytest.mark.parametrize(
    "source",
    [
        {"use": "airbyte:python3 tools/shop.py --fast"},
        {"use": "airbyte:python3 shop.py"},
        {"use": "singer:tools/shop.py -x"},
        {"use": "airbyte:source-file", "config": {"provider": [{"url": "tools/shop.py"}]}},
        {"use": "airbyte:source-file", "config": {"url": "shop.py"}},
        {"use": "airbyte:source-file", "config": {"url": "tools/*.py"}},
        {"use": "airbyte:source-file", "config": {"url": "*.py"}},
        {"use": "airbyte:source-file", "config": {"input": "tools"}},
        {"use": "singer:tap-sql", "config": {"url": "sqlite:///shop.py"}},
        {"use": "airbyte:python3 -m shop --fast"},
        {"use": "airbyte:/opt/tap --script=shop.py"},
        {"use": "airbyte:sh -c 'cat shop.py'"},
    ],
)
def test_a_command_and_a_configuration_of_before_run_where_their_files_are(
    world: World, source: dict[str, Any]
) -> None:
    """Paths without ``./`` worked from the folder of the start: such a file goes on."""
    world.file("p", source=source)
    assert load_pipeline("p/shop.yaml").source.folder == str(world.root / "p")
    (world.root / "tools").mkdir()
    for name in ("shop.py", "tools/shop.py"):
        (world.root / name).write_text("")
    found = load_pipeline("p/shop.yaml")
    assert found.source.folder is None
    assert len(found.warnings) == 1 and "`source.folder: ..`" in found.warnings[0]
    (world.root / "p" / "tools").mkdir()
    for name in ("shop.py", "tools/shop.py"):
        (world.root / "p" / name).write_text("")
    found = load_pipeline("p/shop.yaml")
    assert found.source.folder == str(world.root / "p") and not found.warnings


@pytest.mark.parametrize("config", [{"schema": "public"}, {"table": "shop"}, {"sql": "SELECT 1"}])
def test_a_text_that_is_a_folders_name_by_chance_moves_nothing(
    world: World, config: dict[str, Any]
) -> None:
    world.file("p", str(world.root / "lake"), source={"use": "airbyte:source-x", "config": config})
    for name in ("public", "shop"):
        (world.root / name).mkdir()
    found = load_pipeline("p/shop.yaml")
    assert found.source.folder == str(world.root / "p") and not found.warnings
    assert found.place is not None and not found.place.relative


def test_a_file_beside_the_pipeline_decides_where_the_connector_runs(world: World) -> None:
    """One text of another meaning does not take a new file's connector elsewhere."""
    world.file("p", source={"use": "airbyte:source-x", "config": {"a": "./data.csv", "b": "x.txt"}})
    (world.root / "x.txt").write_text("")
    (world.root / "p" / "data.csv").write_text("")
    found = load_pipeline("p/shop.yaml")
    assert found.source.folder == str(world.root / "p") and not found.warnings


@pytest.mark.parametrize("text", ["./rows.csv", "rows.csv", "*.csv", "sub/rows.csv"])
def test_a_path_in_a_configuration_alone_has_a_place(world: World, text: str) -> None:
    """Two files with the same absolute lake read other rows: they are not one pipeline."""
    for folder in ("a", "b"):
        for name in ("rows.csv", "sub/rows.csv"):
            (world.root / folder / name).parent.mkdir(parents=True, exist_ok=True)
            (world.root / folder / name).write_text("")
    source = {"use": "singer:tap-csv", "config": {"files": [{"path": text}]}}
    lake = str(world.root / "lake")
    world.run(load_pipeline(world.file("a", lake, source=source)))
    with pytest.raises(ConfigError) as told:
        world.run(load_pipeline(world.file("b", lake, source=source)))
    assert told.value.code == "config.other_place"
    world.run(load_pipeline(world.file("a", lake, source=source)))


def test_the_kernel_goes_up_from_where_a_link_leads(world: World) -> None:
    file = world.file("releases/1", "../lake")
    link = world.root / "app" / "current"
    link.parent.mkdir()
    link.symlink_to(file.parent)
    found = load_pipeline(link / "shop.yaml")
    lake = str(world.root / "releases" / "lake")
    assert found.destination.config["path"] == lake
    assert found.place is not None and found.place.folder == str(link)
    os.chdir(link)
    again = load_pipeline("shop.yaml").place
    assert again is not None and again.lake == lake


def test_files_of_before_below_a_link_are_named_by_a_line_that_leads_there(world: World) -> None:
    world.file("releases/1")
    (world.root / "current").symlink_to("releases/1")
    world.file("releases/1", source={"use": "airbyte:./tap"})
    (world.root / "tap").write_text("")
    (warning,) = load_pipeline("current/shop.yaml").warnings
    assert f"`source.folder: {world.root}`" in warning  # `..` would be releases


def test_the_folders_of_a_container_start_at_the_file(world: World) -> None:
    fs = {"fs": {"allowed_preopens": ["./data:ro", "/etc"]}}
    source = {"use": "airbyte:docker:x/y:1", "permissions": fs}
    world.file("p", str(world.root / "lake"), source=source)
    found = load_pipeline("p/shop.yaml")
    assert found.source.permissions is not None
    here = (f"{world.root}/p/data:ro", "/etc")
    assert found.source.permissions.configured() == {"fs.allowed_preopens": here}
    assert found.place is not None and found.place.relative
    (world.root / "data").mkdir()
    found = load_pipeline("p/shop.yaml")
    assert found.source.permissions is not None
    before = found.source.permissions.configured()["fs.allowed_preopens"]
    assert before[0] == f"{world.root}/data:ro" and "`../data`" in found.warnings[0]


def test_a_connector_that_moves_is_noted_once(world: World) -> None:
    """Files that it finds in its folder by itself stand nowhere."""
    destination = {"use": "singer:target-x", "config": {}}
    world.file("p", source={"use": "singer:tap-x"}, destination=destination)
    pipeline = load_pipeline("p/shop.yaml")
    lease = world.lease()
    world.store.new_epoch(lease, 0)
    world.store.release(lease)
    settled = settle_place(pipeline, world.store, world.home)
    (note,) = settled.notes
    assert "`source.folder: ..` and `destination.folder: ..`" in note
    lease = world.lease()
    store_place(settled, world.store, lease, [])
    world.store.release(lease)
    assert settle_place(pipeline, world.store, world.home).notes == ()


@pytest.mark.parametrize(
    ("source", "config"),
    [
        ("singer:tap-csv", '{"files": "./rows.csv"}'),
        ("singer:tap-csv", '{"files": "rows.csv"}'),
        ("spark:SELECT * FROM csv.`./rows.csv`", None),
        ("spark:SELECT * FROM csv.`rows.csv`", None),
        ("airbyte:tap --file rows.csv", None),
        ("airbyte:tap --file=./rows.csv", None),
    ],
)
def test_a_name_that_lacks_a_relative_path_is_not_gone_on_with_elsewhere(
    world: World, monkeypatch: pytest.MonkeyPatch, source: str, config: str | None
) -> None:
    """The name of a command line has the paths of connectors and tables, and no others."""
    lake = f"parquet:{world.root / 'lake'}"
    for folder in ("a", "b"):
        (world.root / folder).mkdir()
        (world.root / folder / "rows.csv").write_text("")
    monkeypatch.chdir(world.root / "a")
    first = pipeline_from_arguments(source, lake, config=config)
    world.run(first)
    monkeypatch.chdir(world.root / "b")
    second = pipeline_from_arguments(source, lake, config=config)
    assert second.pipeline == first.pipeline
    with pytest.raises(ConfigError) as told:
        world.run(second)
    assert told.value.code == "config.other_place"
    assert "give it another `--name`" in str(told.value.hint)
    monkeypatch.chdir(world.root / "a")
    world.run(first)

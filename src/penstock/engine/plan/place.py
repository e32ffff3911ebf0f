"""Decides whether a pipeline may use the saved state of its name from this place, and in which of
two folders its tables lie.

A state belongs to the place at which the pipeline's relative paths start
(``store.remembered.StoredPlace``). Another pipeline of the same name elsewhere would continue from
this state, and lose the rows before it. The tables themselves show whose they are
(``lost_tables``); they are read only where the place or the folder is not the stored one. Not here:
where relative paths start (``config.place``). Neighbours: ``engine.run`` and ``engine.inspect``
call.
"""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from penstock.config.home import Home
from penstock.config.pipeline import Pipeline
from penstock.config.place import Place, same_folder, written_from
from penstock.engine.channel.named_pipeline import run_command, state_command
from penstock.engine.plan.lost_tables import Lake
from penstock.engine.specs.plan import PlannedStream
from penstock.errors import ConfigError
from penstock.store.contract import Lease, Store
from penstock.store.remembered import Remembered, StoredPlace


class SettledPlace(NamedTuple):
    """A pipeline whose place is proved. ``pipeline``: with the folder in which its tables lie;
    ``kept``: its file means another folder. ``notes``: for the report."""

    pipeline: Pipeline
    kept: bool = False
    notes: tuple[str, ...] = ()


def settle_place(pipeline: Pipeline, store: Store, home: Home) -> SettledPlace:
    """Proves that the pipeline may use its saved state from its place, and finds the folder of its
    tables. Raises ``ConfigError``: ``config.other_place``; ``config.other_folder`` where its tables
    lie in a folder that the file no longer means, and writing to it from here is not allowed."""
    place = pipeline.place
    if place is None:
        return SettledPlace(pipeline)
    refuse_other_place(pipeline, store, home)
    known = store.remembered(pipeline.pipeline, ()).place
    notes = () if known is not None else _note_of_connectors(pipeline, place, store)
    old = _old_folder(pipeline, place, known, store)
    if old is None:
        return SettledPlace(pipeline, notes=notes)
    if pipeline.id is not None or (known is not None and not known.kept):
        raise _other_folder(pipeline, place, old)
    config = {**pipeline.destination.config, "path": old}
    note = (
        f"destination.config.path {place.written} means {place.lake} now, as paths of a pipeline "
        f"file start at the file; the tables of {pipeline.pipeline!r} lie in {old} and stay there. "
        f"Write `path: {old}` in {pipeline.origin}"
    )
    return SettledPlace(
        replace(
            pipeline,
            destination=replace(pipeline.destination, config=config),
            place=replace(place, lake=old),
        ),
        kept=True,
        notes=(*notes, note),
    )


def store_place(
    settled: SettledPlace, store: Store, lease: Lease, planned: Sequence[PlannedStream]
) -> None:
    """Stores the pipeline's place, if its tables have the ledger's last numbers and it has relative
    paths, an id or local tables, or its connectors run in another folder than before."""
    pipeline, place = settled.pipeline, settled.pipeline.place
    if place is None or not (place.relative or place.lake or place.moved or pipeline.id):
        return
    now = StoredPlace(
        folder=place.folder,
        id=pipeline.id,
        lake=place.lake,
        written=place.written,
        kept=settled.kept,
    )
    known = store.remembered(lease.pipeline, ()).place
    if known is not None and _says_as_much(known, now):
        return
    expected = store.expected_loads(lease.pipeline)
    if expected and place.lake is not None:
        of_run = {s.id: expected[s.id] for s in planned if s.id in expected}
        if not Lake(pipeline, place.lake, store).has_all(of_run):
            return
    store.remember(lease, Remembered(place=now))


def move_place(here: Place, id: str | None, store: Store, lease: Lease) -> None:
    """Stores that the pipeline's place is now ``here``, under ``id`` where it has one. The folder
    of its tables stays stored, and is compared as before."""
    known = store.remembered(lease.pipeline, ()).place or StoredPlace(folder=here.folder)
    moved = replace(known, folder=here.folder, id=id, kept=False)
    store.remember(lease, Remembered(place=moved))


def refuse_other_place(pipeline: Pipeline, store: Store, home: Home) -> None:
    """Raises ``ConfigError`` (``config.other_place``) where the saved state of the pipeline's name
    belongs to another place. Refuses nothing where no path is relative, or where no run has stored
    a place."""
    known = other_place(pipeline, store)
    if known is not None and pipeline.place is not None:
        raise _other_place(pipeline, pipeline.place, known, home)


def other_place(pipeline: Pipeline, store: Store) -> StoredPlace | None:
    """Returns the place to which the saved state of the pipeline's name belongs, if that is another
    one."""
    place = pipeline.place
    if place is None or not place.relative:
        return None
    known = store.remembered(pipeline.pipeline, ()).place
    return None if known is None or _is_same(pipeline, place, known, store) else known


def _is_same(pipeline: Pipeline, place: Place, known: StoredPlace, store: Store) -> bool:
    if not (store.last_epoch(pipeline.pipeline) or store.states(pipeline.pipeline)):
        return True  # nothing has run yet
    if pipeline.id is not None and known.id is not None:
        return pipeline.id == known.id
    if same_folder(known.folder, place.folder):
        return True
    if known.id is not None:
        return False
    if pipeline.id is not None:  # new in the file: the tables prove that it is this pipeline
        expected = store.expected_loads(pipeline.pipeline)
        return place.lake is not None and Lake(pipeline, place.lake, store).has_all(expected)
    if place.lake is None or known.lake is None or place.reads:
        return False
    return same_folder(place.lake, known.lake)


def _says_as_much(known: StoredPlace, now: StoredPlace) -> bool:
    """Whether there is nothing to store: a checkout that moves under an id, or that is reached by
    several links, would add a row with each run."""
    by_id = known.id is not None and known.id == now.id
    folder = by_id or (known.id == now.id and same_folder(known.folder, now.folder))
    lakes = (known.lake, now.lake)
    lake = lakes[0] == lakes[1] or (None not in lakes and same_folder(*map(str, lakes)))
    return folder and lake and (known.written, known.kept) == (now.written, now.kept)


def _old_folder(
    pipeline: Pipeline, place: Place, known: StoredPlace | None, store: Store
) -> str | None:
    """Returns the folder that has the pipeline's tables, where the same path now means another
    folder without any of them. None: the current folder applies."""
    if place.lake is None or (known is not None and known.lake == place.lake):
        return None
    old = place.before if known is None else known.lake
    if old is None or (known is not None and known.written != place.written):
        return None
    expected = store.expected_loads(pipeline.pipeline)
    if not expected or Lake(pipeline, place.lake, store).has_any(expected):
        return None
    return old if Lake(pipeline, old, store).has_any(expected) else None


def _other_place(pipeline: Pipeline, place: Place, known: StoredPlace, home: Home) -> ConfigError:
    name = pipeline.pipeline
    had = f"the id {known.id!r}" if known.id is not None else known.folder
    has = f"the id {pipeline.id!r}" if pipeline.id is not None else place.folder
    other = run_command(pipeline, home, "--name", f"{name}-2")
    rename = "give it another `--name`" if other is None else f"`{other}`"
    adopt = state_command("adopt", pipeline, home, "--place", by_file=True)
    moved = f"in {place.folder}: `{adopt}`" if place.project else f"`{adopt}`"
    by_plan = ""
    if place.from_file and pipeline.id is None:
        line = f"id: {known.id or name}"
        by_plan = (
            f". If it moves by plan (CI, a container): write "
            f"`{f'penstock: {{ {line} }}' if place.project else line}` in the file"
            f"{'' if known.id else ', then give that command once'}"
        )
    return ConfigError(
        f"the state of the pipeline {name!r} is that of {had}, and the relative paths of this one "
        f"start at {has}: it would go on where the other stopped",
        code="config.other_place",
        where=pipeline.origin,
        hint=f"nothing was read and nothing was changed. If this is another pipeline: {rename}. If "
        f"it was moved here: {moved}{by_plan}",
    )


def _other_folder(pipeline: Pipeline, place: Place, old: str) -> ConfigError:
    return ConfigError(
        f"the tables of {pipeline.pipeline!r} lie in {old}, and destination.config.path "
        f"{place.written} means {place.lake} here",
        code="config.other_folder",
        where=pipeline.origin,
        hint=f"nothing was read and nothing was changed. Write `path: {old}` in the file to go on "
        "with those tables; give a copy that is made for a test another name",
    )


def _note_of_connectors(pipeline: Pipeline, place: Place, store: Store) -> tuple[str, ...]:
    """Notes which connectors of an earlier pipeline now run in another folder: files that they find
    there by themselves appear in no configuration."""
    if place.ran is None or not store.last_epoch(pipeline.pipeline):
        return ()
    folder = written_from(place.ran, place.folder)
    lines = " and ".join(f"`{key}.folder: {folder}`" for key in place.moved)
    one = len(place.moved) == 1
    return (
        f"the connector{'' if one else 's'} of {' and '.join(place.moved)} run{'s' * one} in the "
        f"pipeline file's folder now, {place.folder}; earlier versions ran "
        f"{'it' if one else 'them'} where Penstock was started: {lines} keep{'s' * one} that, if "
        "it looks for files there",
    )

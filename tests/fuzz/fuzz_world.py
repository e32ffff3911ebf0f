"""Runs of a pipeline in memory: what outlives them, and one run from its options to its report.

Real: the command line's options, ``engine.run`` and all that it calls (planning, refusals, states,
epochs, the sync, deliveries, the report), the lane's reading (``engine.worker.lane``), the
protocols and the sealer. Twins: store, log, table, mailbox, the connector's process, and, but for
the fuzz of values, the decoding of rows. One thread but for a load's own. Neighbours:
``fuzz_sources`` plays the connectors, ``fuzz_model`` says what must come of it.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import msgspec
from fuzz_destinations import FuzzDestination, FuzzFeeder, Target

from memory_tables import MemoryTables
from penstock.config.command_line import pipeline_from_arguments
from penstock.config.home import Home
from penstock.config.pipeline import Pipeline, StreamOptions
from penstock.connectors.launch import Launch
from penstock.connectors.reference import parse_ref
from penstock.connectors.source import SourceConnector
from penstock.engine.channel.mailbox import Activity, Progress
from penstock.engine.deliver import table_loader
from penstock.engine.deliver.part_checks import CheckInDriver
from penstock.engine.deliver.unacked import SentMarks
from penstock.engine.inspect import states
from penstock.engine.inspect.pipelines import OpenPipeline
from penstock.engine.log.kept_rejects import RejectsKeeper
from penstock.engine.log.memory import MemoryLog
from penstock.engine.plan.destination import TableDestination
from penstock.engine.plan.feeder_jobs import FeederJobs
from penstock.engine.plan.source_endpoint import SourceEndpoint
from penstock.engine.reporting import accounting as report
from penstock.engine.run import run, wiring
from penstock.engine.run import spark as run_spark
from penstock.engine.specs.lane import LaneBounds, LaneJob, LaneQuestion, LaneResult, StreamAnswer
from penstock.engine.specs.observer import NullObserver
from penstock.engine.specs.plan import ContinuedStream, LaneStart
from penstock.engine.worker import lane as child
from penstock.engine.worker import process
from penstock.engine.worker.row_decoding import StreamDecoders
from penstock.errors import PenstockError
from penstock.model.catalog import ConnectorSpec
from penstock.model.report import Report
from penstock.model.segments import PartRef
from penstock.model.types import SEQ, SEQ_EPOCH_SHIFT
from penstock.protocols import load as load_protocol
from penstock.protocols.stdio import connect
from penstock.runtimes.memory import MemoryRuntime, Step
from penstock.store.contract import Holder
from penstock.store.memory import MemoryStore

Play = Callable[[list[str | bytes]], Iterator[Step]]
NOWHERE = Path("/nonexistent/penstock-fuzz")
NAME = "fuzz"


class FuzzLog(MemoryLog):
    """The log of a home, with what ``engine`` asks of one in files."""

    def __init__(self) -> None:
        super().__init__()
        self.root = NOWHERE
        self.layouts: dict[str, Any] = {}  # of parts in their table's shape

    def write_part(
        self, epoch: int, name: str, rows: Any, raw_bytes: int, layout: Any = None
    ) -> PartRef:
        made = super().write_part(epoch, name, rows, raw_bytes, layout)
        if layout is None:
            return made
        self.layouts[made.path] = layout
        return msgspec.structs.replace(made, first=rows.column(SEQ)[0].as_py())

    def belong_to(self, state_id: str) -> None:
        del state_id

    def id(self) -> str:
        return NAME

    def rejects_folder(self, epoch: int) -> Path:
        return NOWHERE / str(epoch)


@dataclass
class HomeTwin:
    """Store and log: what a copy of a home holds."""

    store: MemoryStore = field(default_factory=MemoryStore)
    log: FuzzLog = field(default_factory=FuzzLog)

    def copied(self) -> "HomeTwin":
        twin = HomeTwin()
        twin.store._all = deepcopy(self.store._all)  # pyright: ignore[reportPrivateUsage]
        for name in ("claims", "parts", "rejects", "manifests", "runs_of_sources"):
            setattr(twin.log, name, deepcopy(getattr(self.log, name)))
        return twin


@dataclass
class World:
    """``target``: the destination is a connector; None: tables. ``bounds``: of every lane.
    ``decodes``: rows are decoded by the codec, into Arrow tables. ``deletes``: as in the
    pipeline."""

    home: HomeTwin = field(default_factory=HomeTwin)

    target: Target | None = None
    bounds: LaneBounds = field(default_factory=LaneBounds)
    decodes: bool = False
    deletes: str = "hard"

    def __post_init__(self) -> None:
        self.tables: Any = MemoryTables(lambda path: self.home.log.parts[path])


@dataclass
class Outcome:
    """``refused``: raised before the first record. ``rows``: per table, (id, place) of each."""

    report: Report | None = None
    refused: PenstockError | None = None

    @property
    def code(self) -> int:
        if self.refused is not None:
            return self.refused.exit_code
        assert self.report is not None
        return self.report.exit_code

    @property
    def good(self) -> bool:
        return self.report is not None and self.report.exit_code == 0

    def told(self) -> str:
        if self.refused is not None:
            return f"refused {self.refused.code}: {self.refused.message} {self.refused.problems}"
        assert self.report is not None
        return f"{self.report.status} {self.report.error} {self.report.notes}"


class FuzzConnector(SourceConnector):
    """A source that is asked for no spec and whose configuration fits."""

    def __init__(self, use: str, protocol: str, log: Any) -> None:
        package = load_protocol(protocol)
        super().__init__(parse_ref(use), package, Launch(protocol=protocol), log=log)
        self._spec = ConnectorSpec(protocol=protocol, config_schema={}, abilities={})

    def validate(self, config: dict[str, Any]) -> list[Any]:
        del config
        return []


class _Decoded:
    def __init__(self, rows: list[dict[str, Any]], rejects: list[tuple[int, str, None]]) -> None:
        self.rows, self.rejects, self.missing = rows, rejects, None
        self.count = len(rows)


class FuzzStreams:
    """``engine.worker.row_decoding.StreamDecoders`` without types: a row is its record. A key of
    nothing but nulls is a reject, as in the codec."""

    undeclared = ()

    def __init__(self, job: LaneJob) -> None:
        self._job, self.jobs, self.seconds = job, {s.id: s for s in job.streams}, 0.0

    def learn(self, stream: Any) -> None:
        self.jobs[stream.id] = stream

    def decode(
        self, stream: Any, bodies: Sequence[Any], first: int, times: Any, changes: Any
    ) -> _Decoded:
        del times, changes
        columns = {f.source: f.name for f in self.jobs[stream].schema.fields}
        rows: list[dict[str, Any]] = []
        rejects: list[tuple[int, str, None]] = []
        base = (self._job.epoch << SEQ_EPOCH_SHIFT) + first
        for index, body in enumerate(bodies):
            record = json.loads(bytes(body))
            if not isinstance(record, dict) or any(
                record.get(path[0]) is None for path in self.jobs[stream].key
            ):
                rejects.append((index, "no row", None))
                continue
            row = {columns[n]: v for n, v in record.items() if n in columns}
            rows.append({**row, SEQ: base + index})
        return _Decoded(rows, rejects)

    def notes(self) -> list[str]:
        return []


class FuzzMailbox:
    """Of one run. A lane's question is answered while it is asked."""

    folder = log_root = NOWHERE
    run, key = "fuzz", b""

    def __init__(self, session: "_Session") -> None:
        self._session, self._answers = session, dict[tuple[int, int], bytes]()

    def lease_watch(self, clock: Any) -> Any:
        del clock
        return SimpleNamespace(expired=lambda: False)

    def put_ask(self, epoch: int, ask: LaneQuestion) -> None:
        self._answers[epoch, ask.number] = self._session.answer(epoch, ask)

    def answer(self, epoch: int, number: int) -> bytes | None:
        return self._answers.get((epoch, number))

    def lease(self) -> bytes:
        return b"held"

    def cancelled(self) -> bool:
        return False

    def progress(self, epoch: int) -> Progress:
        del epoch
        return Progress()

    def put_activity(self, activity: Activity) -> None:
        """Nobody looks at a run that is over at once."""

    def log_path(self, epoch: int) -> Path:
        return NOWHERE / f"log-{epoch}"

    states_path = log_path

    def configs(self, epoch: int | None = None) -> list[Any]:
        del epoch
        return []

    def _nothing(self, *args: Any) -> None:
        del args

    create = remove = cancel = beat = put_progress = put_config = _nothing


class FuzzPulse:
    """A clock that costs nothing to wait on."""

    def __init__(self, *args: Any) -> None:
        self._now = 0.0

    def __enter__(self) -> "FuzzPulse":
        return self

    def __exit__(self, *args: Any) -> None:
        return None

    def beat(self, mailbox: Any) -> None:
        del mailbox

    def check(self) -> None:
        return None

    def now(self) -> float:
        self._now += 0.01
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds


class _Silent:
    """A log that nobody reads."""

    path, lost = NOWHERE, 0

    def __init__(self, *args: Any) -> None:
        del args

    def _nothing(self, *args: Any) -> None:
        del args

    log = stderr = take = flush = close = follow = poll = write = _nothing


class _Ahead:
    """Events one by one, without a thread."""

    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events

    def __iter__(self) -> Iterator[Any]:
        return self._events

    def close(self) -> None:
        close = getattr(self._events, "close", None)
        if close is not None:
            close()


class FuzzLanes:
    """``engine.sync.ports.LaneRunner``: a lane runs to its end when it is first looked at."""

    def __init__(self, session: "_Session", make_job: Any, make_stream: Any) -> None:
        self._session, self._make_job, self.make_stream = session, make_job, make_stream

    def start(self, start: LaneStart) -> Any:
        self._session.starts[start.epoch] = (start, self)
        job = msgspec.structs.replace(self._make_job(start), bounds=self._session.world.bounds)
        result: list[LaneResult] = []

        def poll() -> LaneResult:
            if not result:
                result.append(self._session.lane(job))
            return result[0]

        return SimpleNamespace(poll=poll, ask=lambda: None, cancel=lambda: None)


class _AtOnce:
    """``engine.deliver.delivery.RunningCommits`` without a thread."""

    def __init__(self, name: str, work: Callable[[], Any]) -> None:
        del name
        self._results = work()

    def poll(self) -> Any:
        return self._results


HOLDER = Holder(name="fuzz", pid=0, boot="", started_at="", run="fuzz")


class _FuzzRunParts(wiring.RunParts):
    session: "_Session"

    def sync(self, *given: Any, **more: Any) -> Any:
        made = super().sync(*given, **more)
        self.session.sync = made
        return made

    def _check(self, spark: Any) -> Any:
        del spark
        return CheckInDriver(self._session.log)

    def _feeder(self, submit: Any, destination: Any) -> Any:
        del submit
        world, prepared = self.session.world, self._prepared
        jobs = FeederJobs(prepared, destination, self._session.store, self._mailbox)
        assert world.target is not None
        name = prepared.source.package.name
        return FuzzFeeder(world.target, world.home.log.parts, name, jobs.streams)


class _Session:
    """One run: the patches under which ``engine.run`` works in memory."""

    def __init__(self, world: World, play: Play) -> None:
        self.world, self._play = world, play
        self.starts: dict[int, tuple[LaneStart, FuzzLanes]] = {}
        self.sync: Any = None

    def lane(self, job: LaneJob) -> LaneResult:
        orphaned = SimpleNamespace(is_set=lambda: False)
        return child.Lane(job, orphaned=orphaned).run()  # type: ignore[arg-type]

    def answer(self, epoch: int, ask: LaneQuestion) -> bytes:
        start, lanes = self.starts[epoch]
        answer = self.sync._answer(ask, start)
        told = StreamAnswer()
        if isinstance(answer, PenstockError):
            told.error = answer.as_dict()
        elif isinstance(answer, ContinuedStream):
            told.stream = lanes.make_stream(answer, start.lane)
        return msgspec.json.encode(told)

    def source(self, pipeline: Pipeline, home: Any, store: Any, observer: Any, *, save: Any) -> Any:
        del home
        use = pipeline.source.use
        protocol = use.partition(":")[0]
        return SourceEndpoint(
            pipeline,
            lambda log: FuzzConnector(use, protocol, log),
            store,
            observer,
            save=save,
        )

    def patches(self) -> list[Any]:
        world = self.world
        made = type("RunParts", (_FuzzRunParts,), {"session": self})
        lanes = lambda submit, mailbox, job, stream, save: FuzzLanes(self, job, stream)  # noqa: E731
        mailbox = FuzzMailbox(self)
        place = TableDestination(world.tables) if world.target is None else FuzzDestination()
        here: list[tuple[Any, Mapping[str, Any]]] = [
            (
                run,
                {
                    "FileLog": lambda folder: world.home.log,
                    "Mailbox": lambda root, name, key: mailbox,
                    "LeaseHeartbeat": FuzzPulse,
                    "RunLog": _Silent,
                    "RunParts": made,
                    "RejectsKeeper": lambda root, _folder, note, _keys, **_: RejectsKeeper(
                        root, None, note
                    ),
                    "source_of": self.source,
                    "destination_of": lambda *a, **k: place,
                    "jvm_peak": lambda: 0,
                    "announce_driver": lambda: None,
                    "this_holder": lambda *a: HOLDER,
                },
            ),
            (
                wiring,
                {
                    "on_spark": lambda *a: None,
                    "Lanes": lanes,
                    "SentMarks": lambda path: SentMarks(),
                },
            ),
            (table_loader, {"InThread": _AtOnce}),
            (report, {"peak_bytes": lambda: 0}),
            (
                child,
                {
                    "FileLog": lambda folder: world.home.log,
                    "Mailbox": lambda root, name, key: mailbox,
                    "StreamDecoders": StreamDecoders if world.decodes else FuzzStreams,
                    "ReadAhead": _Ahead,
                    "Warming": lambda: SimpleNamespace(check=lambda: None, finish=lambda: None),
                    "storage": lambda root, doing: nullcontext(),
                },
            ),
            (
                process,
                {
                    "Mailbox": lambda root, name: mailbox,
                    "EventLog": _Silent,
                    "peak_bytes": lambda: 0,
                },
            ),
            (connect, {"ProcessRuntime": SimpleNamespace(of=lambda *a: MemoryRuntime(self._play))}),
        ]
        return [mock.patch.multiple(module, **values) for module, values in here] + [
            mock.patch.object(run_spark.RunSpark, "start_early", lambda *a: None),
            mock.patch.object(run_spark.RunSpark, "open", lambda *a: object()),
            mock.patch.object(run.Run, "write_report", lambda *a: None),
        ]


class FuzzHome(Home):
    """No folder is ever made."""

    def __init__(self) -> None:
        self.path = NOWHERE

    def run(self, run: str) -> Path:
        return NOWHERE / run

    def log(self, pipeline: str, settings: Any) -> str:
        del pipeline, settings
        return str(NOWHERE)


def pipeline(use: str, into: str, options: Mapping[str, str | None]) -> Pipeline:
    """As ``penstock run USE INTO`` makes it."""
    return pipeline_from_arguments(use, into, name=NAME, **options)


def run_once(
    world: World,
    use: str,
    options: Mapping[str, str | None],
    play: Play,
    *,
    full_refresh: bool,
    recreate: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> Outcome:
    """One run to its report, or to what it was refused with. ``settings``: of every stream, which
    no option gives."""
    session = _Session(world, play)
    with ExitStack() as stack:
        for patch in session.patches():
            stack.enter_context(patch)
        try:
            into = f"parquet:{NOWHERE}" if world.target is None else "airbyte:./destination"
            told = pipeline(use, into, options)
            into = msgspec.structs.replace(told.destination, deletes=world.deletes)
            source = told.source
            defaults = msgspec.structs.replace(source.defaults, **(settings or {}))
            source = msgspec.structs.replace(source, defaults=defaults)
            told = msgspec.structs.replace(told, destination=into, source=source)
            one = run.Run(
                told,
                FuzzHome(),
                world.home.store,
                NullObserver(),
                dry=False,
                limit=None,
                run_id=NAME,
            )
            with ExitStack() as inner:
                return Outcome(
                    report=one.execute(inner, full_refresh=full_refresh, recreate=recreate)
                )
        except PenstockError as e:
            return Outcome(refused=e)


def reset(world: World, stream: str | None) -> PenstockError | None:
    """``penstock state reset``; what it was refused with."""
    known = _known(world)
    try:
        states.reset(known, None if stream is None else StreamOptions(name=stream))
    except PenstockError as e:
        return e
    return None


def exported(world: World) -> Any:
    """``penstock state export``; None where there is none, or no pipeline."""
    return None if world.home.store.source_of(NAME) is None else states.export(_known(world))


def imported(world: World, state: Any) -> None:
    """``penstock state import --force``, which need not find the pipeline."""
    if world.home.store.source_of(NAME) is not None:
        states.replace(_known(world), state, force=True)


def adopted(world: World) -> None:
    """``penstock state adopt``."""
    if world.home.store.source_of(NAME) is not None:
        states.adopt(_known(world))


def _known(world: World) -> OpenPipeline:
    had = world.home.store.source_of(NAME)
    protocol = None if had is None else had.protocol
    return OpenPipeline(NAME, world.home.store, Home(), NAME, protocol=protocol)


def rows(world: World) -> dict[str, list[tuple[int, int]]]:
    """(id, place) of every row, by table."""
    if world.target is not None:
        return world.target.rows
    return {
        table.name: [(r["id"], r["place"]) for r in found]
        for table, found in world.tables.rows.items()
    }

"""Which rows a table must hold after each run, whatever the connector's habits; and random cases.

The rules are the user's, not the planner's (docs/guarantees.md):

* ``lost``: after a run that succeeded, every row that the source holds is in its table, in its
  newest version.
* ``stale``: an overwritten table holds nothing else; a deduplicated one has one row per key.
* ``doubled``: a source whose cursor leaves nothing to be sent twice doubles nothing, unless the
  report says at-least-once or the user asked for everything again.
* ``emptied``: a run that did not succeed takes no row away that the source still holds.
* ``stuck``: a source that works, asked for nothing odd, is never refused and never fails.

Neighbours: ``fuzz_sources`` (habits), ``fuzz_world`` (one run), ``planner_fuzz`` (the command).
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from fuzz_destinations import ECHOES, FORMS, Manner, Target
from fuzz_sources import (
    AIRBYTE_STATES,
    BOOKMARKS,
    EMITTED,
    SINGER_STATES,
    STATUSES,
    Fault,
    Habits,
    Rows,
    bad,
    script,
)
from fuzz_world import (
    HomeTwin,
    Outcome,
    World,
    adopted,
    exported,
    imported,
    reset,
    rows,
    run_once,
)

from penstock.engine.specs.lane import LaneBounds

NAMES = ("orders", "users")
MODES = (None, None, None, "append", "overwrite", "append_dedup")


@dataclass
class Move:
    """One step of a case: ``run``, ``reset``, ``copy`` (the home is copied), ``restore`` (the copy
    is put back), ``export`` and ``import`` of the state, ``drop`` of the tables, ``adopt`` of them.
    ``changes``: of the source before it."""

    kind: str = "run"
    changes: int = 0
    gone: int = 0
    fault: Fault = field(default_factory=Fault)
    full_refresh: bool = False
    streams: tuple[str, ...] = ()
    stream: str | None = None
    other: bool = False
    bad: bool = False
    dies: int | None = None
    options: dict[str, str] | None = None  # from here on
    drift: dict[str, Any] = field(default_factory=dict[str, Any])  # of the source's habits, as well
    recreate: bool = False


@dataclass
class Case:
    """``manner``: of the destination, where that is a connector. ``seals``: at every state."""

    seed: int
    habits: Habits
    options: dict[str, str]
    moves: list[Move]
    names: tuple[str, ...]
    manner: Manner | None = None
    seals: bool = False


class Wrong(AssertionError):
    """``rule``: which of the rules above; ``case``: of what."""

    def __init__(self, rule: str, told: str, case: Case, at: int) -> None:
        super().__init__(f"{rule} at move {at}: {told}\n{case}")
        self.rule, self.case, self.at = rule, case, at


def case_of(seed: int) -> Case:
    """Every choice is a chance; most cases have few odd ones."""
    chance = Random(seed)

    def odd(share: float) -> bool:
        return chance.random() < share

    protocol = chance.choice(["airbyte", "singer"])
    habits = Habits(
        protocol=protocol,
        state=chance.choice(AIRBYTE_STATES if protocol == "airbyte" else SINGER_STATES),
        status=chance.choice(STATUSES),
        emitted=chance.choice(EMITTED) if odd(0.4) else "int",
        inclusive=odd(0.3),
        honours=not odd(0.3),
        names_mode=not odd(0.4),
        names_cursor=not odd(0.4),
        names_key=not odd(0.3),
        full_only=odd(0.15),
        resumable=protocol == "airbyte" and odd(0.15),
        every=chance.choice([1, 2, 3, 100]),
        last_state=not odd(0.15),
        ids=odd(0.3),
        says_first=odd(0.1),
    )
    if odd(0.15):
        habits.some_bad = chance.choice(["null_key", "list"])
    habits.interleaves = odd(0.2)
    habits.keeps = not odd(0.2)
    habits.by_log = habits.state == "GLOBAL" and odd(0.5)
    if protocol == "singer":
        habits.versions = habits.state in BOOKMARKS and odd(0.25)
        habits.discovers = not odd(0.1)
    habits.ignores = odd(0.15)
    options: dict[str, str] = {}
    pushed = odd(0.2)
    manner = Manner(chance.choice(ECHOES), chance.choice(FORMS)) if pushed else None
    mode = chance.choice(MODES)
    if mode is not None and not pushed:
        options["destination_sync_mode"] = mode
    if odd(0.2) and not pushed:
        options["sync_mode"] = chance.choice(["full_refresh", "incremental"])
    if odd(0.15):
        options["max_rejected"] = chance.choice(["0", "1", "50%", "100%"])
    names = NAMES[: chance.choice([1, 2, 2])]
    moves: list[Move] = []
    for number in range(chance.choice([2, 3, 3, 4])):
        if number and odd(0.12):
            moves.append(Move("reset", stream=chance.choice([None, *names])))
        if number and odd(0.12):
            moves.append(Move("copy"))
        if number and odd(0.1):
            moves.append(Move(chance.choice(["export", "import"])))
        if number and not pushed and odd(0.05):
            moves.append(Move("drop"))
        move = Move(
            changes=chance.choice([0, 1, 3, 5]) if number else chance.choice([0, 2, 5, 7]),
            gone=chance.choice([0, 0, 0, 1]) if number else 0,
            full_refresh=number > 0 and odd(0.12),
            # some read every stream, wanted or not, and their state says so
            streams=(chance.choice(names),)
            if odd(0.4 if habits.ignores or not habits.discovers else 0.12)
            else (),
            other=number > 0 and odd(0.05),
            bad=odd(0.06),
        )
        if odd(0.12):
            move.fault = Fault(chance.choice([0, 1, 2, 4]), chance.choice([1, 2, 137]))
        if protocol == "airbyte" and odd(0.12):
            kind = chance.choice(["transient", "stream"])
            move.fault = Fault(chance.choice([0, 1, 2, 4]), 1, kind, chance.choice([1, 1, 2, None]))
        if number and odd(0.1):
            drifts = ["names_key", "names_cursor", "names_mode", "full_only", "every", "ids"]
            name = chance.choice(drifts)
            move.drift = {name: 2 if name == "every" else not getattr(habits, name)}
        if number and not pushed and odd(0.1):
            said = chance.choice([None, "append", "overwrite", "append_dedup"])
            move.options = {} if said is None else {"destination_sync_mode": said}
            if odd(0.3):
                move.options["sync_mode"] = chance.choice(["full_refresh", "incremental"])
        if number and not pushed and odd(0.04):
            move.recreate = True
        if pushed and odd(0.2):
            move.dies = chance.choice([0, 1, 2, 4])
        moves.append(move)
        if any(m.kind == "copy" for m in moves) and odd(0.5):
            moves.append(Move("restore"))
            if odd(0.3):
                moves.append(Move("adopt"))
    return Case(seed, habits, options, moves, names, manner, seals=odd(0.5))


def play(case: Case) -> None:
    """Raises :class:`Wrong`."""
    _Play(case).run()


class _Play:
    def __init__(self, case: Case) -> None:
        self.case = case
        target = None if case.manner is None else Target(case.manner)
        bounds = LaneBounds(seal_bytes=1, part_bytes=40) if case.seals else LaneBounds()
        self.world = World(target=target, bounds=bounds)
        self.chance = Random(case.seed + 1)
        self.sources = {other: self._tables(1000 if other else 0) for other in (False, True)}
        self.copy: HomeTwin | None = None
        self.told_again = False  # the user asked for rows a second time
        self.at_least_once = False
        self.restored = False
        self.used: bool | None = None  # which of the two sources the table is of
        self.rejected: set[tuple[int, int]] = set()
        self.habits, self.options = replace(case.habits), dict(case.options)
        self.changed = False  # the modes that the user says, or what the source says of itself
        self.exported: Any = None
        self.forgiven = False  # the user took tables that lack rows
        self.dropped = False
        self.adopting = False  # since the last load: by the user, or by a reset
        self.goes_on = False  # the last run did not end well
        self.of_copy = False  # as it was when the home was copied
        self.of_fewer = False  # a run of some of the streams wrote the state
        self.anew = False  # tables were made anew, or dropped, since the state was exported

    def _tables(self, first: int) -> dict[str, Rows]:
        return {name: Rows(first=first) for name in self.case.names}

    def run(self) -> None:
        for at, move in enumerate(self.case.moves):
            match move.kind:
                case "copy":
                    self.copy = self.world.home.copied()
                    self.of_copy = self.goes_on
                case "restore":
                    if self.copy is not None:
                        self.world.home, self.copy = self.copy, self.copy.copied()
                        self.restored = True
                        self.goes_on = self.of_copy
                case "reset":
                    if reset(self.world, self._called(move.stream)) is None:
                        self.told_again = self.adopting = True
                case "export":
                    self.exported = exported(self.world)
                    self.anew = False
                case "import":
                    if self.exported is not None and not any(m.other for m in self.case.moves):
                        imported(self.world, self.exported)
                        self.told_again = True
                        self.forgiven |= self.anew  # the state tells of rows that are gone
                case "drop":
                    self.world.tables.rows.clear()
                    self.world.tables.applied.clear()
                    self.dropped = True
                    self.forgiven |= self.adopting  # taken as it is: gone
                case "adopt":
                    self.forgiven |= self.dropped
                    adopted(self.world)
                    self.adopting = True
                    self.told_again = True
                case _:
                    self._run(at, move)

    def _called(self, name: str | None) -> str | None:
        habits = self.case.habits
        if name is None or habits.protocol != "singer" or not habits.discovers:
            return name
        from fuzz_sources import tap_id

        return tap_id(name, self.case.habits)

    def _run(self, at: int, move: Move) -> None:
        case, world = self.case, self.world
        tables = self.sources[move.other]
        for table in tables.values():
            for _ in range(move.changes):
                self._change(table)
            for _ in range(min(move.gone, max(len(table.now) - 1, 0))):
                table.now.pop(self.chance.choice(sorted(table.now)))
        if move.drift or move.options is not None:
            self.habits = replace(self.habits, **move.drift)
            self.options = self.options if move.options is None else dict(move.options)
            self.changed = True
        habits = self.habits
        if move.bad:
            habits = _bad(habits)
        options: dict[str, Any] = dict(self.options)
        if move.streams:
            options["streams"] = ",".join(self._called(s) or s for s in move.streams)
        use = f"{habits.protocol}:./{'other' if move.other else 'shop'}"
        if self.world.target is not None and case.manner is not None:
            self.world.target.manner = Manner(case.manner.echo, case.manner.form, move.dies)
        before = {n: set(found) for n, found in self._rows().items()}
        fault = replace(move.fault)
        outcome = run_once(
            world,
            use,
            options,
            lambda arguments: script(habits, tables, fault, arguments),
            full_refresh=move.full_refresh or move.recreate,
            recreate=move.recreate,
        )
        if move.full_refresh or move.recreate:
            self.told_again = True
        self.anew |= move.recreate
        self.told_again |= bool(move.streams) and not habits.keeps  # it forgets the others
        notes = [] if outcome.report is None else outcome.report.notes
        self.of_fewer |= bool(move.streams) and outcome.report is not None
        self.told_again |= any("read from the start" in n for n in notes)  # now, or next time
        self.at_least_once |= any("rows that no state covers were loaded" in n for n in notes)
        self._judge(at, move, habits, outcome, before)
        self.at_least_once |= outcome.report is not None and outcome.code != 0
        self.goes_on = not outcome.good
        if outcome.good:
            self.used = move.other
            self.adopting &= move.bad or bool(move.streams)  # until a load of each
        elif move.other and outcome.report is not None:
            self.used = True  # it failed, and may have begun to fill the table, or saved a state

    def _change(self, table: Rows) -> None:
        if table.now and self.chance.random() < 0.3:
            table.change(self.chance.choice(sorted(table.now)))
        else:
            table.change(max(table.now, default=table.first) + 1)

    def _rows(self) -> dict[str, list[tuple[int, int]]]:
        """By the stream's name: a table may be called by a tap's identity of it."""
        return {
            name.removeprefix("shop-").removeprefix("shop_"): found
            for name, found in rows(self.world).items()
        }

    # -- the rules

    def _judge(
        self,
        at: int,
        move: Move,
        habits: Habits,
        outcome: Outcome,
        before: dict[str, set[tuple[int, int]]],
    ) -> None:
        def wrong(rule: str, told: str) -> Wrong:
            return Wrong(rule, f"{told}; {outcome.told()}", self.case, at)

        if outcome.code == 70:
            raise wrong("defect", "a fault of ours")
        found = self._rows()
        wanted = move.streams or self.case.names
        tables = self.sources[move.other]
        lenient = self.options.get("max_rejected") == "100%"
        for name in wanted:
            here = found.get(name, [])
            now = {r for r in tables[name].now.items() if not (habits.some_bad and bad(r[0]))}
            here = [r for r in here if r[0] is not None]
            if outcome.good and not move.bad:
                missing = now - set(here) - self.rejected
                # a table that is gone is noticed by the next load of it
                asleep = self.dropped and not self._written(outcome, name)
                if missing and not self.forgiven and not asleep:
                    raise wrong("lost", f"{name} lacks {sorted(missing)}")
                self._shape(name, here, now, wrong)
            elif move.bad and (
                outcome.good or lenient or habits.resumable or self._went_on(outcome, name)
            ):
                # beside rows of an earlier run, or of a later one, not every record was rejected;
                # what fills a generation has its rejects, whatever the table held before it
                fills = habits.resumable or habits.versions or move.full_refresh or move.recreate
                self.rejected |= now if fills else now - set(here)
        if not outcome.good or move.bad:
            for name, had in before.items():
                if lenient and (move.bad or habits.some_bad):
                    continue  # as was asked
                if outcome.good and name in wanted and not tables[name].now:
                    continue  # the source holds nothing of it
                if outcome.good and move.bad and habits.resumable:
                    continue  # the refresh began with good records, in a run that did not end
                sources = [tables] if outcome.report else list(self.sources.values())
                still = had & {r for source in sources for r in source[name].now.items()}
                gone = still - set(found.get(name, []))
                newer = {i for i, _ in found.get(name, [])}
                gone = {r for r in gone if r[0] not in newer or not outcome.report}
                if gone:
                    raise wrong("emptied", f"{name} had {sorted(gone)}")
        if self._plain(move) and not outcome.good and not self._mixed(outcome):
            raise wrong("stuck", "nothing odd was asked")
        if move.bad and outcome.good and any(tables[n].now for n in wanted):
            report = outcome.report
            assert report is not None
            read = sum(s.read for s in report.streams)
            rejected = sum(s.rejected for s in report.streams)
            if read and rejected == read and not lenient:
                raise wrong("bad", f"all {read} records were rejected, and the run succeeded")

    def _written(self, outcome: Outcome, name: str) -> int:
        assert outcome.report is not None
        called = self._called(name)
        return sum(s.written for s in outcome.report.streams if s.name == called)

    def _went_on(self, outcome: Outcome, name: str) -> bool:
        """The run failed, but not for this stream's rejects: they went with rows that were taken,
        as those of an earlier run are."""
        called = self._called(name)
        streams = [] if outcome.report is None else outcome.report.streams
        return any(
            s.name == called and s.status != "failed" and s.rejected and s.committed
            for s in streams
        )

    def _shape(
        self, name: str, here: list[tuple[int, int]], now: set[tuple[int, int]], wrong: Any
    ) -> None:
        mode = self.options.get("destination_sync_mode")
        counted, habits = Counter(here), self.habits
        if habits.resumable and habits.inclusive:
            counted = Counter(set(here))  # what the source sends twice in one refresh
        # a refresh that went on over several runs has rows as they were when they were read
        whole = not (habits.resumable and self.goes_on)
        if mode == "overwrite" and whole and counted != Counter(now):
            raise wrong("stale", f"{name} holds {sorted(here)}, the source {sorted(now)}")
        if self.changed:
            return
        if mode == "append_dedup" and max(Counter(i for i, _ in here).values(), default=0) > 1:
            raise wrong("stale", f"{name} has a key twice: {sorted(here)}")
        if self.case.manner is not None:
            return
        if mode in (None, "append_dedup") and self._by_key():
            twice = [i for i, n in Counter(i for i, _ in here).items() if n > 1]
            if twice:
                raise wrong("stale", f"{name} has the keys {twice} twice: {sorted(here)}")
        again = self.told_again or self.at_least_once or self.restored
        if mode == "append" and self._exact() and not again:
            twice = [r for r, n in counted.items() if n > 1]
            if twice:
                raise wrong("doubled", f"{name} has {twice} twice")

    def _by_key(self) -> bool:
        """The source names a key and a way to read on, and nobody said another mode: rows are
        brought up to date by it."""
        habits = self.case.habits
        return (
            habits.names_key
            and not habits.full_only
            and "sync_mode" not in self.case.options
            and (habits.names_mode or habits.protocol == "airbyte")
            and habits.names_cursor
        )

    def _exact(self) -> bool:
        habits = self.case.habits
        return (
            not habits.inclusive
            and habits.last_state
            and habits.honours
            and habits.names_cursor
            and habits.names_mode
            and not habits.full_only
            and "sync_mode" not in self.case.options
        )

    def _mixed(self, outcome: Outcome) -> bool:
        """The saved state was written by a run of fewer streams, and cannot be taken apart: a
        stream that this run did not read is refused."""
        return (
            self.of_fewer
            and self.habits.state in ("LEGACY", "bare_legacy", "opaque")
            and outcome.refused is not None
            and outcome.refused.code == "config.mixed_state"
        )

    def _plain(self, move: Move) -> bool:
        """Nothing that may be refused: the source works, and the user chose nothing of its own."""
        habits = self.habits
        return (
            not self.case.options
            and not self.changed
            and not (habits.some_bad or self.dropped or move.recreate)
            and (self.case.manner is None or not self.case.habits.full_only)
            and not move.streams
            and not move.other
            and not self.used
            and not self.restored
            and not move.bad
            and move.fault.after is None
            and move.dies is None
            and self.case.habits.names_cursor
            and (self.case.habits.names_mode or self.case.habits.protocol == "airbyte")
        )


def _bad(habits: Habits) -> Habits:
    """The same connector, of which every record is none."""
    return Habits(**{**vars(habits), "all_bad": True})

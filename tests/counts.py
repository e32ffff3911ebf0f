"""Counts what pytest collects and how it ends, prints ``collected = passed + skipped``, and fails
the run where that does not hold: a test failed, was expected to fail, was never played, or was
deselected though no person asked for it (``-k``, ``-m``, ``--deselect``, ``--lf``).

``--whole`` (``./test`` without arguments): also what is asked for may deselect nothing, and each
file of tests is collected. ``--quick`` leaves out the tests with a mark of ``QUICK_WITHOUT`` and
says how many. With xdist the process that shares the tests out counts; the others tell it what they
left out. Each failure is printed when it happens, so that a run which is ended early has told it;
the reason of each skip is printed by pytest (``-ra``).
"""

from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

QUICK_WITHOUT = {
    "spark": "start Java",
    "network": "install from a registry",
    "slow": "take more than a minute",
    "dear": "take seconds of a processor",
}
_PASSED, _SKIPPED, _XFAILED, _FAILED = _ENDS = ("passed", "skipped", "expected to fail", "failed")
_ASKED = ("keyword", "markexpr", "deselect", "lf", "stepwise")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("penstock")
    group.addoption("--whole", action="store_true", help="fail where any test is left out")
    group.addoption(
        "--quick", action="store_true", help=f"no tests marked {', '.join(QUICK_WITHOUT)}"
    )


def pytest_configure(config: pytest.Config) -> None:
    if not config.option.collectonly:
        config.pluginmanager.register(Counts(config), "penstock-counts")


class Counts:
    """Of one run of pytest, in each of its processes."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._collected: set[str] = set()
        self._ended: dict[str, str] = {}
        self._deselected: set[str] = set()
        self._left_out: Counter[str] = Counter()  # by --quick; by the first mark that says so
        self._uncollected: set[str] = set()  # files
        self._files: Counter[str] = Counter()  # that could not be imported, or were skipped whole

    # -- collecting

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self._config.option.quick:
            why = [next((m for m in QUICK_WITHOUT if i.get_closest_marker(m)), "") for i in items]
            self._left_out.update(filter(None, why))
            items[:] = [item for item, mark in zip(items, why, strict=True) if not mark]

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self._deselected |= {item.nodeid for item in items}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._collected |= {item.nodeid for item in session.items}
        if self._config.option.whole:
            files = {item.path for item in session.items}
            for folder in self._config.getini("testpaths"):
                there = Path(self._config.rootpath, folder).rglob("test_*.py")
                self._uncollected |= {
                    str(path.relative_to(self._config.rootpath)) for path in {*there} - files
                }

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.outcome != "passed":
            self._files[report.outcome] += 1

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._collected |= {*ids}

    # -- playing

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        end: str = _XFAILED if hasattr(report, "wasxfail") else report.outcome
        if report.when == "call" or end != _PASSED:
            before = self._ended.get(report.nodeid, _PASSED)
            self._ended[report.nodeid] = max(end, before, key=_ENDS.index)
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if end == _FAILED and terminal is not None and not hasattr(self._config, "workeroutput"):
            why = str(getattr(report.longrepr, "reprcrash", None) or report.longrepr)
            terminal.write_line(f"\nfailed {report.nodeid}: {(why.splitlines() or [''])[0]}")

    # -- what came of it

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        told = getattr(node, "workeroutput", {}).get("penstock-counts")
        if told is not None:
            self._deselected |= {*told["deselected"]}
            self._uncollected |= {*told["uncollected"]}
            self._left_out |= Counter(told["left_out"])

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput["penstock-counts"] = {
                "deselected": [*self._deselected],
                "uncollected": [*self._uncollected],
                "left_out": {**self._left_out},
            }
        elif exitstatus == pytest.ExitCode.OK and self._sums()[1]:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(wrapper=True, tryfirst=True)  # after pytest's list of skips and failures
    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter
    ) -> Generator[None, None, None]:
        yield
        line, wrong = self._sums()
        for what in wrong:
            terminalreporter.write_line(f"wrong: {what}", red=True)
        terminalreporter.write_line(line, bold=True)

    def _sums(self) -> tuple[str, list[str]]:
        """``collected = ...``, and why a run without a failure fails all the same."""
        ends = Counter(self._ended.values()) + self._files
        unplayed = len(self._collected - self._ended.keys())
        left, deselected = self._left_out.total(), len(self._deselected)
        others = {end: ends[end] for end in (_XFAILED, _FAILED)}
        others |= {"not played": unplayed, "deselected": deselected}
        parts = [f"passed {ends[_PASSED]}", f"skipped {ends[_SKIPPED]}"]
        parts += [f"{what} {n}" for what, n in others.items() if n]
        if left:
            why = ", ".join(f"{n} {QUICK_WITHOUT[m]}" for m, n in self._left_out.items())
            parts.append(f"left out {left} ({why})")
        total = len(self._collected | self._ended.keys()) + self._files.total() + left + deselected
        option = self._config.option
        if not option.whole and any(getattr(option, name, None) for name in _ASKED):
            others.pop("deselected")
        wrong = [f"{n} {what}" for what, n in others.items() if n]
        wrong += [f"{path}: no test of it was collected" for path in sorted(self._uncollected)]
        return f"collected {total} = {' + '.join(parts)}", wrong

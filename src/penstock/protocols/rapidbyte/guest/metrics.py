"""Aggregates the metrics that a connector reports in one run: one series per name and labels, in
bounded space.

Source: the protocol, section 4.2, and v4's metric document.
"""

import msgspec

from penstock.protocols.rapidbyte.wire.messages import MetricPayload

MOST_SERIES = 10_000
LONGEST = 1024  # characters of a name with its labels


class Metric(msgspec.Struct, kw_only=True):
    """One series. ``type``: counter, gauge or histogram; ``total``: the sum of the reported values.
    A counter may report increments or a running total, so ``last`` is kept too."""

    name: str
    labels: tuple[tuple[str, str], ...]
    type: str
    count: int = 0
    total: float = 0
    last: float = 0
    least: float = 0
    most: float = 0


class Metrics:
    """Collects the series of a run. ``dropped``: reports of series beyond the bounds."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, tuple[tuple[str, str], ...]], Metric] = {}
        self.dropped = 0

    def add(self, payload: MetricPayload) -> None:
        key = (payload.name, tuple(payload.labels))
        if len(payload.name) + sum(len(k) + len(v) for k, v in key[1]) > LONGEST:
            self.dropped += 1
            return
        metric = self._series.get(key)
        value = payload.value.value
        if metric is None:
            if len(self._series) >= MOST_SERIES:
                self.dropped += 1
                return
            metric = Metric(
                name=payload.name, labels=key[1], type=payload.value.type, least=value, most=value
            )
            self._series[key] = metric
        metric.count += 1
        metric.total += value
        metric.last = value
        metric.least = min(metric.least, value)
        metric.most = max(metric.most, value)

    def all(self) -> list[Metric]:
        return list(self._series.values())

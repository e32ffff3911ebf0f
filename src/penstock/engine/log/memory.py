"""Implements the log in memory, for simulations that stop a sync at every step.

A part holds whatever the simulation's decoder returns (anything with a length). Neighbour:
``engine.log.log`` (the contract).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from penstock.errors import LogError
from penstock.model.segments import PartLayout, PartRef, Segment


def _nothing(step: str) -> None:
    del step


class MemoryLog:
    """Implements :class:`engine.log.log.Log`. ``on_step`` is called before and after each durable
    write and may raise: steps before the exception are kept, steps after it never happen."""

    def __init__(self, on_step: Callable[[str], None] = _nothing) -> None:
        self.on_step = on_step
        self.claims: dict[int, str] = {}
        self.parts: dict[str, Any] = {}
        self.rejects: dict[str, bytes] = {}
        self.manifests: list[tuple[Segment, ...]] = []
        self.runs_of_sources: dict[int, int] = {}
        self.marks: dict[int, str] = {}

    def claim(self, epoch: int, owner: str) -> None:
        if epoch in self.claims:
            raise LogError(f"epoch {epoch} has run already", code="log.claimed")
        self.on_step("log.claim.before")
        self.claims[epoch] = owner
        self.runs_of_sources[epoch] = self.runs_of_sources.get(epoch, 0) + 1
        self.on_step("log.claim.after")

    def write_part(
        self,
        epoch: int,
        name: str,
        rows: Any,
        raw_bytes: int,
        layout: PartLayout | None = None,
    ) -> PartRef:
        path = f"{epoch}/{name}"
        self.parts[path] = rows
        self.on_step("log.part.after")
        shape = None if layout is None else layout.shape
        return PartRef(path, len(rows), raw_bytes, 0, 0, shape)

    def write_rejects(self, epoch: int, name: str, lines: bytes) -> str:
        path = f"{epoch}/{name}.rejects"
        self.rejects[path] = lines
        return path

    def seal(self, epoch: int, segments: Sequence[Segment]) -> None:
        self.on_step("log.seal.before")
        self.manifests.append(tuple(segments))
        self.on_step("log.seal.after")

    def segments(self) -> list[Segment]:
        return sorted((s for m in self.manifests for s in m), key=lambda s: s.id)

    def epochs(self) -> list[int]:
        return sorted(self.claims)

    def absolute(self, part: PartRef) -> str:
        return part.path

    def verify(self, parts: Sequence[PartRef]) -> None:
        for part in parts:
            if part.path not in self.parts:
                raise LogError(f"the log's part {part.path} is missing", code="log.corrupt")

    def discard(self, segments: Sequence[Segment]) -> None:
        gone = {s.id for s in segments}
        if not gone:
            return
        self.on_step("log.discard.before")
        self.manifests = [m for m in self.manifests if not all(s.id in gone for s in m)]
        for segment in segments:
            for part in (p for s in segment.slices for p in s.parts):
                self.parts.pop(part.path, None)
        self.on_step("log.discard.after")

    def drop_epochs(self, epochs: Sequence[int]) -> None:
        self.on_step("log.drop.before")
        for epoch in epochs:
            self.claims.pop(epoch, None)
        self.on_step("log.drop.after")

    def mark_unconfirmed(self, epoch: int, given: str) -> None:
        self.on_step("log.mark.before")
        self.marks[epoch] = given
        self.on_step("log.mark.after")

    def unconfirmed(self) -> dict[int, str]:
        return dict(self.marks)

    def unmark(self, epochs: Iterable[int]) -> None:
        for epoch in epochs:
            self.on_step("log.unmark.before")
            self.marks.pop(epoch, None)
            self.on_step("log.unmark.after")

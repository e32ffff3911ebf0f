"""``penstock.byte_queue``: bounded in bytes, nothing lost, nobody left waiting (L11)."""

import random
import threading
import time
from collections.abc import Callable

import pytest

from penstock.byte_queue import END, ByteQueue, QueueAbandoned, QueueEnd, TooLong, WriterFailed


def later(action: Callable[[], object]) -> None:
    threading.Timer(0.05, action).start()


def test_a_writer_is_held_back_by_bytes_and_one_large_item_passes_alone() -> None:
    queue: ByteQueue[bytes] = ByteQueue(10)
    queue.put(b"huge", 100, 1)
    assert not queue.has_room(0) and not queue.offer(b"x", 1)
    with pytest.raises(TooLong):
        queue.put(b"x", 1, 0.05)
    assert queue.get(1) == b"huge"
    assert queue.offer(b"x", 4) and queue.offer(b"y", 6) and not queue.offer(b"z", 1)
    assert queue.put_waited >= 0.05


def test_items_without_bytes_are_bounded_by_their_number() -> None:
    queue: ByteQueue[int] = ByteQueue(10, max_items=2)
    assert [queue.offer(n, 0) for n in range(3)] == [True, True, False]


def test_waiting_ends_when_the_other_side_is_gone() -> None:
    queue: ByteQueue[bytes] = ByteQueue(10)
    queue.put(b"x", 10)
    later(queue.abandon)
    began = time.monotonic()
    with pytest.raises(QueueAbandoned):
        queue.put(b"y", 10)
    assert time.monotonic() - began < 4
    with pytest.raises(QueueAbandoned):
        queue.put(b"z", 0, 60)
    with pytest.raises(QueueAbandoned):
        queue.offer(b"z", 0)
    empty: ByteQueue[bytes] = ByteQueue(10)
    later(empty.end)
    assert empty.get() is END and empty.poll() is None


@pytest.mark.parametrize("ended", [False, True])
def test_what_was_given_up_in_the_middle_has_no_end(ended: bool) -> None:
    queue: ByteQueue[bytes] = ByteQueue(10)
    queue.put(b"x", 1, 1)
    if ended:
        queue.end()
    queue.abandon(KeyError("why"))
    with pytest.raises(WriterFailed, match="why"):
        queue.get(1)
    whole: ByteQueue[bytes] = ByteQueue(10)
    whole.end()
    whole.abandon()
    assert whole.get(1) is END


def test_what_was_written_before_a_failure_is_read_first() -> None:
    queue: ByteQueue[bytes] = ByteQueue(10)
    queue.put(b"x", 1, 1)
    queue.fail(KeyError("first"))
    queue.fail(KeyError("second"))
    assert queue.get(1) == b"x"
    for _ in range(2):
        with pytest.raises(WriterFailed, match="first"):
            queue.get(1)
    with pytest.raises(KeyError, match="first"):
        list(queue.items())


def test_an_end_stays_an_end() -> None:
    queue: ByteQueue[bytes] = ByteQueue(10)
    queue.end()
    queue.fail(KeyError("too late"))
    assert queue.get(1) is END and queue.get(1) is END and list(queue.items()) == []


def test_a_change_of_a_queue_that_shares_the_condition_ends_a_wait() -> None:
    answers: ByteQueue[int] = ByteQueue(10)
    tables: ByteQueue[int] = ByteQueue(10, changed=answers.changed)
    tables.put(1, 10)
    later(tables.poll)
    began = time.monotonic()
    answers.wait(60, lambda: tables.has_room(10))
    answers.wait(60, lambda: tables.has_room(10))  # the change came before the wait
    assert time.monotonic() - began < 4
    answers.wait(0.01)
    later(lambda: answers.put(1, 1))
    answers.wait(60)
    assert time.monotonic() - began < 4


def test_no_wake_up_is_lost_and_no_item() -> None:
    """Writers and readers race on a queue that is nearly always full or empty; a wake-up that is
    lost would cost a look-around of 5 s."""
    queue: ByteQueue[int] = ByteQueue(3)
    read: list[list[int]] = [[] for _ in range(3)]
    seed = random.Random(1)
    sizes = [[seed.randrange(5) for _ in range(4000)] for _ in range(3)]

    def write(writer: int) -> None:
        for n, size in enumerate(sizes[writer]):
            queue.put(writer * 10_000 + n, size)

    def take(reader: int) -> None:
        while not isinstance(item := queue.get(), QueueEnd):
            read[reader].append(item)

    writers = [threading.Thread(target=write, args=(n,), daemon=True) for n in range(3)]
    readers = [threading.Thread(target=take, args=(n,), daemon=True) for n in range(3)]
    for thread in (*writers, *readers):
        thread.start()
    for thread in writers:
        thread.join(30)
    queue.end()
    for thread in readers:
        thread.join(30)
    assert sorted(n for each in read for n in each) == [
        w * 10_000 + n for w in range(3) for n in range(4000)
    ]
    for each in read:  # of one writer, in its order
        for writer in range(3):
            own = [n for n in each if n // 10_000 == writer]
            assert own == sorted(own)

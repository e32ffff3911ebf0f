"""``penstock.process_start``: when the process of a command began."""

import subprocess
import sys
import time

from penstock import process_start


def test_the_first_run_of_a_process_begins_with_it_and_no_later_one() -> None:
    code = (
        "import time; time.sleep(0.3); from penstock import process_start as p; p.note(); "
        "print(time.monotonic() - p.take(), p.take())"
    )
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    age, later = done.stdout.split()
    assert 0.3 <= float(age) <= time.monotonic() - began + 0.02
    assert later == "None"


def test_a_process_that_is_no_command_has_no_start() -> None:
    assert process_start.take() is None

"""Too few file descriptors are named, by a real limit."""

import resource
import subprocess
import sys

from penstock.spark.error_text import start_failure
from penstock.spark.open_files import LEAST_FILES

OPENS = """
import pathlib, resource, sys
from penstock.errors import ConfigError
from penstock.spark.session import open_session
from penstock.tables.contract import SessionNeeds
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[1])))
try:
    open_session(SessionNeeds(), scratch_dir=pathlib.Path("."), lanes=1)
except ConfigError as error:
    sys.exit(f"{error.code}: {error.message}")
"""


def test_a_limit_under_which_java_does_not_start_is_named_before_it_starts() -> None:
    for few in (64, 128, 256):
        ended = subprocess.run(
            [sys.executable, "-c", OPENS, str(few)], stderr=subprocess.PIPE, text=True, timeout=60
        )
        assert ended.returncode == 1
        assert (
            f"config.open_files: too few file descriptors: this process may have {few} files"
            in (ended.stderr)
        )


def test_java_that_ran_out_of_them_is_named_too() -> None:
    words = "java.io.FileNotFoundException: conf (Too many open files)"
    error = start_failure(words, "spark.log")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert (error.code, error.exit_code) == ("config.open_files", 2)
    assert str(hard) in error.message and str(LEAST_FILES) in error.message

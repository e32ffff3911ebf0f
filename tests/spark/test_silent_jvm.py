"""A JVM that does not answer, which other runs have so that it cannot be killed (L11)."""

import socket
import time

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext

from penstock.spark.gateway import Address
from penstock.spark.jvm import connect


@pytest.mark.spark
def test_a_call_into_a_jvm_that_does_not_answer_ends_L11(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(SparkContext, "_jvm", None)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        with pytest.raises(Py4JNetworkError):
            connect(Address(silent.getsockname()[1], "s3cret"), 0.3)
    assert time.monotonic() - began < 10

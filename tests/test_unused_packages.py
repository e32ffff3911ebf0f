import json
import subprocess
import sys

LEFT_OUT = """
import importlib.util, json, sys
from importlib.metadata import version
from penstock.unused_packages import leave_out, let_in
leave_out("pandas", "numpy", "google.rpc", "json")
import duckdb, pyarrow
from pyspark.testing.utils import have_googleapis_common_protos, have_numpy, have_pandas
rows = duckdb.connect().execute("SELECT ? AS a, [1, 2] AS b", [7]).to_arrow_table()
said = [have_numpy or have_googleapis_common_protos, have_pandas]
said += [rows.to_pylist(), pyarrow.array([1, None]).null_count]
said.append(importlib.util.find_spec("numpy") is None and version("numpy")[0] in "123")
try:
    import pandas
    said.append("imported")
except ModuleNotFoundError as e:
    said.append(str(e))
let_in("pandas", "numpy", "google.rpc", "json", "never_heard_of")
import google.rpc, pandas
print(json.dumps([*said, pandas.__name__]))
"""


def test_a_package_that_is_left_out_is_not_found_until_it_is_let_in() -> None:
    done = subprocess.run([sys.executable, "-c", LEFT_OUT], capture_output=True, text=True)
    not_found = "No module named 'pandas'"
    found = [False, False, [{"a": 7, "b": [1, 2]}], 1, True, not_found, "pandas"]
    assert json.loads(done.stdout) == found, done.stderr

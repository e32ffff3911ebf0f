import json
import subprocess
import sys

LEFT_OUT = """
import json, sys
from penstock.unused_packages import leave_out, let_in
leave_out("pandas", "json")
import duckdb, pyarrow
from pyspark.testing.utils import have_numpy, have_pandas
rows = duckdb.connect().execute("SELECT ? AS a, [1, 2] AS b", [7]).to_arrow_table()
said = [have_numpy, have_pandas, rows.to_pylist(), pyarrow.array([1, None]).null_count]
try:
    import pandas
    said.append("imported")
except ModuleNotFoundError:
    said.append("not found")
let_in("pandas", "json", "never_heard_of")
import pandas
print(json.dumps([*said, pandas.__name__]))
"""


def test_a_package_that_is_left_out_is_not_found_until_it_is_let_in() -> None:
    done = subprocess.run([sys.executable, "-c", LEFT_OUT], capture_output=True, text=True)
    found = [True, False, [{"a": 7, "b": [1, 2]}], 1, "not found", "pandas"]
    assert json.loads(done.stdout) == found, done.stderr

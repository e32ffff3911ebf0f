import json
import subprocess
import sys

LEFT_OUT = """
import json, sys
from penstock.unused_packages import leave_out, let_in
leave_out("pandas", "json")
try:
    import pandas
    said = "imported"
except ModuleNotFoundError:
    said = "not found"
let_in("pandas", "json", "never_heard_of")
import pandas
print(json.dumps([said, pandas.__name__]))
"""


def test_a_package_that_is_left_out_is_not_found_until_it_is_let_in() -> None:
    done = subprocess.run([sys.executable, "-c", LEFT_OUT], capture_output=True, text=True)
    assert json.loads(done.stdout) == ["not found", "pandas"], done.stderr

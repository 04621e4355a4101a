"""`python -m benchmarks [NAME ...]`: measure what we promise and print one JSON object for each row.

A row has the value, the promise and whether it is kept, the commit and the Python version.  Ends with 0 when
every promise is kept, with 1 when one is not, and with 2 when wrk is missing.
"""

import argparse
import json
import platform
import sys

from benchmarks import (
    cold_list,
    list_hit,
    load,
    memory,
    one_flight,
    read_hit,
    read_miss,
    redis_hit,
    redis_outage,
    redis_zipf,
)
from benchmarks.rig import Effort, commit, rig

BENCHMARKS = {
    "read_hit": read_hit.rows,
    "list_hit": list_hit.rows,
    "read_miss": read_miss.rows,
    "cold_list": cold_list.rows,
    "one_flight": one_flight.rows,
    "redis_hit": redis_hit.rows,
    "redis_outage": redis_outage.rows,
    "redis_zipf": redis_zipf.rows,
    "memory": memory.rows,
}
FULL = Effort(seconds=5, rounds=7, trials=10, reads=200_000)
QUICK = Effort(seconds=2, rounds=3, trials=3, reads=20_000)


def main() -> int:
    """Run the benchmarks named on the command line, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one or more of {', '.join(BENCHMARKS)}")
    parser.add_argument("--quick", action="store_true", help="less of everything: to see that it works")
    options = parser.parse_args()
    if unknown := set(options.names) - set(BENCHMARKS):
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}")
    if not load.available():
        print("wrk is not installed; on Debian: apt-get install wrk", file=sys.stderr)
        return 2
    about = {"commit": commit(), "python": platform.python_version(), "quick": options.quick}
    kept = True
    for name in options.names or BENCHMARKS:
        with rig(QUICK if options.quick else FULL) as started:
            for row in BENCHMARKS[name](started):
                kept = kept and row.kept
                line = {
                    "benchmark": row.name,
                    "value": row.value,
                    "unit": row.unit,
                    "threshold": row.limit,
                    "kept": row.kept,
                    **row.detail,
                    **about,
                }
                print(json.dumps(line), flush=True)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())

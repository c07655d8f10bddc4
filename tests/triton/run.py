# SPDX-License-Identifier: Apache-2.0
"""Sends the same requests to a real tritonserver and to ours. Fails on a difference that no rule explains."""
import argparse
import pathlib
import random
import signal
import sys
import tempfile
import time

import agents
import models
import parts
import rules
from clients import ask, differences
from servers import CannotRun, Pair
from traffic import Traffic


SKIPPED = 77  # the status that tools/test knows


class Report:

    def __init__(self, verbose):
        self.cases = self.failed = self.equal = self.died = self.hung = 0
        self.verbose = verbose

    def check(self, name, good):
        """What has nothing to compare it with."""
        self.cases += 1
        self.failed += not good
        if not good:
            print(f"WRONG: {name}")

    def slow(self, name):
        """Triton has not done in time what Proa has: nothing to compare."""
        self.hung += 1
        print(f"Triton was too slow: {name}")

    def judge(self, case, triton, proa):
        """Counts one case; prints it if something in it is not explained."""
        if hangs(triton) and not hangs(proa):
            self.hung += 1
            print(f"Triton gave no answer: {case.name} {case}")
            return
        self.cases += 1
        found = differences(triton, proa)
        self.equal += not found
        leaves = [rules.Leaf(case, path, a, b, (triton, proa)) for path, a, b in found]
        bad = [leaf for leaf in leaves if not rules.explain(leaf)]
        if not bad:
            return
        self.failed += 1
        print(f"DIFFERENT: {case.name}\n  {case}")
        for leaf in bad:
            print(f"  {leaf.path}\n    Triton {str(leaf.triton)[:600]!r}\n    Proa   {str(leaf.proa)[:600]!r}")


def hangs(answer):
    return str(answer.get("status")).startswith("no answer") or answer.get("status") == "DEADLINE_EXCEEDED"


def masked(answer):
    """Without what no two runs have in common: times and counts."""
    if isinstance(answer, dict):
        return {key: 0 if key in ("ns", "last_inference") or key.endswith("_time_ns") else masked(value) for key, value in answer.items()}
    return [masked(one) for one in answer] if isinstance(answer, list) else answer


def compare_traffic(options, report, library=False):
    with tempfile.TemporaryDirectory(prefix="proa-triton-") as folder:
        repository = pathlib.Path(folder) / "repository"
        models.write_all(repository, library)
        with Pair(folder, [repository], ["--cache-config=local,size=16777216"], library=library) as pair:
            traffic = Traffic(random.Random(options.seed))
            end = time.monotonic() + options.seconds
            for _ in range(options.cases):
                if time.monotonic() > end:
                    break
                case = traffic.next()
                triton, proa = (masked(ask(server, case)) for server in pair.both())
                if not pair.proa.alive():
                    print(f"Proa ended at {case}")
                    report.failed += 1
                    return
                if not pair.triton.alive():
                    print(f"Triton ended at {case}")
                    report.died += 1
                    pair.triton.start()
                    continue
                report.judge(case, triton, proa)


def compare_traffic_of_library(options, report):
    """The same, with Triton's compiled Python backend on both sides."""
    compare_traffic(options, report, library=True)


PARTS = {"traffic": compare_traffic, "traffic-library": compare_traffic_of_library, "agents": agents.compare_agents,
         **parts.PARTS}
# One answer of 1,500 still differs: over a stream of a decoupled ensemble, Triton marks the last response as the final one
# where Proa sends an empty one after it.
ASKED_FOR = ("traffic-library", )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the requests (default 1)")
    parser.add_argument("--cases", type=int, default=4000, help="requests at most (default 4000)")
    parser.add_argument("--seconds", type=float, default=600, help="for them at most (default 600)")
    parser.add_argument("--short", action="store_true", help="400 requests, in 60 seconds at most")
    parser.add_argument("--parts", default=",".join(p for p in PARTS if p not in ASKED_FOR),
                        help=f"some of {','.join(PARTS)}; without it all but {' and '.join(ASKED_FOR)}")
    parser.add_argument("--verbose", action="store_true", help="how often each rule explained something")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(SKIPPED))  # so that the servers end too
    if options.short:
        options.cases, options.seconds, options.parts = 400, 60, "traffic"
    if lost := rules.unknown_lines():
        print(f"rules whose line is not (once) in {rules.DOCUMENT}:", *lost, sep="\n  ")
        return 1
    report = Report(options.verbose)
    for name in options.parts.split(","):
        try:
            PARTS[name](options, report)
        except CannotRun as error:
            print(f"skipped: {error}")
            return SKIPPED
    for one in rules.RULES if options.verbose else []:
        print(f"{one.used:6} {one.line}")
    print(f"{report.cases} cases, {report.equal} equal, Triton ended {report.died} times and did not answer {report.hung} times")
    print(f"{report.cases - report.failed} passed, {report.failed} failed")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())

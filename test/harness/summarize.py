#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Sums up the results that test/harness/runs.sh kept: a table of runs, what failed, what was skipped, and one line in
all.

usage: summarize.py RESULTS

Every case that a test reports counts as one, and so does a test that reports none. The exit status is 1 if anything
failed, or if nothing ran.
"""
import collections
import json
import os
import re
import sys

OUTCOMES = ("passed", "failed", "skipped")
CASE = re.compile(r"^(not )?ok\b[ \t]*\d*(?:[ \t]*-)?[ \t]*(.*?)[ \t]*(?:# *(SKIP)\S*[ \t]*(.*))?$", re.IGNORECASE)
SKIP_ALL = re.compile(r"^1\.\.0 *# *SKIP\S* *(.*)$", re.IGNORECASE | re.MULTILINE)
RESULTS = {"OK": "passed", "EXPECTEDFAIL": "passed", "SKIP": "skipped"}  # meson's other results are failures
DIAGNOSIS_LINES = 20


def cases_of_test(test):
    """(outcome, name, remark, diagnosis) of every case in one line of meson's log. The diagnosis is what the test
    wrote in comments and to stderr; the last failed case carries it."""
    lines = test.get("stdout", "").splitlines()
    cases = []
    for case in filter(None, map(CASE.match, lines)):
        outcome = "failed" if case[1] else "skipped" if case[3] else "passed"
        cases.append((outcome, f"{test['name']}: {case[2]}", case[4] or "", []))
    result = RESULTS.get(test["result"], "failed")
    # A test without cases counts as one case. One that crashed or ran out of time did not report that as a case, so it
    # gets one more.
    if not cases or (result == "failed" and all(outcome != "failed" for outcome, *_ in cases)):
        plan = SKIP_ALL.search(test.get("stdout", ""))
        remark = plan[1] if plan else f"{test['result']}, exit status {test.get('returncode')}"
        cases.append((result, test["name"], remark, []))
    for outcome, _, _, diagnosis in reversed(cases):
        if outcome == "failed":
            comments = [line for line in lines if line.startswith("#")]
            diagnosis += comments[:DIAGNOSIS_LINES] + test.get("stderr", "").splitlines()[-DIAGNOSIS_LINES:]
            break
    return cases


def cases_of_run(outcome, remark):
    if outcome != "tests":
        return [(outcome, "", remark, [])]
    with open(remark, encoding="utf-8") as log:
        return [case for line in log for case in cases_of_test(json.loads(line))]


def print_skipped(runs):
    """Prints one line for each reason, since a machine that cannot do something skips many cases because of it."""
    reasons = collections.Counter((run, remark) for run, cases in runs
                                  for outcome, _, remark, _ in cases if outcome == "skipped")
    for (run, remark), count in reasons.items():
        print(f"skipped: {run}: {remark} ({count})")


def print_failed(runs):
    for run, cases in runs:
        for outcome, name, remark, diagnosis in cases:
            if outcome == "failed":
                print("failed: " + ": ".join(filter(None, (run, name, remark))))
                for line in diagnosis:
                    print("    " + line[:400])


def main():
    with open(sys.argv[1], encoding="utf-8") as results:
        rows = [line.rstrip("\n").split("\t") for line in results]
    runs = [(run, cases_of_run(outcome, remark)) for run, outcome, remark in rows]
    counts = {}
    for run, cases in runs:
        counts.setdefault(run, collections.Counter()).update(outcome for outcome, *_ in cases)

    width = max(map(len, counts), default=0)
    print("\n" + "run".ljust(width), *(outcome.rjust(8) for outcome in OUTCOMES))
    for run, count in counts.items():
        print(run.ljust(width), *(str(count[outcome]).rjust(8) for outcome in OUTCOMES))
    print()
    print_skipped(runs)
    print_failed(runs)
    if any(outcome == "tests" for _, outcome, _ in rows):
        print(f"What each test printed: {os.path.relpath(sys.argv[1])}.*.json")
    total = sum(counts.values(), collections.Counter())
    print(", ".join(f"{total[outcome]} {outcome}" for outcome in OUTCOMES))
    sys.exit(total["failed"] > 0 or total["passed"] == 0)


main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Whether dynnorm-bench measures every case that it lists, and summary.py shows the right figures.

usage: test_run.py PATH-OF-DYNNORM-BENCH
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "test"))
import tap  # noqa: E402 (found in the folder above)

SUMMARY = [sys.executable, str(HERE / "summary.py")]


def run(command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)


def check_fails(command, name):
    done = run(command)
    tap.check(done.returncode != 0, name, f"{command}\nexit status 0\n{done.stdout}")
    return done.stdout


def test_program(program, folder):
    results = os.path.join(folder, "measured.json")
    one_token = [program, "--benchmark_filter=/tokens:1/"]
    listed = tap.check_runs([*one_token, "--benchmark_list_tests"], "dynnorm-bench lists the cases of one token")
    printed = tap.check_runs([*one_token, "--benchmark_min_time=0.001", f"--benchmark_out={results}",
                              "--benchmark_out_format=json"], "dynnorm-bench measures them")
    if listed is None or printed is None:
        return
    with open(results, encoding="utf-8") as file:
        measured = {entry["name"]: entry for entry in json.load(file)["benchmarks"]}
    tap.check_equal(sorted(measured), sorted(listed.split()), "every listed case is measured")
    for name, entry in measured.items():
        tensors = 3 if "backward" in name or "add" in name else 2
        channels = int(name.rsplit(":", 1)[1])
        ratio = entry.get("bytes_per_second", 0) / entry.get("tokens_per_second", 1)
        tap.check(abs(ratio / (tensors * 4 * channels) - 1) < 1e-6, f"{name}: bytes and tokens per second agree",
                  f"got {ratio} bytes per token, expected {tensors * 4 * channels}")
    tap.check_runs([*SUMMARY, results, "1x4096"], "summary.py reads it")

    check_fails([program, "--benchmark_filter=no_such_case"], "a filter that selects nothing is an error")
    check_fails([program, "--no_such_option"], "an unknown option is an error")


def entry(name, index, gigabytes_per_second, run_type="iteration", aggregate_name=None):
    made = {"name": name, "run_name": name, "family_index": index, "run_type": run_type,
            "bytes_per_second": gigabytes_per_second * 1e9}
    return {**made, "aggregate_name": aggregate_name} if aggregate_name else made


def test_summary(folder):
    results = os.path.join(folder, "invented.json")

    def summarize(entries, *shapes):
        with open(results, "w", encoding="utf-8") as file:
            json.dump({"benchmarks": entries}, file)
        return [*SUMMARY, results, *shapes]

    entries = [
        entry("dyt_forward/f32/scalar/portable/tokens:32/channels:1024", 5, 1),
        entry("dyt_forward/f32/avx2/portable/tokens:64/channels:4096", 4, 26),
        entry("dyt_forward/f32/avx2/portable/tokens:32/channels:1024", 2, 3),
        entry("dyt_forward/f32/avx2/portable/tokens:32/channels:1024", 2, 100),
        entry("dyt_forward/f32/avx2/portable/tokens:32/channels:1024", 2, 31.26),
        entry("dyt_forward/f32/avx2/portable/tokens:32/channels:1024", 2, 7, "aggregate", "mean"),
        entry("dyt_forward/f32/avx2/portable/tokens:32/channels:1024", 2, 8, "aggregate", "median"),
        entry("rmsnorm_forward/f32/avx2/portable/tokens:32/channels:1024", 1, 84),
        entry("limit_copy/f32/tokens:32/channels:1024", 0, 115),
        entry("limit_add/f32/tokens:32/channels:1024", 6, 97),
        entry("rmsnorm_backward/f32/avx2/portable/tokens:32/channels:1024", 7, 39),
    ]
    tap.check_equal(tap.check_runs(summarize(entries), "a run in no order"), """\
Forward, GB/s of x read and y written, at tokens x channels:

| operation  | mode     | ISA    | 32 x 1024 | 64 x 4096 | 4096 x 4096 |
| ---------- | -------- | ------ | --------: | --------: | ----------: |
| plain copy |          |        |     115.0 |         - |           - |
| rmsnorm    | portable | avx2   |      84.0 |         - |           - |
| dyt        | portable | avx2   |      31.3 |      26.0 |           - |
| dyt        | portable | scalar |       1.0 |         - |           - |

Backward, GB/s of dy and x read and dx written, at tokens x channels:

| operation       | mode     | ISA  | 32 x 1024 | 64 x 4096 | 4096 x 4096 |
| --------------- | -------- | ---- | --------: | --------: | ----------: |
| plain z = x + y |          |      |      97.0 |         - |           - |
| rmsnorm         | portable | avx2 |      39.0 |         - |           - |

Medians of 3 repetitions.
""", "its figures are medians, in the order of the benchmarks")

    entries = [entry("limit_copy/f32/tokens:1/channels:4096", 0, 7, "aggregate", "mean"),
               entry("limit_copy/f32/tokens:1/channels:4096", 0, 8, "aggregate", "median")]
    tap.check_equal(tap.check_runs(summarize(entries, "1x4096"), "a run that reports aggregates only"), """\
Forward, GB/s of x read and y written, at tokens x channels:

| operation  | mode | ISA | 1 x 4096 |
| ---------- | ---- | --- | -------: |
| plain copy |      |     |      8.0 |

""", "its figures are its medians, at the shapes that are asked for")

    failed = {"name": "dyt_forward/f32/avx2/sleef/tokens:32/channels:1024", "family_index": 1, "run_type": "iteration",
              "run_name": "dyt_forward/f32/avx2/sleef/tokens:32/channels:1024", "error_message": "out of luck"}
    printed = check_fails(summarize([entry("limit_copy/f32/tokens:32/channels:1024", 0, 115), failed]),
                          "a failed case is an error")
    tap.check("FAILED: dyt_forward/f32/avx2/sleef/tokens:32/channels:1024: out of luck\n" in printed,
              "and is named, with the reason", printed)
    check_fails(summarize([], "1x4096"), "no figures are an error")


with tempfile.TemporaryDirectory() as temporary:
    test_program(sys.argv[1], temporary)
    test_summary(temporary)
tap.done()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Sums up what dynnorm-bench measured: Markdown tables of GB/s, a row per kernel and instruction set, a column per
shape, beside the limits of the same run.

usage: summary.py RESULTS [TOKENSxCHANNELS...]

RESULTS is what dynnorm-bench wrote with --benchmark_out=RESULTS --benchmark_out_format=json. Where it repeated its
measurements, the figures are medians. The exit status is 1 if a benchmark failed, or if there is nothing to show.
"""
import json
import re
import statistics
import sys

SHAPES = ("32x1024", "64x4096", "4096x4096")

# The limits have no instruction set and no mode.
NAME = re.compile(
    r"(?P<kernel>\w+)/f32(/(?P<isa>\w+)/(?P<mode>\w+))?/tokens:(?P<tokens>\d+)/channels:(?P<channels>\d+)")

# Heading, what the names of its kernels end in, and its limits.
TABLES = (
    ("Forward, GB/s of x read and y written", "_forward",
     {"limit_copy": "plain copy", "limit_copy_nontemporal": "non-temporal copy"}),
    ("Backward, GB/s of dy and x read and dx written", "_backward",
     {"limit_add": "plain z = x + y", "limit_add_nontemporal": "non-temporal z = x + y"}),
)


def read(results):
    """({(kernel, isa, mode): {shape: [bytes per second of each repetition]}}, [what failed]), in the order in which
    dynnorm-bench lists them: the best instruction set comes first."""
    rates, medians, failures = {}, {}, []
    # Interleaved repetitions leave them in no order.
    for entry in sorted(results["benchmarks"], key=lambda entry: entry["family_index"]):
        name = NAME.fullmatch(entry["run_name"])
        if not name:
            continue
        if "error_message" in entry:
            failures.append(f"{name[0]}: {entry['error_message']}")
        elif entry["run_type"] == "iteration" or entry["aggregate_name"] == "median":
            kinds = rates if entry["run_type"] == "iteration" else medians
            row = kinds.setdefault((name["kernel"], name["isa"], name["mode"]), {})
            row.setdefault(f"{name['tokens']}x{name['channels']}", []).append(entry["bytes_per_second"])
    # With --benchmark_report_aggregates_only the medians are all there is.
    return rates or medians, failures


def table(rates, shapes, heading, suffix, limits):
    """The lines of one table; none if it would have no figures."""
    isas = dict.fromkeys(isa for _, isa, _ in rates)
    lines = [(limits[kernel], "", "", row) for (kernel, _, _), row in rates.items() if kernel in limits]
    # The instruction sets of a kernel stand together.
    kernels = list(dict.fromkeys((kernel, mode) for kernel, _, mode in rates if kernel.endswith(suffix)))
    lines += [(kernel[:-len(suffix)], mode, isa, rates[kernel, isa, mode])
              for kernel, mode in kernels for isa in isas if (kernel, isa, mode) in rates]
    lines = [line for line in lines if any(shape in line[-1] for shape in shapes)]
    if not lines:
        return []
    cells = [("operation", "mode", "ISA", *(shape.replace("x", " x ") for shape in shapes))]
    for *labels, row in lines:
        figures = (f"{statistics.median(row[shape]) / 1e9:.1f}" if shape in row else "-" for shape in shapes)
        cells.append((*labels, *figures))
    widths = [max(map(len, column)) for column in zip(*cells)]

    def line(texts):
        padded = (text.ljust(width) if i < 3 else text.rjust(width)
                  for i, (text, width) in enumerate(zip(texts, widths)))
        return f"| {' | '.join(padded)} |"

    rule = [("-" * width) if i < 3 else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
    return [f"{heading}, at tokens x channels:", "", line(cells[0]), line(rule), *map(line, cells[1:]), ""]


def main(path, *shapes):
    with open(path, encoding="utf-8") as file:
        rates, failures = read(json.load(file))
    shapes = shapes or SHAPES
    lines = [line for heading, suffix, limits in TABLES for line in table(rates, shapes, heading, suffix, limits)]
    found = bool(lines)
    if not found:
        lines.append(f"{path} has no figures at {', '.join(shapes)}.")
    repetitions = max((len(row[shape]) for row in rates.values() for shape in row), default=0)
    if found and repetitions > 1:
        lines.append(f"Medians of {repetitions} repetitions.")
    lines += [f"FAILED: {failure}" for failure in dict.fromkeys(failures)]
    print("\n".join(lines))
    return 0 if found and not failures else 1


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))

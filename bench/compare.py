#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Says how well two runs of bench/run agree.

usage: bench/compare.py DIR OTHER    reads DIR/results.json and OTHER/results.json

Cases are compared by the medians of their multiples of the limit, or of their times where no limit was measured. Ends
with status 1 if one case in twenty differs by more than the report calls a difference.
"""
import json
import pathlib
import statistics
import sys

import pages
import results

# What the report calls a difference, and how many of the cases may differ by more, though nothing has changed.
NOTABLE, TOLERATED = 0.05, 0.05
SHOWN = 12


def read(folder):
    """The results in a folder. Ends the program if there are none."""
    try:
        with open(pathlib.Path(folder, "results.json"), encoding="utf-8") as file:
            return results.Results(json.load(file))
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"{folder}: no results of a run: {error}")


def summarize(differences, what):
    """A sentence on how far the figures of {case: relative difference} lie apart, and the cases beyond NOTABLE, the
    farthest first."""
    ordered = sorted(differences.values())
    case, most = max(differences.items(), key=lambda item: item[1])
    beyond = sorted(((value, results.name_of(one)) for one, value in differences.items() if value > NOTABLE),
                    reverse=True)
    return (f"{what} differ by {statistics.median(ordered):.1%} in the middle of {len(ordered)} cases, by at most "
            f"{ordered[(len(ordered) * 9 - 1) // 10]:.1%} in nine of ten, and by at most {most:.0%} "
            f"({results.name_of(case)}). In {len(beyond)} they differ by more than {NOTABLE:.0%}, which is what the "
            f"report calls a difference."), beyond


def differences(found, other):
    """{case: relative difference} of the library's and the peers' cases that both runs have."""
    return {case: results.difference(found.figures(case).values(), other.figures(case).values())
            for case in found.times if case in other.times and not results.is_limit(case)}


def agree(found, other):
    compared = differences(found, other)
    return sum(value > NOTABLE for value in compared.values()) <= TOLERATED * len(compared)


def sentences(found, other, runs):
    """Lines that say how well two runs agree."""
    compared = differences(found, other)
    if not compared:
        return [f"{runs[0].upper()}{runs[1:]} have no case in common."]
    said, beyond = summarize(compared, f"The figures of {runs}")
    lines = [said, *(f"{value:.0%} {name}" for value, name in beyond[:SHOWN])]
    if len(beyond) > SHOWN:
        lines.append(f"and {len(beyond) - SHOWN} more")
    if not agree(found, other):
        lines.append("Warning: the runs do not agree. Either something has changed, or the machine was too busy.")
    return lines


def main(first, second):
    found, other = read(first), read(second)
    print("\n".join(pages.wrapped(sentences(found, other, f"{first} and {second}"))))
    return int(not agree(found, other))


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stdout if sys.argv[1:] == ["--help"] else sys.stderr)
        sys.exit(0 if sys.argv[1:] == ["--help"] else 2)
    sys.exit(main(*sys.argv[1:]))

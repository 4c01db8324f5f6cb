#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Says what became faster or slower between two runs of bench/run.

usage: bench/compare.py OLD NEW    two files results.json, or the folders that they are in

A case is compared by its multiples of the limit in the rounds, or by its times where no limit was measured. It became
faster or slower if the medians differ by more than 5% and SciPy's Mann-Whitney test finds no other explanation (p below
0.05). By chance alone, the test finds up to one case in twenty. Without SciPy the medians alone are compared.

The exit status is 1 if more than one case in twenty became faster or slower.
"""
import collections
import json
import math
import pathlib
import statistics
import sys
import textwrap

import results
from comparisons import NOTABLE

try:
    from scipy.stats import mannwhitneyu
except ImportError:
    mannwhitneyu = None

NO_SCIPY = "Not tested for chance: SciPy is missing (python3-scipy in Debian, Ubuntu)."
TOO_FEW = "Too few rounds to tell any difference from chance: --rounds 4 is the least."
SIGNIFICANT = 0.05
COLUMNS = 80

# A case in two runs: the medians of its figures, their spreads, and the probability of such a difference by chance, or
# None if it was not computed.
Change = collections.namedtuple("Change", "case old new chance")


def read(path):
    """The results in a file, or in the file results.json of a folder. Ends the program if there are none."""
    path = pathlib.Path(path)
    try:
        with open(path / "results.json" if path.is_dir() else path, encoding="utf-8") as file:
            return results.Results(json.load(file))
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = getattr(error, "strerror", None) or "bench/run has not written this"
        sys.stderr.write(f"{path}: no results of a run: {why}\n")
        sys.exit(2)


def changes(old, new):
    """[Change] of the library's and the peers' cases that both runs have."""
    found = []
    for case in new.times:
        if case in old.times and not results.is_limit(case):
            source = "over_limit" if case in old.over_limit and case in new.over_limit else "times"
            before, after = (list(getattr(run, source)[case].values()) for run in (old, new))
            chance = mannwhitneyu(before, after).pvalue if mannwhitneyu else None
            found.append(Change(case, results.Spread.of(before), results.Spread.of(after), chance))
    return found


def factor(change):
    return change.new.median / change.old.median


def can_tell(old, new):
    """Whether the test can find anything in runs with so many rounds."""
    apart = range(old.rounds), range(old.rounds, old.rounds + new.rounds)
    return mannwhitneyu is None or mannwhitneyu(*apart).pvalue < SIGNIFICANT


def is_change(change):
    notable = not 1 / NOTABLE <= factor(change) <= NOTABLE
    return notable and (change.chance is None or change.chance < SIGNIFICANT)


def count_text(found):
    """How many cases became faster and slower, or seem to have if that was not tested."""
    changed = [change for change in found if is_change(change)]
    slower = sum(factor(change) > 1 for change in changed)
    verb = "became" if mannwhitneyu else "seem"
    return f"{len(changed) - slower} of {len(found)} cases {verb} faster, {slower} slower"


def summary(old, new):
    """One line."""
    found = changes(old, new)
    if not found:
        return "they have no case in common."
    if not can_tell(old, new):
        return "too few rounds to tell what changed."
    return f"{count_text(found)}."


def agree(found):
    """Whether no more cases changed than the test may find by chance."""
    return sum(map(is_change, found)) <= SIGNIFICANT * len(found)


def line(change):
    word = "slower" if factor(change) > 1 else "faster"
    spreads = " -> ".join(f"{spread.median:.4g} +-{spread.relative / 2:.0%}" for spread in (change.old, change.new))
    case = change.case
    kind = "" if results.is_ordinary(case) else f"{results.kind(case)} "
    return f"{word} {factor(change) - 1:+5.0%}  {spreads}  {case.operation}_{case.direction} {kind}{case.isa} " \
           f"{case.mode} {case.tokens}x{case.channels}"


def text(old, new, most=None):
    """Lines on the cases that changed, those that did most first, at most so many, and how far the others differ."""
    found = changes(old, new)
    if not found:
        return "The runs have no case in common."
    changed = list(filter(is_change, found))
    rest = [max(factor(change), 1 / factor(change)) - 1 for change in found if not is_change(change)]
    changed.sort(key=lambda change: abs(math.log(factor(change))), reverse=True)
    lines = [line(change) for change in changed[:most]]
    if len(lines) < len(changed):
        lines.append(f"and {len(changed) - len(lines)} more, which bench/compare.py lists.")
    lines.append(f"{count_text(found)}.")
    lines.append("What is shown: the multiples of the limit before and after, or nanoseconds.")
    if rest:
        lines.append(f"The others differ by {statistics.median(rest):.1%} in the middle.")
    if mannwhitneyu is None:
        lines.append(NO_SCIPY)
    elif not can_tell(old, new):
        lines.append(TOO_FEW)
    return "\n".join(textwrap.fill(line, COLUMNS, subsequent_indent="        ") for line in lines)


def main(first, second):
    old, new = read(first), read(second)
    print(text(old, new))
    return int(not agree(changes(old, new)))


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stdout if sys.argv[1:] == ["--help"] else sys.stderr)
        sys.exit(0 if sys.argv[1:] == ["--help"] else 2)
    sys.exit(main(*sys.argv[1:]))

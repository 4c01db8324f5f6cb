# SPDX-License-Identifier: BSD-2-Clause
"""Runs dynnorm-probe, and shows what it measured.

It prints a JSON object in each line. Its times are in nanoseconds.
"""
import json
import subprocess

from operations import title
from tables import Table

# No data should make an operation slower than this many times; no data at all, slower than that many.
CLIFF, PRECIPICE = 3, 10
# A choice that makes something slower than this many times is marked.
NOTABLE = 1.05


def run(program, name, isa):
    """What a probe prints, as a list of dictionaries. If it fails, raises an error with what it says."""
    done = subprocess.run([str(program), name, *([isa] if isa else [])], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode or done.stderr:
        raise RuntimeError(done.stderr.strip() or f"{program} {name}: exit status {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines()]


# ---- One token -------------------------------------------------------------------------------------------------------


def calls(records):
    """A table of single calls with one token."""
    head, *measured = records
    found = {(record["operation"], record["channels"], record["by"]): record for record in measured}
    clock = [record for record in measured if record["operation"] == "nothing"]
    rows = []
    for (operation, channels, by), ours in found.items():
        if by != "library":
            continue
        loop = found[operation, channels, "loop"]
        others = [found.get((operation, channels, other)) for other in ("descriptor", "prepared")]
        rows.append([title(operation), f"1 x {channels}",
                     *(f"{one['hot']:.0f}" if one else "-" for one in (ours, *others, loop)),
                     *(f"{one['cold']:.0f} ({one['cold_low']:.0f} to {one['cold_high']:.0f})" for one in (ours, loop))])
    return [Table("One token",
                  "The plain forward calls, which take pointers and no descriptor; the same by a descriptor, and by "
                  "one that was prepared before; and beside them the same norm as a loop that is inlined in the "
                  f"program and compiled with {head['flags']}. These are one set of flags: a loop with another of the sets in "
                  "\"Compared with others\" may be faster. Hot: called again and again, the least mean of many calls. "
                  "Cold: one call after 64 MiB of other work has gone through the caches, the median of 31 and the "
                  f"quartiles. Reading the clock takes {max(one['cold'] for one in clock):.0f} ns of each cold time, "
                  "and nothing of the hot ones.",
                  ["forward", "shape", "hot, ns", "descriptor", "prepared", "loop, hot, ns", "cold, ns",
                   "loop, cold, ns"], rows, 2)]


# ---- Cliffs ----------------------------------------------------------------------------------------------------------


def accepted(record):
    """The ratio up to which special data may be slower. A row by itself takes a way of its own only if it is ordinary,
    and others a fraction of a microsecond more."""
    return CLIFF if record["occurs"] and record["tokens"] > 1 else PRECIPICE


def cliff_cell(record):
    if record is None:
        return "-"
    ratio = record["special"] / record["ordinary"]
    return f"{ratio:.1f}{' !!' if ratio > accepted(record) else ' !' if ratio > CLIFF else ''}"


def too_slow(records):
    """Those of the records of special data whose ratio is beyond what is accepted."""
    return [record for record in records if "special" in record
            and record["special"] > accepted(record) * record["ordinary"]]


def cliffs(records):
    """Tables of the time that special data take."""
    head, *measured = records
    beyond = sum(record["special"] > CLIFF * record["ordinary"] for record in measured)
    tables = [Table("Special data",
                    f"The time that special data take, divided by that of ordinary data, in rows of "
                    f"{head['channels']} channels in the caches, on {head['isa']}. \"!\" marks what is beyond {CLIFF}. "
                    f"\"!!\" marks what is beyond what is accepted: {CLIFF}, but {PRECIPICE} for a row by itself, and "
                    f"for data that no real model has, whose names are in brackets. {beyond} of {len(measured)} are "
                    f"beyond {CLIFF}, {len(too_slow(measured))} beyond what is accepted.", [], [], 0)]
    def kind(record):
        return record["type"], record["tokens"], record["direction"], record["mode"]

    for chosen in dict.fromkeys(map(kind, measured)):
        element_type, tokens, direction, mode = chosen
        here = {(record["operation"], record["data"]): record for record in measured if kind(record) == chosen}
        names = list(dict.fromkeys(operation for operation, _ in here))
        rows = [[record["data"] if record["occurs"] else f"[{record['data']}]",
                 *(cliff_cell(here.get((name, record["data"]))) for name in names)]
                for record in {record["data"]: record for record in here.values()}.values()]
        tables.append(Table(f"{direction.capitalize()}, {mode}, {tokens} {'row' if tokens == 1 else 'rows'} of "
                            f"{element_type}", "", ["data", *map(title, names)], rows, 1))
    return tables


# ---- Where to stream -------------------------------------------------------------------------------------------------


def streaming_cell(record, suffix):
    """The time of streaming over that of leaving the output in the caches. Marks a choice that costs time."""
    ratio = record["streamed" + suffix] / record["cached" + suffix]
    cost = ratio if record["streams"] else 1 / ratio
    slow_to_keep = suffix and record["streams"] and not record["streams_if_kept"] and 1 / ratio > NOTABLE
    return f"{ratio:.2f}{' *' if cost > NOTABLE else ' +' if slow_to_keep else ''}"


def streaming(records):
    """A table of where it pays to store past the caches."""
    head, *measured = records
    level2 = head["level2"]
    rows = [[f"{title(record['operation'])} {record['direction']}", f"{record['tokens']} x {record['channels']}",
             "streams" if record["streams_if_kept"] else "streams unless kept" if record["streams"] else "-",
             f"{4 * record['tokens'] * record['channels'] / level2:g}", streaming_cell(record, ""),
             streaming_cell(record, "_and_read")] for record in measured]
    return [Table("Where to stream",
                  f"The time of a pass that stores its output past the caches (streams), divided by that of the same "
                  f"pass when it leaves the output in them: alone, and when the output is read at once. Below 1 "
                  f"streaming is faster. The size of the output is in sizes of the second-level cache, "
                  f"{level2 // 1024} KB. \"streams\" says where the library streams, \"streams unless kept\" where it "
                  f"does not do so with keep_output_in_cache. \"*\" marks where its default is more than "
                  f"{NOTABLE - 1:.0%} slower than the alternative, \"+\" where keep_output_in_cache is that much "
                  f"slower than the default although the output is read at once.",
                  ["pass", "shape", "choice", "output / L2", "alone", "and read"], rows, 3)]


# What each option of bench/run shows.
PROBES = {"calls": calls, "cliffs": cliffs, "streaming": streaming}

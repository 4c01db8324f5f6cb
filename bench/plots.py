# SPDX-License-Identifier: BSD-2-Clause
"""Draws the plots of the report, if gnuplot is installed."""
import dataclasses
import re
import shutil
import subprocess

from operations import CORE, PAIRS, title
from results import Case

COLOURS = ("#2f7ed8", "#e07a1f", "#2a9d5c", "#c2479b")
Y_TICS = (0.06, 0.12, 0.18, 0.25, 0.35, 0.5, 0.7, 1, 1.4, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128)
ABSENT = "The plots are left out: gnuplot is not installed (gnuplot-nox in Debian and Ubuntu)."


@dataclasses.dataclass(frozen=True)
class Line:
    title: str
    colour: str
    dashed: bool


@dataclasses.dataclass
class Plots:
    legend: list
    pictures: list  # [(caption, SVG)]
    why: str = ""  # why there are no pictures although there should be some

    @property
    def wanted(self):
        return bool(self.pictures or self.why)


_drawn = 0


def _size_text(count):
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if count >= size:
            return f"{count / size:g} {unit}"
    return str(count)


def _draw(series, x_label, x_tics, y_label, marks):
    """Draws the series [(Line, [(x, Spread)])] and the marks [(x, name)] with logarithmic axes. Returns an SVG."""
    global _drawn
    _drawn += 1
    xs = [x for _, points in series for x, _ in points]
    # The axes fit the medians. Error bars that reach further, as on a noisy machine, are cut off.
    ys = [1, *(spread.median for _, points in series for _, spread in points)]
    commands = ["set terminal svg size 560,330 dynamic font 'sans-serif,12' linewidth 1.3",
                "set logscale x 2", "set logscale y 2", "unset key", "set border 3", "set tics nomirror out scale 0.6",
                "set errorbars 0", "set grid back linecolor rgb '#808080' linewidth 0.3",
                f"set xrange [{min(xs) / 1.3}:{max(xs) * 1.3}]", f"set yrange [{min(ys) / 1.2}:{max(ys) * 1.2}]",
                f"set xlabel '{x_label}'", f"set ylabel '{y_label}'",
                "set xtics (" + ", ".join(f"'{text}' {x}" for x, text in x_tics) + ")",
                "set ytics (" + ", ".join(f"'{y:g}' {y}" for y in Y_TICS) + ")",
                f"set arrow from {min(xs) / 1.3},1 to {max(xs) * 1.3},1 nohead linecolor rgb '#808080' linewidth 1.5"]
    for x, name in marks:
        if min(xs) < x < max(xs):
            commands += [f"set arrow from {x},graph 0 to {x},graph 1 nohead linecolor rgb '#808080' dashtype 3",
                         f"set label '{name}' at {x},graph 0.97 offset 0.4,0 textcolor rgb '#808080'"]
    styles = ", ".join(f"$data{i} using 1:2:3:4 with yerrorlines linecolor rgb '{line.colour}' linewidth 1.4 "
                       f"pointtype 7 pointsize 0.35 dashtype {2 if line.dashed else 1}"
                       for i, (line, _) in enumerate(series))
    data = []
    for i, (_, points) in enumerate(series):
        rows = [f"{x} {spread.median} {spread.low} {spread.high}" for x, spread in points]
        data += [f"$data{i} << END", *rows, "END"]
    script = "\n".join([*commands, *data, f"plot {styles}", ""])
    done = subprocess.run(["gnuplot"], input=script, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False)
    if done.returncode or "<svg" not in done.stdout:
        raise RuntimeError(f"gnuplot failed: {done.stderr}")
    svg = done.stdout[done.stdout.index("<svg"):]
    # Several plots share a page: each needs ids of its own. Its text takes the colour of the page's text.
    svg = re.sub(r"(id=[\"']|[\"'(]#)(gp|gnuplot)", rf"\g<1>plot{_drawn}-\2", svg)
    svg = re.sub(r"<title>.*?</title>|<desc>.*?</desc>|<!--.*?-->", "", svg, flags=re.DOTALL)
    return re.sub(r"((?:stroke|fill|color)\s*[=:]\s*[\"']?)black", r"\1currentColor", svg)


def _plots(legend, requests):
    """Draws the requests [(caption, series, further arguments of _draw...)]."""
    requests = [(caption, [(line, points) for line, points in series if len(points) > 1], *rest)
                for caption, series, *rest in requests]
    requests = [request for request in requests if request[1]]
    if not requests:
        return Plots([], [])
    if not shutil.which("gnuplot"):
        return Plots([], [], ABSENT)
    try:
        return Plots(legend, [(caption, _draw(series, *rest)) for caption, series, *rest in requests])
    except RuntimeError as error:
        return Plots([], [], f"The plots are left out: {error}")


def _sweeps(found, directions):
    """Yields (caption, x's label, shapes, function from a shape to x, x's tics, marks) for each series of shapes. The
    marks are where all tensors of a pass together fill a cache."""
    tensors = 2 if directions == ("forward",) else 3
    reasons = found.reasons
    sizes = sorted({shape for reason in ("size", "L1", "L2", "L3", "beyond the caches")
                    for shape in reasons.get(reason, [])})
    widths = sorted(set(reasons.get("channels", [])), key=lambda shape: shape[1])
    caches = [(cache["size"] / tensors, f"L{cache['level']}") for cache in found.context.get("caches", [])
              if cache["type"] != "Instruction"]
    if sizes:
        yield (f"by size of a tensor, at {sizes[0][1]} channels", "size of a tensor", sizes,
               lambda shape: 4 * shape[0] * shape[1],
               [(1 << power, _size_text(1 << power)) for power in range(10, 33, 2)], caches)
    if widths:
        yield ("by channels, at about 1 MB a tensor", "channels", widths, lambda shape: shape[1],
               [(1 << power, str(1 << power)) for power in range(4, 18, 2)], [])


def answer(found, isa, advantage):
    """Plots how much faster an elementwise norm is, against size and against channels."""
    lines = {(pair, mode): Line(f"{title(pair[0])} / {title(pair[1])}, {mode}", colour, mode == "native")
             for pair, colour in zip(PAIRS, COLOURS) for mode in ("portable", "native")}
    requests = []
    for name, directions in (("Forward", ("forward",)), ("Backward", ("backward",)),
                             ("Forward and backward", ("forward", "backward"))):
        for what, axis, shapes, x_of, tics, marks in _sweeps(found, directions):
            series = []
            for (pair, mode), line in lines.items():
                spreads = [(x_of(shape), advantage(found, pair, directions, isa, mode, shape)) for shape in shapes]
                series.append((line, [(x, spread) for x, spread in spreads if spread]))
            requests.append((f"{name}, {what}", series, axis, tics, "time(reduction) / time(elementwise)", marks))
    return _plots(list(lines.values()), requests)


def limits(found, isa):
    """Plots the time over the limit of the norms that are measured at every shape."""
    lines = {(operation, mode): Line(title(operation) + (", native" if mode == "native" else ""), colour,
                                     mode == "native")
             for operation, colour in zip(CORE, COLOURS) for mode in ("portable", "native")
             if any(case.operation == operation and case.mode == mode for case in found.times)}
    requests = []
    for direction in ("forward", "backward"):
        for what, axis, shapes, x_of, tics, marks in _sweeps(found, (direction,)):
            series = []
            for (operation, mode), line in lines.items():
                spreads = [(x_of(shape), found.time_over_limit(Case(operation, direction, isa, mode, *shape)))
                           for shape in shapes]
                series.append((line, [(x, spread) for x, spread in spreads if spread]))
            requests.append((f"{direction.capitalize()}, {what}", series, axis, tics, "time / limit", marks))
    return _plots(list(lines.values()), requests)

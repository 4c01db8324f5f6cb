# SPDX-License-Identifier: BSD-2-Clause
"""Draws the plots of the report, if gnuplot is installed."""
import base64
import collections
import dataclasses
import math
import pathlib
import shutil
import subprocess
import tempfile

from comparisons import DIRECTIONS
from operations import CORE, title
from results import Case, is_limit, shape_of

Y_TICS = (0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128)
Y_LABELS = {"forward": "time / time of a copy", "backward": "time / time of a sum of two"}
ABSENT = "The plots are left out: gnuplot is not installed (gnuplot-nox in Debian and Ubuntu)."
# A series needs this many points to be worth a plot.
FEWEST_POINTS = 3
# Tensors of about this many elements, 1 MB, make up the series over channels.
SERIES_ELEMENTS = 1 << 18


@dataclasses.dataclass(frozen=True)
class Theme:
    """Colours for a light or a dark page. People who cannot tell red from green can tell the lines' colours apart."""
    ink: str
    grid: str
    lines: tuple


THEMES = {"light": Theme("#50565d", "#d9dde1", ("#0072b2", "#00845f", "#c44f00", "#9a4a86")),
          "dark": Theme("#b4bac1", "#363c43", ("#56b4e9", "#2cc295", "#f28c3a", "#e39cc5"))}


@dataclasses.dataclass
class Plot:
    """caption, and for each theme the picture as a URL that holds all of it."""
    caption: str
    urls: dict


@dataclasses.dataclass
class Request:
    caption: str
    x_label: str
    y_label: str
    x_tics: list  # [(text, x)]
    series: list  # [(name, [(x, Spread)])]


def _size_text(count):
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if count >= size:
            return f"{count / size:g} {unit}"
    return str(count)


def _apart(values, least, most):
    """Positions for labels beside these values, between 0 and 1 in a logarithmic range, which do not overlap."""
    wanted = [math.log(value / least) / math.log(most / least) for value in values]
    gap = min(0.075, 1 / max(1, len(wanted) - 1))
    # Runs of labels that touch one another. Each stands where its labels are off by least, up and down alike, but
    # within the plot.
    runs = []  # [(where the lowest label stands, [label])]
    for label in sorted(range(len(wanted)), key=wanted.__getitem__):
        runs.append((min(max(wanted[label], 0), 1), [label]))
        while len(runs) > 1 and runs[-1][0] < runs[-2][0] + gap * len(runs[-2][1]):
            together = runs[-2][1] + runs[-1][1]
            lowest = sum(wanted[one] - gap * above for above, one in enumerate(together)) / len(together)
            runs[-2:] = [(min(max(lowest, 0), 1 - gap * (len(together) - 1)), together)]
    places = {label: lowest + gap * above for lowest, labels in runs for above, label in enumerate(labels)}
    return [places[label] for label in range(len(wanted))]


def _commands(request, theme, path):
    """The commands for gnuplot that draw a plot with logarithmic axes to a file."""
    xs = [x for _, points in request.series for x, _ in points]
    # The axes fit the medians. Error bars that reach further, as on a noisy machine, are cut off.
    ys = [1, *(spread.median for _, points in request.series for _, spread in points)]
    left, right, least, most = min(xs) / 1.3, max(xs) * 1.3, min(ys) / 1.2, max(ys) * 1.2
    data, curves = [], []
    ends = _apart([points[-1][1].median for _, points in request.series], least, most)
    for i, ((name, points), colour, end) in enumerate(zip(request.series, theme.lines, ends)):
        rows = [f"{x} {spread.median} {spread.low} {spread.high}" for x, spread in points]
        data += [f"$data{i} << END", *rows, "END",
                 f"set label '{name}' at graph 1.02,{end} textcolor rgb '{colour}'"]
        curves.append(f"$data{i} using 1:2:3:4 with yerrorlines linecolor rgb '{colour}' linewidth 1.6 pointtype 7 "
                      f"pointsize 0.4")
    return ["reset", "set terminal svg size 440,290 dynamic font 'sans-serif,13'", f"set output '{path}'",
            "set logscale x 2", "set logscale y 2", "unset key", f"set border 3 linecolor rgb '{theme.ink}'",
            f"set tics nomirror out scale 0.6 textcolor rgb '{theme.ink}'", "set errorbars 0", "set rmargin 10",
            f"set grid back linecolor rgb '{theme.grid}' linewidth 0.5", f"set xrange [{left}:{right}]",
            f"set yrange [{least}:{most}]", f"set xlabel '{request.x_label}' textcolor rgb '{theme.ink}'",
            f"set ylabel '{request.y_label}' textcolor rgb '{theme.ink}'",
            "set xtics (" + ", ".join(f"'{text}' {x}" for text, x in request.x_tics if left <= x <= right) + ")",
            "set ytics (" + ", ".join(f"'{y:g} x' {y}" for y in Y_TICS if least <= y <= most) + ")",
            f"set arrow from {left},1 to {right},1 nohead linecolor rgb '{theme.ink}' linewidth 1.2 dashtype 2",
            *data, "plot " + ", ".join(curves), "unset output"]


def _draw(requests):
    """The plots. Raises RuntimeError if gnuplot fails."""
    with tempfile.TemporaryDirectory() as folder:
        paths = {(i, name): pathlib.Path(folder, f"{i}-{name}.svg") for i in range(len(requests)) for name in THEMES}
        script = [line for (i, name), path in paths.items() for line in _commands(requests[i], THEMES[name], path)]
        done = subprocess.run(["gnuplot"], input="\n".join(script), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, check=False)
        if done.returncode or not all(path.exists() for path in paths.values()):
            raise RuntimeError(f"gnuplot failed: {done.stderr.strip()}")
        return [Plot(request.caption, {name: "data:image/svg+xml;base64," +
                                       base64.b64encode(paths[i, name].read_bytes()).decode() for name in THEMES})
                for i, request in enumerate(requests)]


def series_of_shapes(found):
    """Yields (what, x's label, function from a shape to x, x's tics, shapes) for each series of the shapes measured:
    over sizes with the number of channels that most shapes have, and over channels at about one size."""
    shapes = {shape_of(case) for case in found.times if not is_limit(case)}
    if not shapes:
        return
    channels, _ = max(collections.Counter(channels for _, channels in shapes).items(),
                      key=lambda item: (item[1], item[0]))
    yield (f"by size, {channels} channels", "size of a tensor", lambda shape: 4 * shape[0] * shape[1],
           [(_size_text(1 << power), 1 << power) for power in range(10, 33, 4)],
           sorted(shape for shape in shapes if shape[1] == channels))
    about = [shape for shape in shapes if 0.95 < shape[0] * shape[1] / SERIES_ELEMENTS <= 1]
    yield ("by channels, tensors of 1 MB", "channels", lambda shape: shape[1],
           [(str(1 << power), 1 << power) for power in range(4, 18, 2)], sorted(about, key=lambda shape: shape[1]))


def over_limit(found, isa):
    """([Plot] of the time over the limit of the norms that are measured at every shape, why there is none)."""
    requests = []
    for what, axis, x_of, tics, shapes in series_of_shapes(found):
        for direction in DIRECTIONS:
            series = []
            for operation in CORE:
                spreads = [(x_of(shape), found.time_over_limit(Case(operation, direction, isa, "portable", *shape)))
                           for shape in shapes]
                points = [(x, spread) for x, spread in spreads if spread]
                if len(points) >= FEWEST_POINTS:
                    series.append((title(operation), points))
            if series:
                requests.append(Request(f"{direction.capitalize()}, {what}", axis, Y_LABELS[direction], tics, series))
    if not requests:
        return [], "There are no plots: this selection has no series of sizes or of channels."
    if not shutil.which("gnuplot"):
        return [], ABSENT
    try:
        return _draw(requests), ""
    except RuntimeError as error:
        return [], f"The plots are left out: {error}"

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs the outlier experiment as a program, and checks what it prints, writes and draws.

usage: outlier_experiment.py PATH-OF-OUTLIER-EXPERIMENT SOURCE-FOLDER
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import xml.dom.minidom

import tap

program, source = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
FIGURES = ("curves_layernorm", "curves_rmsnorm", "panels_layernorm", "panels_rmsnorm", "fits")

# Five significant digits; DyISRU's residual only as far as data in float allow.
PUBLISHED = {
    "layernorm": {"alpha": (0.0486101, 5e-7), "alpha_mean_abs_residual": (0.327877, 5e-6),
                  "beta": (301.060, 5e-3), "beta_mean_abs_residual": (0.0048142, 5e-6)},
    "rmsnorm": {"alpha": (0.0490115, 5e-7), "alpha_mean_abs_residual": (0.333823, 5e-6),
                "beta": (295.7618, 5e-3), "beta_mean_abs_residual": (0, 1e-5)},
}


def run(folder, *arguments, **environment):
    return subprocess.run([program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder,
                          env=dict(os.environ, **environment), check=False)


def check_numbers(folder, name):
    written = json.loads((folder / "outliers.json").read_text())
    tap.check_equal({norm: list(fits) for norm, fits in written.items()},
                    {norm: list(fits) for norm, fits in PUBLISHED.items()}, f"{name}: the keys of outliers.json")
    for norm, fits in PUBLISHED.items():
        for key, (value, tolerance) in fits.items():
            got = written.get(norm, {}).get(key)
            tap.check(isinstance(got, float) and abs(got - value) <= tolerance,
                      f"{name}: {norm}, {key} = {got}, published {value}")


def test_instruction_sets(folder):
    seen = {}
    for isa in "avx512", "avx2", "neon", "scalar":
        done = run(folder, PATH="", DYNNORM_ISA=isa)
        used = re.search(r" on (\w+)\n", done.stdout)[1]
        if used != isa:
            tap.skip(isa, "this machine does not run it")
            continue
        tap.check(done.returncode == 0, f"{isa}: runs without gnuplot", done.stderr)
        tap.check_equal(done.stderr, "outlier_experiment: gnuplot is not installed, so there are no figures\n",
                        f"{isa}: says that there are no figures")
        tap.check_equal(os.listdir(folder), ["outliers.json"], f"{isa}: writes outliers.json into the current folder")
        check_numbers(folder, isa)
        seen[isa] = (folder / "outliers.json").read_text()
        for line in done.stdout.splitlines():
            if "=" in line:
                norm, value, residual = re.search(r"(\w+) .*= (\S+) +(\S+)", line).groups()
                fits = json.loads(seen[isa])[norm.lower()]
                key = "alpha" if "alpha" in line else "beta"
                tap.check(f"{fits[key]:.8g}" == value and f"{fits[key + '_mean_abs_residual']:.6g}" == residual,
                          f"{isa}: prints {norm}'s {key}", f"{line}\n{fits}")
    tap.check_equal(len(set(seen.values())), 1, f"the same digits on {', '.join(seen)}")


def test_figures(folder):
    if not shutil.which("gnuplot"):
        tap.skip("the figures", "gnuplot is not installed")
        return
    folder = folder / "new"
    done = run("/", "--out", str(folder))
    if not tap.check(done.returncode == 0 and done.stderr == "", "draws into a new folder", done.stderr):
        return
    expected = {"outliers.json"} | {name + ending for name in FIGURES for ending in (".svg", ".png")}
    tap.check_equal(set(os.listdir(folder)), expected, "all figures are there")
    for name in FIGURES:
        svg = xml.dom.minidom.parse(str(folder / (name + ".svg")))
        tap.check(len(svg.getElementsByTagName("path")) > 10, f"{name}.svg is well-formed and has lines")
        tap.check((folder / (name + ".png")).read_bytes().startswith(b"\x89PNG"), f"{name}.png is a PNG")
    texts = (folder / "fits.svg").read_text()
    for text in "DyT, α = 0.0486", "DyISRU, β = 301.1", "DyT, α = 0.0490", "DyISRU, β = 295.8":
        tap.check(text in texts, f"fits.svg says {text}")


def test_panels(folder):
    """gnuplot draws a panel for each S = 0, 1, 2, 9, which says how often 5 was added to the outlier."""
    recorder = folder / "recorder"
    recorder.mkdir()
    (recorder / "gnuplot").write_text(f"#!/bin/sh\ncat >> '{recorder}/scripts'\n")
    (recorder / "gnuplot").chmod(0o755)
    run(folder, PATH=f"{recorder}:{os.environ['PATH']}")
    scripts = (recorder / "scripts").read_text()
    panels = re.findall(r"\$outlier << END\n(\S+) \S+\nEND\n\$path << END\n(.*?)END\nset title 'S = (\d+)'", scripts,
                        re.S)
    tap.check_equal([step for _, _, step in panels], ["0", "1", "2", "9"] * (len(panels) // 4), "the panels' titles")
    tap.check_equal(len(panels), 16, "four panels for each norm, as SVG and as PNG")
    sample = re.findall(r"-?\d+\.\d+(?=,)", (source / "examples/outlier_sample.h").read_text())
    for outlier, path, step in panels:
        steps = [float(line.split()[0]) - float(sample[-1]) for line in path.splitlines()]
        expected = [5 * step for step in range(int(step) + 1)]
        steps.append(float(outlier) - float(sample[-1]))
        expected.append(expected[-1])
        tap.check(len(steps) == len(expected) and all(abs(a - b) < 1e-4 for a, b in zip(steps, expected)),
                  f"S = {step}: the outlier and its path", f"{outlier}\n{path}")


def test_usage(folder):
    tap.check_equal(run(folder, "--help").returncode, 0, "--help")
    for arguments in ("--no-such-option",), ("--out",), ("something",):
        done = run(folder, *arguments)
        tap.check(done.returncode == 2 and done.stdout == "" and "usage" in done.stderr, f"bad usage: {arguments}")
    done = run(folder, "--out", "no/such/folder")
    tap.check(done.returncode == 1 and "no/such/folder" in done.stderr, "a folder that cannot be made is an error",
              f"{done.returncode}\n{done.stderr}")


for test in test_instruction_sets, test_figures, test_panels, test_usage:
    with tempfile.TemporaryDirectory() as temporary:
        test(pathlib.Path(temporary))
figure = re.search(r"\]\(\.\./(examples/\w+\.svg)\)", (source / "docs/choosing.md").read_text())
tap.check(figure and (source / figure[1]).exists(), "the figure of docs/choosing.md is there")
tap.done()

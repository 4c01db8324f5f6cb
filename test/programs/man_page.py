#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Tests that a program's manual page explains the options that the program's --help lists, all of them and no others,
and that it can be formatted without warnings.

usage: man_page.py PROGRAM PAGE
"""
import pathlib
import re
import shutil
import subprocess
import sys

import tap

program, page = map(pathlib.Path, sys.argv[1:])


def options(text):
    """The long options in a text, but for those that every program has."""
    return sorted(set(re.findall(r"(?<![\w-])--[a-z][a-z_-]*", text)) - {"--help", "--version"})


text = page.read_text(encoding="utf-8")
# What stands in the lines after .TP, where options are explained, and what the escapes stand for.
explained = "\n".join(re.findall(r"^\.TP\n(.*)", text, re.MULTILINE)).replace("\\-", "-")
explained = re.sub(r"\\f[A-Z]", "", explained)
usage = subprocess.run([program, "--help"], stdout=subprocess.PIPE, text=True, check=True).stdout
usage = usage.split("Google Benchmark's own options")[0]
tap.check(options(usage), f"{program.name} --help lists options")
tap.check_equal(options(explained), options(usage), f"{page.name} explains the options that --help lists")
tap.check(f".TH {program.name.upper()} 1 " in text, f"{page.name} is the page of {program.name}")
if shutil.which("groff"):
    done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z", page], stderr=subprocess.PIPE, text=True, check=False)
    tap.check_equal((done.returncode, done.stderr), (0, ""), f"groff formats {page.name} without warnings")
else:
    tap.skip(f"{page.name} can be formatted", "groff is not installed")
tap.done()

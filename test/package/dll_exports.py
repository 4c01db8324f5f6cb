#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Checks that the library for Windows exports what the header declares, and nothing else. install.py does so elsewhere.

usage: dll_exports.py DLL HEADER
"""
import pathlib
import re
import shutil
import subprocess
import sys

import tap

library, header = map(pathlib.Path, sys.argv[1:])
NAME = "the DLL exports what the header declares, and nothing else"
if not shutil.which("llvm-readobj"):
    tap.skip(NAME, "llvm-readobj is not installed")
    tap.done()
listing = subprocess.run(["llvm-readobj", "--coff-exports", library], stdout=subprocess.PIPE, text=True, check=True)
exported = re.findall(r"Name: (\S+)", listing.stdout)
text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.DOTALL)
declared = re.findall(r"^DYNNORM_API [^;]*?\b(dynnorm_\w+)\(", text, re.MULTILINE)
tap.check_equal("\n".join(sorted(exported)), "\n".join(sorted(set(declared))), NAME)
tap.done()

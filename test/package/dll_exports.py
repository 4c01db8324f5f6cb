#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Checks that a library for Windows exports what its header declares, and nothing else. install.py does so elsewhere.

usage: dll_exports.py DLL HEADER [DLL HEADER]...
"""
import pathlib
import re
import shutil
import subprocess
import sys

import tap

for library, header in zip(map(pathlib.Path, sys.argv[1::2]), map(pathlib.Path, sys.argv[2::2])):
    name = f"{library.name} exports what {header.name} declares, and nothing else"
    if not shutil.which("llvm-readobj"):
        tap.skip(name, "llvm-readobj is not installed")
        continue
    listing = subprocess.run(["llvm-readobj", "--coff-exports", library], stdout=subprocess.PIPE, text=True, check=True)
    exported = re.findall(r"Name: (\S+)", listing.stdout)
    text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.DOTALL)
    declared = re.findall(r"^DYNNORM_(?:EXECUTORS_)?API [^;]*?\b(dynnorm_\w+)\(", text, re.MULTILINE)
    tap.check_equal("\n".join(sorted(exported)), "\n".join(sorted(set(declared))), name)
tap.done()

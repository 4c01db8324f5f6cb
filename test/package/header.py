#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Compiles the public header alone, as C99 and as C++, with every compiler that is here, warnings as errors.

usage: header.py INCLUDE-FOLDER
"""
import shutil
import sys

import tap

# All that the header offers to the preprocessor and the compiler, used once.
PROGRAM = """
#include <dynnorm.h>
#include <dynnorm.h>

int main(void) {
    dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
    const char *version = DYNNORM_VERSION_STRING;
    int number = DYNNORM_VERSION_MAJOR * 10000 + DYNNORM_VERSION_MINOR * 100 + DYNNORM_VERSION_PATCH;
    return call.size == sizeof call && call.operation == DYNNORM_LAYERNORM && number >= 0 && version[0] ? 0 : 1;
}
"""

COMPILERS = {"c": ("gcc", "clang"), "c++": ("g++", "clang++")}
STANDARDS = {"c": ("c99", "c11", "c2x"), "c++": ("c++98", "c++17")}
WARNINGS = "-pedantic -Wall -Wextra -Wshadow -Wconversion -Wundef -Werror".split()
C_WARNINGS = ["-Wstrict-prototypes", "-Wmissing-prototypes"]

for language, compilers in COMPILERS.items():
    for compiler in compilers:
        for standard in STANDARDS[language]:
            name = f"{compiler} -std={standard}"
            if not shutil.which(compiler):
                tap.skip(name, f"{compiler} is not installed")
                continue
            warnings = WARNINGS + (C_WARNINGS if language == "c" else [])
            command = [compiler, f"-std={standard}", *warnings, f"-I{sys.argv[1]}", "-fsyntax-only", "-x", language]
            tap.check_runs(command + ["-"], name, input=PROGRAM)
tap.done()

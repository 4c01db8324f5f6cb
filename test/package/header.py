#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Compiles each public header alone, as C and as C++, with every compiler that is installed, with warnings as errors.

usage: header.py INCLUDE-FOLDER
"""
import shutil
import sys

import tap

# They use everything once that the header offers without the library.
PROGRAMS = {"dynnorm.h": """
#include <dynnorm.h>
#include <dynnorm.h>

int main(void) {
    dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
    const char *version = DYNNORM_VERSION_STRING;
    int number = DYNNORM_VERSION_MAJOR * 10000 + DYNNORM_VERSION_MINOR * 100 + DYNNORM_VERSION_PATCH;
    return call.size == sizeof call && call.operation == DYNNORM_LAYERNORM && number >= 0 && version[0] ? 0 : 1;
}
""", "dynnorm_executors.h": """
#include <dynnorm_executors.h>
#include <dynnorm_executors.h>

int main(void) {
    dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
    struct pthreadpool *pool = DYNNORM_NULL;
    dynnorm_status openmp = dynnorm_openmp_executor(&call.executor, 2);
    dynnorm_status pthreadpool = dynnorm_pthreadpool_executor(&call.executor, pool);
    return openmp == DYNNORM_OK && pthreadpool == DYNNORM_ERROR_LEFT_OUT ? 0 : 1;
}
"""}

COMPILERS = {"c": ("gcc", "clang"), "c++": ("g++", "clang++")}
STANDARDS = {"c": ("c99", "c11", "c2x"), "c++": ("c++98", "c++11", "c++17", "c++20")}
WARNINGS = "-pedantic -Wall -Wextra -Wshadow -Wconversion -Wundef -Werror".split()
LANGUAGE_WARNINGS = {
    "c": ["-Wstrict-prototypes", "-Wmissing-prototypes", "-Wmissing-field-initializers"],
    "c++": ["-Wold-style-cast", "-Wcast-qual", "-Wsign-conversion", "-Wmissing-field-initializers"],
}
# A null pointer has a keyword from C++11 on; before, there is nothing better than 0.
NULL_POINTER_WARNING = "-Wzero-as-null-pointer-constant"

for language, compilers in COMPILERS.items():
    for compiler in compilers:
        for standard in STANDARDS[language]:
            if not shutil.which(compiler):
                tap.skip(f"{compiler} -std={standard}", f"{compiler} is not installed")
                continue
            warnings = WARNINGS + LANGUAGE_WARNINGS[language]
            if language == "c++" and standard != "c++98":
                warnings = warnings + [NULL_POINTER_WARNING]
            command = [compiler, f"-std={standard}", *warnings, f"-I{sys.argv[1]}", "-fsyntax-only", "-x", language]
            for header, program in PROGRAMS.items():
                tap.check_runs(command + ["-"], f"{compiler} -std={standard}: {header}", input=program)
tap.done()

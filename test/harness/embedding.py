# SPDX-License-Identifier: BSD-2-Clause
"""What the tests of docs/embedding.md share: its examples, the manifest of bits, and what a left out part returns."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import tap
from readme import Readme

# Every build of a part leaves out the same, most of what the README's program does not need, and some of them the
# element types, too.
LEFT_OUT = ["rmsnorm", "dyisru", "centered_dyisru", "backward", "avx512"]
LEFT_OUT_WITH_TYPES = [*LEFT_OUT, "types"]


# Prints the tables of instruction sets that are used here.
TABLES = """
#include "dispatch/dispatch.h"
#include <stdio.h>
int main(void) {
    for (size_t i = 0; i < dynnorm_isa_count; i++)
        if (dynnorm_isa_runs_here(&dynnorm_isa_list[i]))
            puts(dynnorm_isa_list[i].identifier);
    return 0;
}
"""


class Embedding:
    """DYNNORM_TEST_WHOLE_LIBRARY lists the tests that build all of the library, which takes minutes, by their names in
    meson; "all" stands for each of them. The tests cmake and one_file also build parts, whatever the variable says;
    three of one_file_COMPILER-LEVEL do so where it is set."""

    def __init__(self, source_root, build_root=None, test=None):
        whole = os.environ.get("DYNNORM_TEST_WHOLE_LIBRARY", "").split()
        for name in whole:
            if not re.fullmatch(r"all|cmake|one_file(_[^_]+-O[23s])?", name):
                sys.exit(f"DYNNORM_TEST_WHOLE_LIBRARY: no test of the name {name} builds the library")
        self.is_whole = "all" in whole or test in whole
        self.is_thorough = bool(whole)
        self.source = pathlib.Path(source_root)
        self.has_sleef, self.tables = False, None
        if build_root:
            build = pathlib.Path(build_root)
            self.has_sleef = "DYNNORM_HAVE_SLEEF" in (build / "compile_commands.json").read_text(encoding="utf-8")
            with tempfile.TemporaryDirectory() as folder:
                sleef = ["-lsleef"] if self.has_sleef else []
                self.tables = self.tables_in_use(["cc"], [build / "libdynnorm.a", *sleef], pathlib.Path(folder))
        self.readme = Readme(self.source)
        text = (self.source / "docs/embedding.md").read_text(encoding="utf-8")
        self.blocks = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        self.operations = re.findall(r"^OPERATION\((\w+)", (self.source / "src/operations.def").read_text(),
                                     re.MULTILINE)

    def examples(self, language, word):
        """The blocks of the page in this language that contain a word."""
        return [block for block_language, block in self.blocks if block_language == language and word in block]

    def check_readme_program(self, command, name):
        output = tap.check_runs(command, f"{name}: the README's program runs")
        tap.check_equal(output, self.readme.output, f"{name}: it prints what the README says")

    def check_left_out(self, compile_command, folder, name, without):
        """Compiles test/package/left_out.c by a command without its output, and compares what it prints."""
        program = folder / "left_out"
        if tap.check_runs([*compile_command, "-o", program], f"{name}: left_out.c builds", cwd=folder) is None:
            return
        explanation = "this build of the library leaves out the operation, this pass of it, or something else that the call needs"
        lines = []
        for operation in self.operations:
            for direction in ("forward", "backward"):
                is_left_out = operation in without or direction in without
                status = explanation if is_left_out else "success"
                lines.append(f"{operation} {direction}: {status}, {status}\n")
        status = explanation if "types" in without else "success"
        lines.append(f"types forward: {status}, {status}\n")
        tap.check_equal(tap.check_runs([program], f"{name}: left_out.c runs"), "".join(lines),
                        f"{name}: calls of what is left out say so, and no others")

    def tables_in_use(self, compiler, library, folder, run=()):
        """The tables of a library's objects that are used on this machine."""
        (folder / "tables.c").write_text(TABLES)
        subprocess.run([*compiler, f"-I{self.source / 'include'}", f"-I{self.source / 'src'}", folder / "tables.c",
                        *library, "-lm", "-o", folder / "tables"], check=True)
        done = subprocess.run([*run, folder / "tables"], stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout.split()

    def check_kernels(self, library, folder, name, without=(), command=("cc",), run=()):
        """Compares the bits with the manifest, and tests the element types, with tests of the kernels linked to a
        library's objects. The commands compile these tests, and run them."""
        tables = self.tables_in_use(command, library, folder, run)
        if not run:
            tap.check_equal(tables, [table for table in self.tables if table not in without],
                            f"{name}: the tables of instruction sets that are used here")
        environment = dict(os.environ, DYNNORM_TEST_THIN="1")
        environment.pop("DYNNORM_TEST_WHOLE_MANIFEST", None)
        if self.is_whole:
            environment["DYNNORM_TEST_WHOLE_MANIFEST"] = "1"
        tests = {"bits": [self.source / "test/data/bits.txt"]}
        if "types" not in without:
            tests["types"] = []
        harness = self.source / "test/harness"
        for test, arguments in tests.items():
            sources = [self.source / f"test/kernels/{test}.c",
                       *(harness / f"{part}.c" for part in ("call", "each_kernel", "elements", "row_patterns"))]
            compile_test = [*command, "-std=gnu11", "-O1", f"-I{self.source / 'include'}", f"-I{self.source / 'src'}",
                            f"-I{harness}", *(f"-DDYNNORM_WITHOUT_{part.upper()}" for part in without), *sources,
                            *library, "-lm", "-o", folder / test]
            if tap.check_runs(compile_test, f"{name}: the test {test} builds") is None:
                continue
            done = subprocess.run([*run, folder / test, *arguments], env=environment, stdout=subprocess.PIPE, text=True,
                                  check=False)
            failed = [line for line in done.stdout.splitlines() if not line.startswith(("ok ", "1.."))]
            passed = [line for line in done.stdout.splitlines() if line.startswith("ok ") and "SKIP" not in line]
            tap.check(done.returncode == 0 and passed, f"{name}: the test {test} passes, {len(passed)} checks",
                      "\n".join(failed))

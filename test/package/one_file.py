#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Writes the library as one file (scripts/amalgamate), compiles it as docs/embedding.md says, and tests what comes out:
the names; the macros; and that it refuses flags that change results. Or, by one compiler at one level of optimization:
the bits of every instruction set and the element types, on an emulated CPU if it compiles for another one. Then all of
the library is compiled where DYNNORM_TEST_WHOLE_LIBRARY names the test; three of these tests compile some parts if it
names any test; and without it nothing is compiled.

usage: one_file.py BUILD-FOLDER SOURCE-FOLDER [COMPILER LEVEL]
"""
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

import tap
from embedding import LEFT_OUT_WITH_TYPES, Embedding

source = pathlib.Path(sys.argv[2])
build = tuple(sys.argv[3:])
embedding = Embedding(source, sys.argv[1], "one_file" + ("_" + "".join(build) if build else ""))
AMALGAMATE = (sys.executable, source / "scripts/amalgamate")
COMPILERS = ("gcc", "clang")
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
FEW = [*LEFT_OUT_WITH_TYPES, "avx2", "scalar_fma", "neon"]
NORMS_FORWARD = ["dyt", "dyisru", "centered_dyisru", "backward"]
DYISRU_BACKWARD = ["layernorm", "rmsnorm", "dyt", "centered_dyisru", "forward"]

# What is compiled besides all of the library: further flags, and the parts that are left out.
THIN = {
    ("gcc", "-O3"): (["-march=native", "-ffp-contract=fast"], [*NORMS_FORWARD, "layernorm", "types"]),
    ("clang", "-Os"): ([], DYISRU_BACKWARD),
    ("aarch64-linux-gnu-gcc", "-O2"): ([], [*NORMS_FORWARD, "rmsnorm"]),
}
CHANGED_RESULTS = """
#include "dynnorm.c"
#include <stdio.h>
#include <string.h>
int main(void) {
    float x = 1, y = -1, sum = -1, largest = -1;
    dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT, query = DYNNORM_DESCRIPTOR_INIT;
    call.operation = DYNNORM_LAYERNORM;
    call.tokens = call.channels = 1;
    call.x.data = call.residual.data = &x, call.y.data = &y, call.sum.data = &sum;
    puts(dynnorm_isa());
    query.operation = DYNNORM_DYISRU;
    query.tokens = query.channels = 1;
    query.weight.data = &x;
    dynnorm_status status = dynnorm_forward(&call), answer = dynnorm_largest_output(&query, &largest);
    return strcmp(dynnorm_isa(), "none") ? status != DYNNORM_OK
                                         : !status || !answer || y != -1 || sum != -1 || largest != -1;
}
"""
EMULATORS = {"aarch64-linux-gnu-gcc": ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"]}


def installed(command, name):
    if shutil.which(command):
        return True
    tap.skip(name, f"{command} is not installed")
    return False


def cached(command):
    return ["ccache", command] if shutil.which("ccache") else [command]


def without(parts):
    return [f"-DDYNNORM_WITHOUT_{part.upper()}" for part in parts]


def defined_names(file):
    lines = subprocess.run(["nm", "--extern-only", "--defined-only", file], stdout=subprocess.PIPE, text=True,
                           check=True).stdout.splitlines()
    names = [line.split()[-1] for line in lines if len(line.split()) == 3]
    return sorted(name.removeprefix("_") if platform.system() == "Darwin" else name for name in names)


class OneFile:
    def __init__(self, folder):
        self.folder = folder
        header = re.sub(r"/\*.*?\*/", "", (source / "include/dynnorm.h").read_text(encoding="utf-8"), flags=re.DOTALL)
        header = re.sub(r"^typedef [^{;]*;", "", header, flags=re.MULTILINE)
        self.public = sorted(set(re.findall(r"\b(dynnorm_\w+)\(", header)))

    def write(self):
        return tap.check_runs([*AMALGAMATE, self.folder], "amalgamate writes dynnorm.c") is not None

    def test_failures(self):
        """What cannot be written, or by no compiler, ends with a message."""
        (self.folder / "file").touch()
        for name, folder, compiler in (("a folder below a file", "file/folder", "cc"), ("a file", "file", "cc"),
                                       ("no compiler", ".", "no-such-compiler"), ("a compiler that fails", ".", "false")):
            done = subprocess.run([*AMALGAMATE, folder], cwd=self.folder, stderr=subprocess.PIPE,
                                  text=True, check=False, env=dict(os.environ, CC=compiler))
            tap.check(done.returncode == 1 and re.fullmatch(r"amalgamate: (file|no-such-compiler|false).*\n", done.stderr),
                      f"amalgamate, {name}: a message", done.stderr)

    def build(self, name, command, *arguments):
        return tap.check_runs([*cached(command), *arguments], f"{name}: it compiles", cwd=self.folder) is not None

    def test_kernels(self, command, flags, parts=()):
        """With internal names visible, so that the tests can run every table."""
        name = " ".join(["one file,", command, *flags] + (["without"] if parts else []) + list(parts))
        if self.build(name, command, *flags, *WARNINGS, *without(parts), "-DDYNNORM_INTERNAL=", "-c", "dynnorm.c"):
            emulator = EMULATORS.get(command, ())
            compile_test = [command, "-static"] if emulator else [command]
            embedding.check_kernels([self.folder / "dynnorm.o"], self.folder, name, parts, compile_test, emulator)

    def test_commands(self):
        """Those of the page, but with fewer parts. The program also runs on a CPU without AVX."""
        name = "one file, the page's commands"
        (self.folder / "norms.c").write_text(embedding.readme.program)
        for line in embedding.examples("sh", "amalgamate")[0].splitlines()[1:]:
            line = " ".join([line, *without(LEFT_OUT_WITH_TYPES)])
            if tap.check_runs(line, f"{name}: {line}", shell=True, cwd=self.folder) is None:
                return
        program = self.folder / "norms"
        embedding.check_readme_program([program], name)
        if installed("qemu-x86_64", f"{name}, without AVX"):
            embedding.check_readme_program(["qemu-x86_64", "-cpu", "Nehalem", program], f"{name}, without AVX")
        tap.check_equal(defined_names(self.folder / "dynnorm.o"), self.public,
                        f"{name}: only the header's functions are visible")
        embedding.check_left_out(["cc", f"-I{self.folder}", source / "test/package/left_out.c", "dynnorm.o", "-lm"],
                                 self.folder, name, LEFT_OUT_WITH_TYPES)

    def test_other_cpus(self):
        """Those for which there is plain C alone: the README's program prints the same."""
        (self.folder / "norms.c").write_text(embedding.readme.program)
        for cpu, triple in (("riscv64", "riscv64-linux-gnu"), ("ppc64le", "powerpc64le-linux-gnu"),
                            ("s390x", "s390x-linux-gnu")):
            name = f"one file, {cpu}"
            if (installed(f"{triple}-gcc", name) and installed(f"qemu-{cpu}", name) and
                    self.build(name, f"{triple}-gcc", "-O2", *WARNINGS, *without(LEFT_OUT_WITH_TYPES), "-I.", "-static",
                               "norms.c", "dynnorm.c", "-o", "norms", "-lm")):
                embedding.check_readme_program([f"qemu-{cpu}", self.folder / "norms"], name)

    def test_prefix(self):
        name = "one file, DYNNORM_PREFIX"
        arguments = ["-DDYNNORM_PREFIX=engine_", *without(FEW)]
        (self.folder / "norms.c").write_text(embedding.readme.program)
        if (self.build(name, "cc", "-O1", *arguments, "-c", "dynnorm.c") and
                tap.check_runs(["cc", *arguments, "-I.", "norms.c", "dynnorm.o", "-o", "norms", "-lm"],
                               f"{name}: the README's program builds", cwd=self.folder) is not None):
            tap.check_equal(defined_names(self.folder / "dynnorm.o"), [f"engine_{name}" for name in self.public],
                            f"{name}: every name has the prefix")
            embedding.check_readme_program([self.folder / "norms"], name)

    def test_static(self):
        name = "one file, DYNNORM_STATIC"
        (self.folder / "norms.c").write_text("#define DYNNORM_STATIC\n" + embedding.readme.program.replace(
            "#include <dynnorm.h>", '#include "dynnorm.c"'))
        if (self.build(name, "cc", *WARNINGS, "-O1", *without(FEW), "-c", "norms.c") and
                tap.check_runs(["cc", "norms.o", "-o", "norms", "-lm"], f"{name}: it links",
                               cwd=self.folder) is not None):
            tap.check_equal(defined_names(self.folder / "norms.o"), ["main"], f"{name}: no function is visible")
            embedding.check_readme_program([self.folder / "norms"], name)

    def test_changed_results(self):
        """clang's flags of which no macro tells: kernels that they change are not used. Then no call writes anything."""
        parts = ["dyt", "special_loops", *(part for part in FEW if part not in ("avx2", "types"))]
        (self.folder / "isa.c").write_text(CHANGED_RESULTS)
        plain_alone = ["scalar\n"] if platform.machine() == "x86_64" else ["none\n"]
        for flag, expected in (("-ffp-contract=off", ["avx2\n", "scalar\n"]), ("-ffp-contract=fast", plain_alone),
                               ("-funsafe-math-optimizations", ["none\n"]), ("-fno-signed-zeros", ["none\n"])):
            name = f"one file, clang {flag}"
            if (installed("clang", name) and
                    self.build(name, "clang", "-O1", flag, *without(parts), "-c", "isa.c") and
                    tap.check_runs(["clang", "isa.o", "-o", "isa", "-lm"], f"{name}: it links",
                                   cwd=self.folder) is not None):
                isa = tap.check_runs([self.folder / "isa"], f"{name}: it runs")
                tap.check(isa in expected, f"{name}: which kernels are used", f"{isa} instead of {expected}")

    def test_refusal(self, command):
        for flag in ("-ffast-math", "-Ofast", "-ffinite-math-only"):
            name = f"one file, {command} {flag}"
            if installed(command, name):
                done = subprocess.run([command, "-O2", flag, "-fsyntax-only", "dynnorm.c"], cwd=self.folder,
                                      stderr=subprocess.PIPE, text=True, check=False)
                tap.check(done.returncode != 0 and "must be compiled without" in done.stderr, f"{name} is refused",
                          done.stderr[-1000:])

    def test_size(self):
        name = "one file, RMSNorm forward alone"
        words = embedding.examples("sh", "SPECIAL_LOOPS")[-1].replace("\\\n", "").split()
        command = " ".join(["gcc", *words[1:]])
        if (not installed("gcc", name) or platform.machine() != "x86_64" or
                tap.check_runs(command, f"{name}: {command}", shell=True, cwd=self.folder) is None):
            return
        sizes = subprocess.run(["size", "dynnorm.o"], cwd=self.folder, stdout=subprocess.PIPE, text=True, check=True)
        size = int(sizes.stdout.splitlines()[1].split()[3])
        tap.check(size <= 60 << 10, f"{name}: {size} bytes of code and data, at most 60 KB")


if build:
    if not embedding.is_whole and not (embedding.is_thorough and build in THIN):
        tap.skip(" ".join(["one file,", *build]),
                 "a build of the single file takes minutes; test/run --all and .ci/run make some")
        tap.done()
    if not all(installed(program, " ".join(["one file,", *build])) for program in
               (build[0], *EMULATORS.get(build[0], ())[:1])):
        tap.done()
with tempfile.TemporaryDirectory() as temporary:
    one_file = OneFile(pathlib.Path(temporary))
    if not one_file.write():
        pass
    elif build:
        if embedding.is_whole:
            one_file.test_kernels(build[0], [build[1]])
        if build in THIN:
            more, parts = THIN[build]
            one_file.test_kernels(build[0], [build[1], *more], parts)
    else:
        one_file.test_failures()
        one_file.test_commands()
        if embedding.is_whole:
            one_file.test_other_cpus()
        one_file.test_prefix()
        one_file.test_static()
        one_file.test_changed_results()
        one_file.test_size()
        for compiler in COMPILERS:
            one_file.test_refusal(compiler)
tap.done()

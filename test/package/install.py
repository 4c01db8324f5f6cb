#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Installs into an empty folder and builds the README's program there: by the README's own line with pkg-config and by
CMake, in C and in C++, with the shared and the static library. Also builds the README's function for threads with the
library of executors, checks which names the libraries bring into a program, and what comes with the installed programs.

usage: install.py BUILD-FOLDER SOURCE-FOLDER
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import tap
from readme import Readme

build, source = map(pathlib.Path, sys.argv[1:])
readme = Readme(source)
LANGUAGES = {"C": ("cc", "norms.c"), "C++": ("c++", "norms.cc")}


def printed(command, env=None):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=env).stdout


def check_program(program, tree, name, shared):
    environment = dict(os.environ, LD_LIBRARY_PATH=tree.libraries)
    output = tap.check_runs([program], f"{name} runs", env=environment)
    tap.check_equal(output, readme.output, f"{name} prints what the README says")
    tap.check_equal(f"[{tree.soname}]" in printed(["readelf", "--dynamic", program]), shared, f"{name} {'needs' if shared else 'does not need'} the "
                    "shared library")


class Tree:
    """An installed tree."""

    def __init__(self, root):
        self.root = root
        self.header = next(root.rglob("dynnorm.h"))
        self.cmake = next(root.rglob("dynnormConfig.cmake")).parent
        self.pkg_config = next(root.rglob("dynnorm.pc")).parent
        self.libraries = str(self.pkg_config.parent)
        self.version = re.search(r'VERSION_STRING "(.*)"', self.header.read_text())[1]
        # Until 1.0 a minor version may change the interface.
        major, minor, _ = self.version.split(".")
        self.interface = major if int(major) else f"{major}.{minor}"
        self.soname = f"libdynnorm.so.{self.interface}"

    def shared_files(self):
        return list(pathlib.Path(self.libraries).glob("libdynnorm.so*"))


def test_pkg_config(tree, folder, shared):
    environment = dict(os.environ, PKG_CONFIG_PATH=str(tree.pkg_config), PKG_CONFIG_SYSROOT_DIR=str(tree.root))
    for language, (compiler, file) in LANGUAGES.items():
        name = f"pkg-config, {language}, {'shared' if shared else 'static'}"
        if not shutil.which(compiler):
            tap.skip(name, f"{compiler} is not installed")
            continue
        (folder / file).write_text(readme.program)
        line = readme.build_line.replace("norms.c", file).replace("cc ", compiler + " ", 1)
        if not shared:
            line = line.replace("pkg-config ", "pkg-config --static ")
        if tap.check_runs(line, f"{name}: {line}", shell=True, cwd=folder, env=environment) is not None:
            check_program(folder / "norms", tree, name, shared)


TRAINING_PROGRAM = """
#include <dynnorm.h>

%s
int main(void) {
    enum { TOKENS = 2, CHANNELS = 2 };
    float x[TOKENS * CHANNELS] = {1, 3, 6, 2}, y[TOKENS * CHANNELS], weight[CHANNELS] = {1, 2}, bias[CHANNELS] = {0, 1};
    float dy[TOKENS * CHANNELS] = {1, 2, 3, 4}, dx[TOKENS * CHANNELS], dweight[CHANNELS], dbias[CHANNELS];
    float mean[TOKENS], rstd[TOKENS];
    dynnorm_descriptor layer = DYNNORM_DESCRIPTOR_INIT;
    layer.operation = DYNNORM_LAYERNORM, layer.tokens = TOKENS, layer.channels = CHANNELS;
    layer.x.data = x, layer.y.data = y, layer.weight.data = weight, layer.bias.data = bias;
    if (forward_and_backward(&layer, dy, dx, dweight, dbias, mean, rstd) != DYNNORM_OK)
        return 2;
    /* n is -1, 1 in the first row and 1, -1 in the second: of two channels it is no more than a sign, so dx is 0. */
    for (int i = 0; i < TOKENS * CHANNELS; i++)
        if (!(dx[i] > -1e-6f && dx[i] < 1e-6f))
            return 3;
    return !(y[0] == -1 && y[1] == 3 && y[2] == 1 && y[3] == -1 && mean[0] == 2 && mean[1] == 4 && rstd[0] == 1 &&
             rstd[1] == 0.5f && dweight[0] == 2 && dweight[1] == -2 && dbias[0] == 4 && dbias[1] == 6);
}
"""


THREADS_PROGRAM = """
#include <dynnorm.h>
#include <stdlib.h>
#include <string.h>

%s
int main(void) {
    enum { TOKENS = 1000, CHANNELS = 100, BYTES = TOKENS * CHANNELS * sizeof(float) };
    float *x = malloc(BYTES), *whole = calloc(BYTES, 1), *split = calloc(BYTES, 1);
    for (int i = 0; i < TOKENS * CHANNELS; i++)
        x[i] = (float)(i %% 1009);
    dynnorm_descriptor call = DYNNORM_DESCRIPTOR_INIT;
    call.operation = DYNNORM_RMSNORM, call.tokens = TOKENS, call.channels = CHANNELS, call.x.data = x;
    call.y.data = whole;
    dynnorm_forward(&call);
    call.y.data = split;
    if (forward_on_all_cores(&call) != DYNNORM_OK)
        return 2;
    return whole[0] == whole[BYTES / sizeof(float) - 1] || memcmp(whole, split, BYTES) != 0;
}
"""


DESCRIPTOR_PROGRAM = """
#include <dynnorm.h>
#include <stdio.h>

%s
int main(void) {
    const float weight[2] = {1, 2};
    unsigned short x[2] = {0x4040, 0x4080}; /* 3 and 4, whose mean square is 12.5 */
    if (normalize_in_place(x, weight, 1, 2) != DYNNORM_OK)
        return 2;
    return !(x[0] == 0x3f59 && x[1] == 0x4011 && normalize_in_place(x, weight, 1, 0) == DYNNORM_ERROR_ZERO_CHANNELS);
}
"""


def test_functions(tree, folder):
    environment = dict(os.environ, LD_LIBRARY_PATH=tree.libraries)
    for what, program, does in (
            ("with a descriptor", DESCRIPTOR_PROGRAM % readme.descriptor, "and normalizes, and tells what is wrong"),
            ("for training", TRAINING_PROGRAM % readme.training, "and gives the gradients")):
        (folder / "function.c").write_text(program)
        command = ["cc", f"-I{tree.header.parent}", "function.c", "-o", "function", f"-L{tree.libraries}", "-ldynnorm"]
        if tap.check_runs(command, f"the README's function {what} builds", cwd=folder, env=environment) is not None:
            tap.check_runs([folder / "function"], does, env=environment)


def test_executors(tree, folder):
    name = "the README's function for threads"
    if not (tree.header.parent / "dynnorm_executors.h").is_file():
        tap.skip(name, "there are no executors in this build")
        return
    (folder / "threads.c").write_text(THREADS_PROGRAM % readme.threads)
    environment = dict(os.environ, LD_LIBRARY_PATH=tree.libraries)
    by_pkg_config = re.search(r"`(pkg-config --cflags --libs dynnorm_executors)`", readme.text)[1]
    flags = printed(by_pkg_config.split(), env=dict(os.environ, PKG_CONFIG_PATH=f"{tree.libraries}/pkgconfig"))
    command = ["cc", f"-I{tree.header.parent}", "threads.c", "-o", "threads", f"-L{tree.libraries}",
               *flags.split()]  # staged, the libraries are not below the prefix
    if tap.check_runs(command, f"{name} builds", cwd=folder, env=environment) is not None:
        tap.check_runs([folder / "threads"], "and computes the bits of the whole call", env=environment)
    exported = [line.split()[-1] for line in printed(
        ["nm", "--dynamic", "--defined-only", f"{tree.libraries}/libdynnorm_executors.so"]).splitlines()]
    tap.check_equal(exported, ["dynnorm_openmp_executor", "dynnorm_pthreadpool_executor"],
                    "the library of executors exports what its header declares, and nothing else")


def test_cmake(tree, folder, shared, options=()):
    name = " ".join(["cmake,", "shared" if shared else "static", *options])
    missing = [command for command in ("cmake", "c++") if not shutil.which(command)]
    if missing:
        tap.skip(name, f"{missing[0]} is not installed")
        return
    shutil.copy(source / "test/package/consumer/CMakeLists.txt", folder)
    for _, file in LANGUAGES.values():
        (folder / file).write_text(readme.program)
    # Names the package's folder, because where CMake looks below a prefix depends on the system.
    configure = ["cmake", "-G", "Ninja", "-S", folder, "-B", folder / "build", f"-Ddynnorm_DIR={tree.cmake}", *options]
    if (tap.check_runs(configure, f"{name} finds the package") is not None and
            tap.check_runs(["cmake", "--build", folder / "build"], f"{name} builds") is not None):
        for program in ("norms_c", "norms_cc"):
            check_program(folder / "build" / program, tree, f"{name}: {program}", shared)


def test_cmake_versions(tree, folder):
    """Checks which versions find_package accepts as compatible."""
    if not shutil.which("cmake"):
        tap.skip("cmake, versions", "cmake is not installed")
        return
    version_file = tree.cmake / "dynnormConfigVersion.cmake"
    installed = tree.version
    major, minor, patch = map(int, installed.split("."))
    script = folder / "version.cmake"
    for version, compatible in (
            (installed, True), (f"{major}.{minor}", True), (f"{major}.{minor}.{patch + 1}", False),
            (f"{major}.{minor + 1}", False), (f"{major + 1}", False), (f"{major + 1}.{minor}", False)):
        script.write_text(f"set(PACKAGE_FIND_VERSION {version})\ninclude({version_file})\n"
                          f"if(NOT PACKAGE_VERSION_COMPATIBLE STREQUAL {str(compatible).upper()})\n"
                          "message(FATAL_ERROR ${PACKAGE_VERSION_COMPATIBLE})\nendif()\n")
        tap.check_runs(["cmake", "-P", script], f"cmake, {version} is {'' if compatible else 'not '}compatible with "
                       f"{installed}")


def test_calibrate(tree):
    program = next(tree.root.rglob("dynnorm-calibrate"), None)
    if not program:
        tap.skip("dynnorm-calibrate", "it is not built")
        return
    output = tap.check_runs([program, "--version"], "dynnorm-calibrate runs",
                            env=dict(os.environ, LD_LIBRARY_PATH=tree.libraries))
    tap.check_equal(output, f"dynnorm-calibrate {tree.version}\n", "and names the library's version")


def test_installed_with_programs(tree):
    """Programs find the library where the system or the user says, and each has a manual page."""
    for program in tree.root.glob("**/bin/*"):
        dynamic = printed(["readelf", "--dynamic", program])
        tap.check("RUNPATH" not in dynamic and "RPATH" not in dynamic, f"{program.name} has no RUNPATH", dynamic)
        pages = [page.name for page in tree.root.rglob(f"man1/{program.name}.1")]
        tap.check_equal(pages, [f"{program.name}.1"], f"{program.name} has a manual page")


def test_licence(tree):
    licences = [file.read_text() for file in tree.root.rglob("licenses/dynnorm/LICENSE")]
    tap.check_equal(licences, [(source / "LICENSE").read_text()], "the licence is installed")


def test_versions(tree):
    """The header, the soname, the symbols' version and pkg-config tell of one version."""
    header = tree.header.read_text()
    numbers = [re.search(rf"VERSION_{part} (\d+)", header)[1] for part in ("MAJOR", "MINOR", "PATCH")]
    tap.check_equal(".".join(numbers), tree.version, "the header's numbers and its string are one version")
    version = re.search(r"^Version: (.*)$", next(tree.pkg_config.glob("dynnorm.pc")).read_text(), re.MULTILINE)[1]
    tap.check_equal(version, tree.version, "pkg-config has the header's version")
    library = pathlib.Path(tree.libraries, "libdynnorm.so")
    tap.check(f"[{tree.soname}]" in printed(["readelf", "--dynamic", library]), f"the soname is {tree.soname}")


def test_shared_symbols(tree):
    header = re.sub(r"/\*.*?\*/", "", tree.header.read_text(), flags=re.DOTALL)
    declared = set(re.findall(r"^DYNNORM_API [^;]*?\b(dynnorm_\w+)\(", header, re.MULTILINE))
    lines = printed(["nm", "--dynamic", "--defined-only", "--with-symbol-versions",
                     pathlib.Path(tree.libraries, "libdynnorm.so")]).splitlines()
    exported = {line.split()[-1] for line in lines if line.split()[-2] != "A"}  # A: the version node itself
    tap.check_equal(sorted(exported), sorted(f"{name}@@DYNNORM_{tree.interface}" for name in declared),
                    "the shared library exports what the header declares, and nothing else")


def test_static_symbols(tree, folder):
    archive = pathlib.Path(tree.libraries, "libdynnorm.a")
    lines = printed(["nm", "--extern-only", "--defined-only", archive]).splitlines()
    names = {line.split()[-1] for line in lines if len(line.split()) == 3}
    tap.check_equal(sorted(name for name in names if not name.startswith("dynnorm_")), [],
                    "every name in the static library begins with dynnorm_")
    # All of the archive becomes part of a shared object, in which a function of its own calls it.
    (folder / "user.c").write_text("#include <dynnorm.h>\nconst char *user(void) { return dynnorm_version(); }\n")
    command = ["cc", "-shared", "-fPIC", f"-I{tree.header.parent}", "user.c", "-o", "libuser.so",
               "-Wl,--whole-archive", archive, "-Wl,--no-whole-archive"]
    if tap.check_runs(command, "the static library can be linked into a shared object", cwd=folder) is not None:
        lines = printed(["nm", "--dynamic", "--defined-only", folder / "libuser.so"]).splitlines()
        tap.check_equal([line.split()[-1] for line in lines], ["user"], "which then exports none of its symbols")


if not shutil.which("readelf"):
    tap.skip("the installed library", "its tests read ELF files with readelf, which is not installed")
    tap.done()
with tempfile.TemporaryDirectory() as temporary:
    temporary = pathlib.Path(temporary)

    def work_folder():
        return pathlib.Path(tempfile.mkdtemp(dir=temporary))

    whole_root = temporary / "whole"
    if tap.check_runs(["meson", "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", whole_root],
                      "meson install") is None:
        tap.done()
    whole = Tree(whole_root)
    shutil.copytree(whole_root, temporary / "static", symlinks=True)
    static = Tree(temporary / "static")
    for file in static.shared_files():
        file.unlink()

    test_versions(whole)
    test_shared_symbols(whole)
    test_static_symbols(whole, work_folder())
    test_calibrate(whole)
    test_installed_with_programs(whole)
    test_licence(whole)
    test_pkg_config(whole, work_folder(), shared=True)
    test_pkg_config(static, work_folder(), shared=False)
    test_functions(whole, work_folder())
    test_executors(whole, work_folder())
    test_cmake(whole, work_folder(), shared=True)
    test_cmake(whole, work_folder(), shared=False, options=["-Ddynnorm_USE_STATIC_LIBS=ON"])
    test_cmake(static, work_folder(), shared=False)
    test_cmake_versions(whole, work_folder())
tap.done()

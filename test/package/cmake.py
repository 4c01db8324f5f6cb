#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Builds the library by CMake, in the ways that docs/embedding.md shows: by itself, in a project of its user with
add_subdirectory and with FetchContent, whole and with parts left out. Compares its bits with the manifest, tests its
element types, and compares what it installs with what meson installs. By itself and whole it is built only where
DYNNORM_TEST_WHOLE_LIBRARY names this test (test/harness/embedding.py).

usage: cmake.py BUILD-FOLDER SOURCE-FOLDER
"""
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile

import tap
from embedding import LEFT_OUT, LEFT_OUT_WITH_TYPES, Embedding

build, source = map(pathlib.Path, sys.argv[1:])
embedding = Embedding(source, build, "cmake")
GENERATE = ["cmake", "-G", "Ninja"]
if shutil.which("ccache"):
    GENERATE.append("-DCMAKE_C_COMPILER_LAUNCHER=ccache")


def printed(command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def installed_files(root):
    """Those that do not depend on the kind of library, by their places."""
    return {str(file.relative_to(root)): file.read_text(encoding="utf-8")
            for file in root.rglob("*") if file.suffix in (".h", ".pc", ".cmake") or file.name == "LICENSE"}


def exported(library):
    return sorted(line.split()[-1] for line in printed(
        ["nm", "--dynamic", "--defined-only", "--with-symbol-versions", library]).splitlines())


def is_built(name, folder, configure):
    return (tap.check_runs(configure, f"{name}: cmake") is not None and
            tap.check_runs(["cmake", "--build", folder / "build"], f"{name}: the build") is not None)


def test_by_itself(folder):
    name = "CMake, by itself"
    if not embedding.is_whole:
        tap.skip(name, "a build of all of the library takes minutes; test/run --all makes it")
        return
    options = {option["name"]: option["value"] for option in
               json.loads(printed(["meson", "introspect", "--buildoptions", build]))}
    configure = [*GENERATE, "-S", source, "-B", folder / "build", f"-DCMAKE_INSTALL_PREFIX={options['prefix']}",
                 f"-DCMAKE_INSTALL_LIBDIR={options['libdir']}",
                 f"-DDYNNORM_SLEEF={'ON' if embedding.has_sleef else 'OFF'}"]
    if not is_built(name, folder, configure):
        return
    static = [printed(["nm", "--extern-only", "--defined-only", root / "libdynnorm.a"])
              for root in (folder / "build", build)]
    names = [sorted({line.split()[-1] for line in text.splitlines() if len(line.split()) == 3}) for text in static]
    tap.check_equal(names[0], names[1], f"{name}: the static library has the functions of the one by meson")
    libraries = [folder / "build/libdynnorm.a"] + (["-lsleef", "-DDYNNORM_HAVE_SLEEF"] if embedding.has_sleef else [])
    embedding.check_kernels(libraries, folder, name)
    cmake_root, meson_root = folder / "by-cmake", folder / "by-meson"
    if (tap.check_runs(["cmake", "--install", folder / "build"], f"{name}: cmake --install",
                       env=dict(os.environ, DESTDIR=str(cmake_root))) is not None and
            tap.check_runs(["meson", "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", meson_root],
                           f"{name}: meson install") is not None):
        tap.check_equal(installed_files(cmake_root), installed_files(meson_root),
                        f"{name}: it installs the header and the package files that meson installs")
        library = next(meson_root.rglob("libdynnorm.a")).relative_to(meson_root)
        tap.check((cmake_root / library).is_file(), f"{name}: it installs {library.name} at the same place")


def test_add_subdirectory(folder):
    """Also under a parent's -ffast-math, which must not reach the library."""
    name = "CMake, add_subdirectory"
    (folder / "libdynnorm").symlink_to(source)
    (folder / "CMakeLists.txt").write_text(embedding.examples("cmake", "add_subdirectory")[0])
    (folder / "norms.c").write_text(embedding.readme.program)
    configure = [*GENERATE, "-S", folder, "-B", folder / "build", f"-DDYNNORM_WITHOUT={';'.join(LEFT_OUT)}",
                 "-DDYNNORM_SLEEF=OFF", "-DCMAKE_C_FLAGS=-ffast-math"]
    if not is_built(name, folder, configure):
        return
    embedding.check_readme_program([folder / "build/norms"], name)
    library = folder / "build/libdynnorm/libdynnorm.a"
    embedding.check_left_out(["cc", f"-I{source / 'include'}", source / "test/package/left_out.c", library, "-lm"],
                             folder, name, LEFT_OUT)
    embedding.check_kernels([library], folder, name, without=LEFT_OUT)
    tap.check("avx512" not in printed(["nm", library]), f"{name}: an instruction set that is left out has no code")


def test_fetch_content(folder):
    """The shared library. Only its kind is new, so it has but few kernels."""
    parts = [*LEFT_OUT_WITH_TYPES, "avx2"]
    name = "CMake, FetchContent"
    with tarfile.open(folder / "libdynnorm.tar.gz", "w:gz") as archive:
        for part in ("CMakeLists.txt", "executors", "include", "packaging", "src"):
            archive.add(source / part, f"libdynnorm/{part}")
    (folder / "CMakeLists.txt").write_text(embedding.examples("cmake", "FetchContent")[0])
    (folder / "norms.c").write_text(embedding.readme.program)
    configure = [*GENERATE, "-S", folder, "-B", folder / "build", f"-DDYNNORM_WITHOUT={';'.join(parts)}",
                 "-DDYNNORM_SLEEF=OFF", "-DBUILD_SHARED_LIBS=ON"]
    if not is_built(name, folder, configure):
        return
    embedding.check_readme_program([folder / "build/norms"], name)
    # The shared library hides the kernels. They are in its objects.
    objects = [path for path in (folder / "build/_deps").rglob("*.o") if "executors" not in str(path)]
    embedding.check_kernels(sorted(objects), folder, name, without=parts)
    if platform.system() != "Linux":
        tap.skip(f"{name}: the shared library", "its name and its symbols are looked at on Linux only")
        return
    by_cmake = next((folder / "build").rglob("libdynnorm.so")).resolve()
    by_meson = next(build.glob("libdynnorm.so")).resolve()
    tap.check_equal(by_cmake.name, by_meson.name, f"{name}: the shared library has the version in its name")
    tap.check_equal(exported(by_cmake), exported(by_meson), f"{name}: it exports what the library by meson exports")
    sonames = [line.split()[-1] for library in (by_cmake, by_meson)
               for line in printed(["readelf", "--dynamic", library]).splitlines() if "SONAME" in line]
    tap.check_equal(sonames[0], sonames[1], f"{name}: it has the same soname")


def test_unknown_part(folder):
    command = [*GENERATE, "-S", source, "-B", folder, "-DDYNNORM_WITHOUT=dit"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    tap.check(done.returncode != 0 and "there is no dit" in done.stdout, "CMake: an unknown part is an error",
              done.stdout)


if not shutil.which("cmake"):
    tap.skip("the library, built by CMake", "cmake is not installed")
    tap.done()
with tempfile.TemporaryDirectory() as temporary:
    for test in (test_by_itself, test_add_subdirectory, test_fetch_content, test_unknown_part):
        test_folder = pathlib.Path(temporary, test.__name__)
        test_folder.mkdir()
        test(test_folder)
tap.done()

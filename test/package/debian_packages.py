#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Tests the packages that scripts/debian_packages has made: what is in them, how it is hardened, what lintian says.

usage: debian_packages.py FOLDER SOURCE-FOLDER
"""
import pathlib
import re
import subprocess
import sys
import tempfile

import tap

folder, source = map(pathlib.Path, sys.argv[1:])
version = re.search(r'VERSION_STRING "(.*)"', (source / "include/dynnorm.h").read_text())[1]
interface = version if int(version.split(".")[0]) else ".".join(version.split(".")[:2])


def printed(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def unpack(name, root):
    """Unpacks a package and returns its files."""
    packages = list(folder.glob(f"{name}_{version}-*.deb"))
    if not tap.check(len(packages) == 1, f"there is one {name} of version {version}", f"{packages}"):
        return []
    printed("dpkg-deb", "--extract", packages[0], root / name)
    return [file for file in (root / name).rglob("*") if not file.is_dir()]


def test_hardening(file):
    dynamic, segments = printed("readelf", "--dynamic", file), printed("readelf", "--program-headers", "--wide", file)
    tap.check("GNU_RELRO" in segments and "BIND_NOW" in dynamic,
              f"{file.name}: read-only after relocation, bound at once")
    tap.check("RUNPATH" not in dynamic and "RPATH" not in dynamic, f"{file.name}: no RUNPATH")
    if file.parent.name == "bin":
        tap.check("PIE" in dynamic, f"{file.name}: position independent")


with tempfile.TemporaryDirectory() as temporary:
    root = pathlib.Path(temporary)
    libraries = []
    for package, library in (f"libdynnorm{interface}", "libdynnorm"), (f"libdynnorm-executors{interface}",
                                                                      "libdynnorm_executors"):
        files = unpack(package, root)
        tap.check_equal(sorted(file.name for file in files if "lib" == file.relative_to(root).parts[2]),
                        [f"{library}.so.{interface}", f"{library}.so.{version}"], f"{package} has the library")
        libraries += files
    files = unpack("libdynnorm-dev", root)
    development = {file.name for file in files}
    wanted = {"dynnormConfig.cmake", "dynnormConfigVersion.cmake"}
    for name in "dynnorm", "dynnorm_executors":
        wanted |= {f"{name}.h", f"lib{name}.a", f"lib{name}.so", f"{name}.pc"}
    tap.check_equal(sorted(wanted - development), [], "libdynnorm-dev has what a build needs")
    documents = {"README.md"} | {file.name for file in (source / "docs").glob("*.md")}
    tap.check_equal(sorted(documents - development), [], "libdynnorm-dev has the documents")
    broken = [f"{file.name}: {link}" for file in files if file.suffix == ".md"
              for link in re.findall(r"\]\(([^)#:]+)", file.read_text())
              if pathlib.Path(link).name in documents and not (file.parent / link).exists()]
    tap.check_equal(broken, [], "the documents find one another")
    tools = unpack("dynnorm-tools", root)
    for program in "dynnorm-bench", "dynnorm-calibrate":
        names = [file.name for file in tools if file.name.startswith(program)]
        tap.check_equal(sorted(names), [program, f"{program}.1.gz"], f"dynnorm-tools has {program} and its manual page")
    for file in [*libraries, *tools]:
        if not file.is_symlink() and file.read_bytes().startswith(b"\x7fELF"):
            test_hardening(file)

lintian = ["lintian", "--allow-root", "--fail-on", "error,warning,info", "--display-info", *folder.glob("*.changes")]
done = subprocess.run(lintian, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
tap.check_equal((done.returncode, done.stdout), (0, ""), "lintian has nothing to say")
tap.done()

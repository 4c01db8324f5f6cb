#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Builds and runs the README's program in a meson project that has libdynnorm as a subproject.

usage: subproject.py SOURCE-FOLDER
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import tap
from readme import Readme

source = pathlib.Path(sys.argv[1])
readme = Readme(source)

with tempfile.TemporaryDirectory() as temporary:
    project = pathlib.Path(temporary, "consumer")
    build = project / "build"
    (project / "subprojects").mkdir(parents=True)
    (project / "subprojects/dynnorm").symlink_to(source)
    shutil.copy(source / "test/package/consumer/meson.build", project)
    (project / "norms.c").write_text(readme.program)

    # One kind of library and no debugging information: quicker.
    setup = ["meson", "setup", build, project, "--force-fallback-for=dynnorm", "-Dbuildtype=plain",
             "-Ddynnorm:default_library=static"]
    if (tap.check_runs(setup, "meson setup with the fallback") is not None and
            tap.check_runs(["ninja", "-C", build], "the build") is not None):
        tap.check_equal(tap.check_runs([build / "norms"], "the program runs"), readme.output,
                        "it prints what the README says")
        tests = subprocess.run(["meson", "introspect", "--tests", build], stdout=subprocess.PIPE, check=True).stdout
        tap.check_equal(json.loads(tests), [], "the subproject brings no tests")
tap.done()

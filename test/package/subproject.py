#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Builds and runs the README's program in a meson project that has libdynnorm as a subproject, with parts left out.
Compares the bits of the subproject with the manifest.

usage: subproject.py BUILD-FOLDER SOURCE-FOLDER
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import tap
from embedding import LEFT_OUT_WITH_TYPES, Embedding

source = pathlib.Path(sys.argv[2])
embedding = Embedding(source, sys.argv[1])

with tempfile.TemporaryDirectory() as temporary:
    project = pathlib.Path(temporary, "consumer")
    build = project / "build"
    (project / "subprojects").mkdir(parents=True)
    (project / "subprojects/dynnorm").symlink_to(source)
    shutil.copy(source / "test/package/consumer/meson.build", project)
    (project / "norms.c").write_text(embedding.readme.program)

    # One kind of library, part of the kernels, and no debugging information: that is quick, too.
    setup = ["meson", "setup", build, project, "--force-fallback-for=dynnorm", "-Dbuildtype=plain",
             "-Ddynnorm:default_library=static", f"-Ddynnorm:without={','.join(LEFT_OUT_WITH_TYPES)}"]
    if (tap.check_runs(setup, "meson setup with the fallback") is not None and
            tap.check_runs(["ninja", "-C", build], "the build") is not None):
        embedding.check_readme_program([build / "norms"], "a meson subproject")
        library = next(build.rglob("libdynnorm.a"))
        has_sleef = "DYNNORM_HAVE_SLEEF" in (build / "compile_commands.json").read_text(encoding="utf-8")
        libraries = [library] + (["-lsleef", "-DDYNNORM_HAVE_SLEEF"] if has_sleef else [])
        embedding.check_left_out(["cc", f"-I{source / 'include'}", source / "test/package/left_out.c", *libraries,
                                  "-lm"], project, "a meson subproject", LEFT_OUT_WITH_TYPES)
        embedding.check_kernels(libraries, project, "a meson subproject", without=LEFT_OUT_WITH_TYPES)
        tests = subprocess.run(["meson", "introspect", "--tests", build], stdout=subprocess.PIPE, check=True).stdout
        tap.check_equal(json.loads(tests), [], "the subproject brings no tests")
tap.done()

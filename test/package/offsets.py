#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Compares the tables of docs/descriptor.md with the header, by reading it and by compiling assertions.

usage: offsets.py SOURCE-FOLDER
"""
import pathlib
import re
import shutil
import sys

import tap
from descriptor_table import DescriptorTable

source = pathlib.Path(sys.argv[1])
table = DescriptorTable(source)
header = re.sub(r"/\*.*?\*/", "", (source / "include/dynnorm.h").read_text(encoding="utf-8"), flags=re.DOTALL)


def declared_fields(structure, prefix=""):
    """Names and types of its fields, with those of the structures in it."""
    body = re.search(r"typedef struct \{([^}]*)\} " + structure + ";", header)[1]
    fields = []
    for declaration in filter(None, (" ".join(part.split()) for part in body.split(";"))):
        c_type, name, array = re.fullmatch(r"(.*?)(\w+)(\[\d+\])?", declaration).groups()
        c_type = c_type.strip() + (array or "")
        if c_type in ("dynnorm_tensor", "dynnorm_vector", "dynnorm_executor"):
            fields += declared_fields(c_type, prefix + name + ".")
        else:
            fields.append((prefix + name, c_type))
    return fields


tap.check_equal([(field.name, field.type) for field in table.fields], declared_fields("dynnorm_descriptor"),
                "the table has the fields of the header, in order, with their types")

# Fields of the last version stand after the others, which end where the first of them begins.
versions = list(table.sizes)
for version, following in zip(versions, versions[1:]):
    first = next(field for field in table.fields if field.since == following)
    tap.check_equal(table.sizes[version], first.offset, f"{version} ends where {following} begins")
    tap.check(all((field.since == following) == (field.offset >= first.offset) for field in table.fields),
              f"the fields since {following} come last")
numbers = [re.search(rf"VERSION_{part} (\d+)", header)[1] for part in ("MAJOR", "MINOR")]
tap.check_equal(versions[-1], ".".join(numbers), "the last version is that of the header")

assertions = "\n".join(
    f'_Static_assert(sizeof(void *) != 8 || offsetof(dynnorm_descriptor, {field.name}) == {field.offset}, "");'
    for field in table.fields)
PROGRAM = f"""
#include <dynnorm.h>
{assertions}
_Static_assert(sizeof(void *) != 8 || sizeof(dynnorm_descriptor) == {table.sizes[versions[-1]]}, "");
_Static_assert(sizeof(dynnorm_operation) == sizeof(int) && sizeof(dynnorm_mode) == sizeof(int) &&
               sizeof(dynnorm_type) == sizeof(int), "");
"""
for compiler in ("gcc", "clang"):
    if shutil.which(compiler):
        tap.check_runs([compiler, "-std=c11", "-fsyntax-only", f"-I{source / 'include'}", "-x", "c", "-"],
                       f"{compiler} finds the fields at the table's offsets", input=PROGRAM)
    else:
        tap.skip(compiler, f"{compiler} is not installed")
tap.done()

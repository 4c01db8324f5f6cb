# SPDX-License-Identifier: BSD-2-Clause
"""Writes NumPy's .npy files, good and bad ones, for the calibrator's tests."""
import struct

_CODES = {"f2": "e", "f4": "f", "f8": "d", "u2": "H"}


def header(text, version=(1, 0)):
    length = struct.pack("<H" if version == (1, 0) else "<I", len(text))
    return b"\x93NUMPY" + bytes(version) + length + text.encode("utf-8")


def dictionary(shape, dtype="<f4", fortran_order=False):
    """The dictionary of a header as NumPy writes it, without the padding."""
    return f"{{'descr': '{dtype}', 'fortran_order': {fortran_order}, 'shape': {tuple(shape)}, }}\n"


def data(values, dtype="<f4"):
    return struct.pack(f"{dtype[0]}{len(values)}{_CODES[dtype[1:]]}", *values)


def array(values, shape, dtype="<f4"):
    return header(dictionary(shape, dtype)) + data(values, dtype)

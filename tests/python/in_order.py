"""Calls its functions in the order that the arguments give: the recorder meets the same functions in another order."""

import sys


def first():
    return bytearray(10_001)


def second():
    return bytearray(20_001)


def third():
    return [first(), second()]


kept = [{"first": first, "second": second, "third": third}[name]() for name in sys.argv[1:]]

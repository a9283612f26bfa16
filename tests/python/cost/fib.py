"""Calls, and nearly no allocations: fib.py NUMBER."""

import sys


def fib(number):
    return number if number < 2 else fib(number - 1) + fib(number - 2)


assert fib(int(sys.argv[1]))

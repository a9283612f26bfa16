"""Allocates 50 calls deep, through 2,500 different stacks: deep.py ROUNDS."""

import sys


def leaf(number):
    return [number] * 40 + [f"{number} {part}" for part in range(4)]


def even(depth, number):
    if depth == 0:
        return len(leaf(number))
    return even(depth - 1, number) if number >> depth & 1 else odd(depth - 1, number)


def odd(depth, number):
    if depth == 0:
        return len(leaf(number + 1))
    return odd(depth - 1, number) if number >> depth & 1 else even(depth - 1, number)


assert sum(even(50, number % 2500) for number in range(int(sys.argv[1])))

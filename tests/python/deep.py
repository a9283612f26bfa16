"""Goes down and up again, so that the interpreter maps and unmaps pieces of its own stack of frames."""


def down(depth):
    return down(depth - 1) if depth else 0


for depth in range(900):
    down(depth)
print("done")

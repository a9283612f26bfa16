"""Five blocks in another interpreter of the same thread, of some bytes more than 3,000,000, and five in one of a thread of its own,
of some bytes more than 4,000,000."""

import threading

try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

CODE = """
def inner_leaf(size):
    return bytearray(size)
def inner_middle(size):
    return inner_leaf(size)
for number in range(5):
    inner_middle({first} + number)
"""


def outer(first):
    interpreter = interpreters.create()
    interpreters.run_string(interpreter, CODE.format(first=first))
    interpreters.destroy(interpreter)


outer(3_000_000)
thread = threading.Thread(target=outer, args=(4_000_000,))
thread.start()
thread.join()

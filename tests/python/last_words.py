"""Functions that are first called one after the other, each 20 ms after the one before; then the process is killed."""

import os
import signal
import time

COUNT = 12
KEPT = []

time.sleep(0.3)
for number in range(COUNT):
    exec(f"def first_call_{number}(): KEPT.append(bytearray(70_000 + {number}))")
    globals()[f"first_call_{number}"]()
    time.sleep(0.02)
time.sleep(0.05)
os.kill(os.getpid(), signal.SIGKILL)

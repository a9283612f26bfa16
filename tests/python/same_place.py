"""2,000 functions, one after the other where the last one was, each with a name and a line of its own."""

from truth import events, libc, report

for number in range(2000):
    scope = {"libc": libc}
    lines = number % 50
    text = "\n" * lines + f"def function_{number}(size):\n    libc.malloc(size)\n"
    exec(compile(text, "made.py", "exec"), scope)
    size = 3_000_000 + number
    scope[f"function_{number}"](size); where = ["made.py", lines + 2, f"function_{number}"]
    events.append({"kind": "alloc", "size": size, "stack": [where]})
    del scope
report()

"""numpy and pandas: sums that do not depend on addresses, and one list of arrays that only grows."""

import numpy
import pandas

kept = []


def remember_batch(batch):
    kept.append(numpy.sqrt(batch) + 1)  # the leak


def batches(count):
    random = numpy.random.default_rng(7)
    for number in range(count):
        batch = random.random(20_000)
        remember_batch(batch)
        yield number, batch


def frame_of(number, batch):
    return pandas.DataFrame({"number": number, "group": (batch * 10).astype(int), "value": batch})


total = 0.0
for number, batch in batches(150):
    grouped = frame_of(number, batch).groupby("group")["value"].agg(["sum", "count", "max"])
    total += float(grouped["sum"].sum())
table = pandas.concat([frame_of(number, kept[number]) for number in range(5)])
text = table.head(2000).to_csv(index=False)
again = pandas.read_csv(__import__("io").StringIO(text))
pivot = table.pivot_table(index="number", columns="group", values="value", aggfunc="mean")
print(round(total, 6), len(kept), again.shape, round(float(pivot.to_numpy().sum()), 6))
left, right = numpy.linalg.qr(numpy.arange(10_000.0).reshape(100, 100) % 17)
print(round(float(abs(left @ right).sum()), 3))

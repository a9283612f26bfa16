import { expect, test } from "vitest";
import type { Threads } from "../../src/api/types.ts";
import { buildMatrix } from "../../src/features/threads/matrix.ts";

const amount = (bytes: number) => ({ bytes, count: 1 });

function threads(names: readonly string[], pairs: readonly [number, number, number][]): Threads {
  const thread = (name: string, id: number): Threads["threads"][number] => ({
    id,
    os_thread: 100 + id,
    name,
    started_ns: 0,
    ended_ns: null,
    allocated: amount(0),
    freed: amount(0),
    live: amount(0),
    leaked: amount(0),
    temporary: amount(0),
  });
  return {
    schema: "heaptrace.threads/1",
    from_ns: 0,
    to_ns: 1,
    threads: names.map((name, i) => thread(name, i + 1)),
    pairs: pairs.map(([allocated_by, freed_by, bytes]) => ({ allocated_by, freed_by, amount: amount(bytes) })),
    exactness: { events: 1, lost_events: 0, damaged_blocks: 0, watermark_ns: 1, complete: true },
  };
}

test("the busiest thread comes first; what lies off the diagonal is across", () => {
  const matrix = buildMatrix(
    threads(
      ["main", "pool"],
      [
        [1, 1, 10],
        [2, 2, 50],
        [2, 1, 40],
      ],
    ),
    "bytes",
  );
  expect(matrix.names).toEqual(["pool", "main"]);
  expect(matrix.cells).toEqual([
    [50, 40],
    [0, 10],
  ]);
  expect([matrix.across, matrix.total]).toEqual([40, 100]);
});

test("threads of one name are told apart by their ids", () => {
  const matrix = buildMatrix(
    threads(
      ["app", "app", "", "io"],
      [
        [1, 1, 4],
        [2, 2, 3],
        [3, 3, 2],
        [4, 4, 1],
      ],
    ),
    "bytes",
  );
  expect(matrix.names).toEqual(["app 1", "app 2", "thread 3", "io"]);
});

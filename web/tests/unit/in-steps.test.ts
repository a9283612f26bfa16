// Work in steps: the page answers in between, and what nobody waits for ends.
import { expect, test } from "vitest";
import { finished, inSteps } from "../../src/lib/in-steps.ts";

function* counting(steps: number, ms: number): Generator<void, number> {
  for (let i = 0; i < steps; i += 1) {
    const began = performance.now();
    while (performance.now() - began < ms);
    yield;
  }
  return steps;
}

test("all steps at once, or one after the other", async () => {
  expect(finished(counting(3, 0))).toBe(3);
  expect(await inSteps(counting(3, 0))).toBe(3);
});

test("others have their turn between steps", async () => {
  let turns = 0;
  const work = inSteps(counting(10, 5));
  let over = false;
  const others = (async () => {
    while (!over) {
      turns += 1;
      await new Promise((done) => setImmediate(done));
    }
  })();
  expect(await work).toBe(10);
  over = true;
  await others;
  expect(turns).toBeGreaterThan(3);
});

test("it ends when it is not wanted any more", async () => {
  const stop = new AbortController();
  let steps = 0;
  function* endless(): Generator<void, void> {
    for (;;) {
      steps += 1;
      const began = performance.now();
      while (performance.now() - began < 10);
      if (steps === 3) stop.abort();
      yield;
    }
  }
  await expect(inSteps(endless(), stop.signal)).rejects.toThrow(/abort/i);
  expect(steps).toBe(3);
});

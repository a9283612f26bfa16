// Work that is cut into steps, so that the page answers its user in between.

/** Longest time without a look at what the user does. */
const STEP_MS = 8;

/** All steps at once. */
export function finished<T>(steps: Generator<void, T>): T {
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
  }
}

/** The steps one after the other, with room for the user in between. Ends early when nobody waits for it any more. */
export async function inSteps<T>(steps: Generator<void, T>, signal?: AbortSignal): Promise<T> {
  let began = performance.now();
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
    if (performance.now() - began < STEP_MS) continue;
    await nextTask();
    signal?.throwIfAborted();
    began = performance.now();
  }
}

/** A timer would wait for some milliseconds more. */
function nextTask(): Promise<void> {
  return new Promise((done) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      done();
    };
    port2.postMessage(null);
  });
}

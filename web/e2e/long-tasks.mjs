// Long tasks of a page's main thread, from Chromium's own trace: the time on the clock, the processor time, which other
// programs do not change, and what took most of it.

const CATEGORIES = ["toplevel", "devtools.timeline", "disabled-by-default-devtools.timeline", "v8"];
/** Shorter tasks are not returned. */
const FROM_MS = 25;

/** Tasks of `page` during `run`, of 25 ms and more by the clock. */
export async function longTasks(browser, page, run) {
  await browser.startTracing(page, { categories: CATEGORIES });
  let trace;
  try {
    await run();
  } finally {
    trace = JSON.parse((await browser.stopTracing()).toString());
  }
  const events = trace.traceEvents;
  const main = new Set(
    events
      .filter(({ name, args }) => name === "thread_name" && args.name === "CrRendererMain")
      .map(({ pid, tid }) => `${pid} ${tid}`),
  );
  const own = events.filter(({ ph, pid, tid, dur }) => ph === "X" && dur > 0 && main.has(`${pid} ${tid}`));
  const tasks = own.filter(({ name, dur }) => name === "RunTask" && dur >= FROM_MS * 1000);
  return tasks.map((task) => {
    const inside = own.filter(
      ({ ts, dur, pid, tid }) =>
        pid === task.pid && tid === task.tid && ts >= task.ts && ts + dur <= task.ts + task.dur,
    );
    return { wall: task.dur / 1000, cpu: (task.tdur ?? task.dur) / 1000, place: placeOf(inside, task) };
  });
}

/** The innermost events that have at least 30 % of a task, with their functions. */
function placeOf(inside, task) {
  const large = inside.filter(
    (event) => event !== task && event.dur >= task.dur * 0.3 && !event.name.endsWith("RunTask"),
  );
  const names = large.sort((a, b) => b.dur - a.dur || a.ts - b.ts).map(textOf);
  return [...new Set(names)].slice(-4).join(" › ") || "many short events";
}

function textOf({ name, dur, args }) {
  const { functionName, url, lineNumber, columnNumber, type } = args?.data ?? {};
  const file = url ? url.replace(/^.*\//, "") : "";
  const where = file ? ` ${functionName || "anonymous"} ${file}:${lineNumber}:${columnNumber}` : "";
  return `${name}${type ? ` ${type}` : ""}${where} ${(dur / 1000).toFixed(0)} ms`;
}

// Which lines of the call tree are open, as the address has it: ids from the smallest up, each as what it has more than the
// one before, in base 36. `r` begins the ids of lines whose narrow rest was loaded; `*` is everything.
const REST = " rest";
/** More ids than this would not fit in an address. */
const MOST = 1500;
/** All lines are open. */
export const ALL = "*";
/** All lines are closed. */
const NONE = ".";

/** The text of a set of keys (see `keyOf`); nothing where there are too many. */
export function writeOpen(open: ReadonlySet<string>): string | undefined {
  if (open.size > MOST) return undefined;
  if (open.size === 0) return NONE;
  const lines: number[] = [];
  const rests: number[] = [];
  for (const key of open) {
    if (key.endsWith(REST)) rests.push(Number(key.slice(0, -REST.length)));
    else lines.push(Number(key));
  }
  return [written(lines), ...(rests.length > 0 ? [written(rests)] : [])].join("r");
}

/** The keys that a text stands for; nothing where it is none. */
export function readOpen(text: string | undefined): Set<string> | undefined {
  if (text === undefined || text === ALL) return undefined;
  const [lines = "", rests = ""] = text.split("r");
  return new Set([...read(lines).map(String), ...read(rests).map((id) => `${id}${REST}`)]);
}

function written(ids: number[]): string {
  let before = 0;
  return ids
    .sort((a, b) => a - b)
    .map((id) => {
      const step = (id - before).toString(36);
      before = id;
      // The letter that parts the lists is no digit here.
      return step.replaceAll("r", "R");
    })
    .join(".");
}

function read(text: string): number[] {
  const ids: number[] = [];
  let before = 0;
  for (const step of text === "" || text === NONE ? [] : text.split(".")) {
    before += Number.parseInt(step.replaceAll("R", "r"), 36);
    if (!Number.isSafeInteger(before)) break;
    ids.push(before);
  }
  return ids;
}

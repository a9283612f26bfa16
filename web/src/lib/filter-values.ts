// What a filter's value may look like; what the server would refuse is marked where it is and left out of questions.
import { readPattern } from "./pattern.ts";
import type { FilterName } from "./search-params.ts";

const SIZE = /^\d+(\.\d+)?\s*([kmgt](i?b)?|b)?$/i;
const ADDRESSES = /^(0x)?[\da-f]+\.\.(0x)?[\da-f]+$/i;
const TIME = /^\d+(\.\d+)?\s*(ns|us|µs|ms|s|m|min|h)?$/;

/** Reason why a value cannot be used; nothing if it can. */
export function faultOf(name: FilterName, value: string): string | undefined {
  switch (name) {
    case "min_size":
    case "max_size":
      return SIZE.test(value.trim()) ? undefined : "no size; sizes look like 64k or 1MiB";
    case "min_lifetime":
    case "max_lifetime":
      return TIME.test(value.trim()) ? undefined : "no time; times look like 200ms or 1.5s";
    case "address":
      return ADDRESSES.test(value.trim()) ? undefined : "no addresses; they look like 0x7f0000..0x7f8000";
    case "focus":
    case "ignore":
    case "hide":
    case "show":
    case "show_from":
    case "module":
    case "freed_by":
      return readPattern(value).kind === "invalid" ? "no regular expression" : undefined;
    case "thread":
    case "lifetime":
      return undefined;
    default:
      return undefined;
  }
}

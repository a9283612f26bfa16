// Transforms of backtraces, as the server takes them: one a line, `kind:target`. The keys are those of Firefox Profiler,
// but for `d`, which moves the graph here.
import { identityOf, type Named, nameIn } from "./identity.ts";

export const TRANSFORMS = {
  "merge-function": { key: "m", label: "Merge function", hint: "its callers hold what it held" },
  "merge-node": { key: "M", label: "Merge this call only", hint: "its caller holds what it held" },
  "focus-function": { key: "f", label: "Focus on function", hint: "only stacks with it, from it on" },
  "focus-subtree": { key: "F", label: "Focus on subtree", hint: "only stacks through this frame, from it on" },
  "focus-inverted": { key: "I", label: "Focus on function, inverted", hint: "only stacks with it, down to it" },
  "collapse-function": { key: "c", label: "Collapse function", hint: "it holds what it called" },
  "collapse-module": { key: "C", label: "Collapse module", hint: "of its calls within itself the first stays" },
  "collapse-recursion": { key: "r", label: "Collapse recursion", hint: "one frame, with what lies between" },
  "collapse-direct-recursion": { key: "R", label: "Collapse direct recursion", hint: "one frame for calls of itself" },
  "drop-function": { key: "D", label: "Drop function", hint: "stacks with it do not count" },
} as const;

export type TransformKind = keyof typeof TRANSFORMS;
export const TRANSFORM_KINDS = Object.keys(TRANSFORMS) as TransformKind[];

export interface Transform {
  kind: TransformKind;
  /** A function's identity, a module's file name, or the id of a frame; empty: every function. */
  target: string;
}

/** What can be transformed: a frame of the graph. */
interface FrameSubject extends Named {
  /** The frame's id, where it stands for one path from the program's entry. */
  id?: number | undefined;
}

/** The server takes so many at most. */
const MOST = 32;

export function readTransforms(text: string | undefined): Transform[] {
  return (text ?? "").split("\n").flatMap((line): Transform[] => {
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const kind = TRANSFORM_KINDS.find((known) => known === name);
    return kind ? [{ kind, target: colon < 0 ? "" : line.slice(colon + 1) }] : [];
  });
}

/** `undefined` where there are none. */
export function writeTransforms(transforms: readonly Transform[]): string | undefined {
  if (transforms.length === 0) return undefined;
  return transforms.map(({ kind, target }) => (target === "" ? kind : `${kind}:${target}`)).join("\n");
}

/** The transform of a kind for a frame; nothing where it means nothing there. */
export function transformOf(kind: TransformKind, frame: FrameSubject): Transform | undefined {
  const target =
    kind === "collapse-module"
      ? frame.module
      : kind === "focus-subtree" || kind === "merge-node"
        ? frame.id?.toString()
        : identityOf(frame);
  // A line is one transform: no name of a compiler has a line break.
  return target && !/[\r\n]/.test(target) ? { kind, target } : undefined;
}

/** The list with one more; nothing where there is no room. */
export function withTransform(text: string | undefined, transform: Transform): string | undefined {
  const all = readTransforms(text);
  return all.length >= MOST ? undefined : writeTransforms([...all, transform]);
}

/** Without the one at a position. */
export function withoutTransform(text: string | undefined, at: number): string | undefined {
  return writeTransforms(readTransforms(text).filter((_, i) => i !== at));
}

/** Whether its target is the id of a frame. */
export const isOfNode = ({ kind }: Transform): boolean => kind === "focus-subtree" || kind === "merge-node";

/** What can be said of it without the recording. */
export function transformText(transform: Transform): { what: string; name: string } {
  const { kind, target } = transform;
  const isName = kind !== "collapse-module" && !isOfNode(transform);
  return { what: kind.replaceAll("-", " "), name: target === "" ? "all" : isName ? nameIn(target) : target };
}

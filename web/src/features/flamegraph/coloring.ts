// Which colour a frame has, and why.
import type { Flamegraph } from "../../api/types.ts";
import { changeColor, frameColor, type Theme } from "../../lib/colors.ts";
import { everyNode, type FlameNode } from "../../lib/flame-tree.ts";

/** By module; for growth by how much, red and blue. */
export function colorOf(tree: FlameNode, document: Flamegraph, theme: Theme): (node: FlameNode) => string {
  if (document.metric === "grown") {
    let largest = 0;
    for (const node of everyNode(tree)) if (node.parent) largest = Math.max(largest, Math.abs(node.value));
    return (node) => changeColor(node.value, largest, theme);
  }
  return (node) => {
    if (node.folded > 0 || !node.frame) return theme === "light" ? "oklch(0.93 0.003 260)" : "oklch(0.32 0.005 260)";
    return frameColor(node.frame.module, node.frame.name, theme);
  };
}

// Which colour a frame has, and why.
import type { Flamegraph } from "../../api/types.ts";
import { changeColor, frameColor, restColor, type Theme } from "../../lib/colors.ts";
import { everyNode, type FlameNode, nodeName } from "../../lib/flame-tree.ts";
import { formatPercent, formatValue } from "../../lib/format.ts";
import { shortName } from "../../lib/names.ts";

/** By module; for growth by how much, red and blue. */
export function colorOf(tree: FlameNode, document: Flamegraph, theme: Theme): (node: FlameNode) => string {
  if (document.metric === "grown") {
    let largest = 0;
    for (const node of everyNode(tree)) if (node.parent) largest = Math.max(largest, Math.abs(node.value));
    return (node) => changeColor(node.value, largest, theme);
  }
  return (node) => {
    if (node.folded > 0 || !node.frame) return restColor(theme);
    return frameColor(node.frame.module, node.frame.name, theme);
  };
}

/** What a reader of screens says of a frame. */
export function descriptionOf(document: Flamegraph): (node: FlameNode) => string {
  return (node) =>
    `${shortName(nodeName(node), 200)}, ${formatValue(node.value, document.unit)}, ${formatPercent(node.value / document.total)}`;
}

// The tree of an answer, with all that its first picture needs: made in steps before anybody draws it.

import type { Parameters } from "../../api/client.ts";
import { documentQuery, type Subject } from "../../api/queries.ts";
import type { Flamegraph } from "../../api/types.ts";
import { type FlameNode, nodeById, treeSteps, withCallers } from "../../lib/flame-tree.ts";
import { finished, inSteps } from "../../lib/in-steps.ts";
import type { ColorGroup } from "../../lib/search-params.ts";
import { paintSteps } from "../../ui/flame/coloring.ts";
import { functionSteps, layoutSteps } from "../../ui/flame/layout.ts";
import { themeNow } from "../../ui/theme.ts";

export interface FlameTree {
  /** The outermost caller. */
  top: FlameNode;
  /** The frame that was asked for: the same, unless the answer begins further down. */
  zoom: FlameNode;
}

const trees = new WeakMap<Flamegraph, FlameTree>();

function* steps(document: Flamegraph): Generator<void, FlameTree | undefined> {
  const zoom = yield* treeSteps(document, document.ancestors.length);
  if (!zoom) return undefined;
  const tree = { top: withCallers(zoom, document), zoom };
  trees.set(document, tree);
  return tree;
}

function* pictureSteps(recording: string, document: Flamegraph, wanted: ColorGroup | undefined): Generator<void, void> {
  const tree = yield* steps(document);
  if (!tree) return;
  yield;
  const layout = yield* layoutSteps(tree.top);
  yield;
  yield* functionSteps(layout);
  yield;
  yield* paintSteps(recording, tree.top, document, themeNow(), wanted);
  yield;
  nodeById(tree.top, tree.top.id);
}

/** The tree of an answer. */
export function treeOf(document: Flamegraph): FlameTree | undefined {
  return trees.get(document) ?? finished(steps(document));
}

/** A flame graph that can be drawn at once. `wanted`: what its colours are by, if somebody chose. */
export function graphQuery(subject: Subject, parameters: Parameters, wanted?: ColorGroup) {
  const query = documentQuery(subject, "flamegraph", parameters);
  return {
    ...query,
    queryFn: async (context: { signal: AbortSignal }): Promise<Flamegraph> => {
      const document = await query.queryFn(context);
      await inSteps(pictureSteps(subject.recording, document, wanted), context.signal);
      return document;
    },
  };
}

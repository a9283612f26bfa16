// The flame graph: which functions allocated the memory.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useMemo, useRef, useState } from "react";
import type { Flamegraph } from "../../api/types.ts";
import { type FlameNode, hidesMoreThan, nodeById } from "../../lib/flame-tree.ts";
import { isOfMoment } from "../../lib/moment.ts";
import { hasCanvas } from "../../ui/flame/has-canvas.ts";
import { usePage, useRequest } from "../../ui/page.ts";
import { Answer } from "../../ui/states.tsx";
import { useWidth } from "../../ui/use-size.ts";
import { Graph } from "./graph.tsx";
import { Sandwich } from "./sandwich.tsx";
import { graphQuery, treeOf } from "./trees.ts";
import "../../ui/flame/flame.css";

interface Detail {
  min_px: number;
  max_nodes: number;
}

/** What the server is asked for: on a canvas far more than can be seen at once, so that most zooms ask nobody. */
const DETAIL: Detail = hasCanvas() ? { min_px: 0.1, max_nodes: 50_000 } : { min_px: 1, max_nodes: 2000 };
/** Below a frame that was zoomed to: less is made anew while the zoom is drawn. */
const CLOSER_DETAIL = hasCanvas() ? { min_px: 1.5, max_nodes: 4000 } : {};
/** A running recording is asked each second. */
const RUNNING_DETAIL = hasCanvas() ? { min_px: 0.5, max_nodes: 10_000 } : DETAIL;
/** While the window is dragged, and first when it is released: few frames, quickly. */
const PREVIEW: Detail = { min_px: 3, max_nodes: 400 };
/** A folded rest that would be wider than this is requested from the server. */
const COARSE_PX = 3;
/** What is folded is requested where a function of it could be as wide. */
const SEEN_PX = 1;
/** After a click on a folded rest that has nowhere to zoom to. */
const FINE_PX = 0.02;

export function FlamegraphView() {
  const { search } = usePage();
  return search.sandwich === undefined ? <WholeGraph /> : <Sandwich key={search.sandwich} of={search.sandwich} />;
}

/** Whether all that an answer folds away would be narrower than can be seen below a frame that takes the whole width. */
function isFineEnough({ rows }: Flamegraph, top: FlameNode, here: FlameNode, asked: Detail): boolean {
  // Else the number of frames was the limit, and what is folded may have any width.
  if (rows.id.length >= 0.9 * asked.max_nodes) return false;
  return (asked.min_px * top.weight) / here.weight < SEEN_PX;
}

/** Collapsed by the server, over the whole tree: the page has only a part of it. */
function collapsed(transforms: unknown): string {
  const last = "collapse-direct-recursion";
  return typeof transforms === "string" && transforms !== "" ? `${transforms}\n${last}` : last;
}

function WholeGraph() {
  const { search, subject, brushing, running, report } = usePage();
  const request = useRequest();
  const host = useRef<HTMLDivElement>(null);
  const width = useWidth(host);
  const askedWidth = Math.max(200, Math.round(width / 100) * 100);
  const { root } = search;
  const [fine, setFine] = useState<number | null>(null);
  // From the begin of a drag to the answer in full.
  const [brushed, setBrushed] = useState(false);
  const isFine = fine !== null && fine === (root ?? -1);
  const detail = running ? RUNNING_DETAIL : DETAIL;
  const parameters = {
    ...request.metric,
    ...request.filters,
    ...(search.collapse && !report ? { transform: collapsed(request.filters["transform"]) } : {}),
    inverted: search.inverted,
    freeing: (search.freeing && request.metric["metric"] === "freed") || undefined,
    ...(search.pinned && !report && isOfMoment(request.metric["metric"])
      ? { pinned: true, pin_unit: search.pin_unit, unit: "bytes" }
      : {}),
    width: askedWidth,
    ...detail,
    ...(isFine ? { min_px: FINE_PX } : {}),
  };
  const preview = useQuery({
    ...graphQuery(subject, { ...parameters, ...PREVIEW }, search.color),
    enabled: width > 0 && brushed,
  });
  const previewWaits = brushed && !preview.error && (preview.data === undefined || preview.isPlaceholderData);
  const full = useQuery({
    ...graphQuery(subject, parameters, search.color),
    enabled: width > 0 && !brushing && !previewWaits,
  });
  const isHere = full.data !== undefined && !full.isPlaceholderData;
  if (brushing && !brushed) setBrushed(true);
  if (!brushing && brushed && (isHere || full.error)) setBrushed(false);
  const isPreview = brushed && preview.data !== undefined && !isHere;
  const whole = isPreview ? preview : full;
  const asked = isPreview ? PREVIEW : detail;
  const tree = useMemo(() => whole.data && treeOf(whole.data)?.top, [whole.data]);
  const here = root === undefined ? tree : tree && nodeById(tree, root);
  // After zooming to a frame that the first answer has in full, no request is needed.
  const hidesMuch = (at: FlameNode | undefined): boolean => {
    if (!at || !tree || !whole.data) return true;
    if (report || (!isFine && isFineEnough(whole.data, tree, at, asked))) return false;
    return hidesMoreThan(at, COARSE_PX / askedWidth);
  };
  // biome-ignore lint/correctness/useExhaustiveDependencies: all that the function reads
  const isCoarse = useMemo(
    () => root !== undefined && hidesMuch(here),
    [whole.data, tree, here, root, report, askedWidth, isFine, asked],
  );
  const closerQuery = (to: number | undefined) =>
    graphQuery(
      subject,
      { ...parameters, ...(brushing ? PREVIEW : isFine ? {} : CLOSER_DETAIL), root: to },
      search.color,
    );
  const closer = useQuery({ ...closerQuery(root), enabled: width > 0 && tree !== undefined && isCoarse });
  const client = useQueryClient();
  const prepare = ({ id }: FlameNode) => {
    // What was asked in full is of this frame alone.
    if (!tree || isFine || brushing || !hidesMuch(nodeById(tree, id))) return;
    void client.prefetchQuery(closerQuery(id));
  };
  const closerData = isCoarse && closer.data?.rows.id[0] === root ? closer.data : undefined;
  const closerTree = useMemo(() => closerData && treeOf(closerData), [closerData]);

  const shown = closerTree ?? (tree && { top: tree, zoom: here ?? tree });
  const document = closerData ?? whole.data;
  const waits = isCoarse && (closerData === undefined || closer.isPlaceholderData);
  const answer = {
    data: document,
    error: full.error ?? whole.error ?? (isCoarse ? closer.error : null),
    isPlaceholderData: whole.isPlaceholderData || (waits && !closer.error),
    refetch: () => (isCoarse && closer.error ? closer.refetch() : whole.refetch()),
  };
  return (
    <div ref={host} className="flame-view" data-refining={(isPreview && !brushing) || undefined}>
      <Answer query={answer} what="the flame graph">
        {(data) => (
          <Graph
            document={data}
            tree={shown?.top}
            zoom={shown?.zoom}
            width={width}
            askFiner={() => setFine(root ?? -1)}
            prepare={prepare}
          />
        )}
      </Answer>
    </div>
  );
}

// Transforms of the stacks as chips, in the order in which they are applied.
import { useQuery } from "@tanstack/react-query";
import { documentQuery } from "../api/queries.ts";
import { shortName } from "../lib/names.ts";
import { plainTypes } from "../lib/plain-types.ts";
import {
  isOfNode,
  readTransforms,
  TRANSFORMS,
  type Transform,
  transformText,
  withoutTransform,
} from "../lib/transforms.ts";
import { usePage } from "../ui/page.ts";

export function TransformChips() {
  const { search, go } = usePage();
  const text = search.filters?.transform;
  const remove = (at: number) => {
    const { transform: _, ...rest } = search.filters ?? {};
    const left = withoutTransform(text, at);
    const filters = left === undefined ? rest : { ...rest, transform: left };
    go({ filters: Object.keys(filters).length > 0 ? filters : undefined, root: undefined });
  };
  return readTransforms(text).map((transform, at) => (
    <TransformChip
      key={`${at} ${transform.kind} ${transform.target}`}
      transform={transform}
      remove={() => remove(at)}
    />
  ));
}

function TransformChip({ transform, remove }: { transform: Transform; remove: () => void }) {
  const called = useNodeName(transform);
  const { what, name: target } = transformText(transform);
  const name = called ?? target;
  return (
    <span className="chip" title={`${name}: ${TRANSFORMS[transform.kind].hint}`}>
      <b>{what}</b> <span className="chip-value">{shortName(plainTypes(name), 60)}</span>
      <button type="button" aria-label={`Remove ${what} ${shortName(name, 60)}`} onClick={remove}>
        ✕
      </button>
    </span>
  );
}

/** The function of a transform's frame, which its address names by a number: asked of the whole tree, which has every frame. */
function useNodeName(transform: Transform): string | undefined {
  const { subject, report } = usePage();
  const root = Number(transform.target);
  const isAsked = isOfNode(transform) && Number.isSafeInteger(root) && root > 0;
  const { data, isPlaceholderData } = useQuery({
    ...documentQuery(subject, "flamegraph", { metric: "allocated", root, max_nodes: 10 }),
    enabled: isAsked && !report,
  });
  if (!isAsked || !data || isPlaceholderData || data.rows.id[0] !== root) return undefined;
  return data.frames[data.rows.frame[0] ?? -1]?.name;
}

// Transforms of the stacks, from a frame of the graph: by its menu, and by keys.
import { useMemo } from "react";
import type { FlameNode } from "../../lib/flame-tree.ts";
import { TRANSFORM_KINDS, TRANSFORMS, type TransformKind, transformOf, withTransform } from "../../lib/transforms.ts";
import type { MenuItem } from "../../ui/menu.tsx";
import { useNotice } from "../../ui/notice.tsx";
import { usePage } from "../../ui/page.ts";

export interface Transforming {
  menuOf: (node: FlameNode) => MenuItem[];
  /** Applies the transform of a key to the frame, if it has an effect there; returns whether the key is a transform's. */
  press: (key: string, node: FlameNode) => boolean;
}

export function useTransforms(): Transforming {
  const { search, go, report } = usePage();
  const notice = useNotice();
  return useMemo(() => {
    const of = (kind: TransformKind, node: FlameNode) => {
      if (report || !node.frame || node.folded > 0) return undefined;
      // A row of the inverted tree is no path from the program's entry.
      return transformOf(kind, { ...node.frame, id: search.inverted ? undefined : node.id });
    };
    const apply = (kind: TransformKind, node: FlameNode) => {
      const transform = of(kind, node);
      if (!transform) return;
      const text = withTransform(search.filters?.transform, transform);
      if (text === undefined) notice("The server accepts no more transforms; remove one first.");
      else go({ filters: { ...search.filters, transform: text }, root: undefined });
    };
    return {
      menuOf: (node) => {
        const kinds = TRANSFORM_KINDS.filter((kind) => of(kind, node) !== undefined);
        if (kinds.length === 0) return [];
        return [
          "separator",
          { heading: "Transform the stacks" },
          ...kinds.map((kind) => ({
            label: `${TRANSFORMS[kind].label}: ${TRANSFORMS[kind].hint}`,
            hint: TRANSFORMS[kind].key,
            run: () => apply(kind, node),
          })),
        ];
      },
      press: (key, node) => {
        const kind = TRANSFORM_KINDS.find((known) => TRANSFORMS[known].key === key);
        if (!kind || report) return false;
        apply(kind, node);
        return true;
      },
    };
  }, [search.filters, search.inverted, go, report, notice]);
}

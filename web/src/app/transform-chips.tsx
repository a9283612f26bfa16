// Transforms of the stacks as chips, in the order in which they are applied.
import { shortName } from "../lib/names.ts";
import { plainTypes } from "../lib/plain-types.ts";
import { readTransforms, TRANSFORMS, transformText, withoutTransform } from "../lib/transforms.ts";
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
  return readTransforms(text).map((transform, at) => {
    const { what, name } = transformText(transform);
    return (
      <span key={`${at} ${what} ${name}`} className="chip" title={`${name}: ${TRANSFORMS[transform.kind].hint}`}>
        <b>{what}</b> <span className="chip-value">{shortName(plainTypes(name), 60)}</span>
        <button type="button" aria-label={`Remove ${what} ${shortName(name, 60)}`} onClick={() => remove(at)}>
          ✕
        </button>
      </span>
    );
  });
}

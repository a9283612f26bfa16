// Blocks by size class: a bar each, which filters by it when it is clicked.
import { useQuery } from "@tanstack/react-query";
import { useMemo, useRef } from "react";
import { documentQuery } from "../../api/queries.ts";
import { formatBytes, formatExact, formatPercent, formatPowerOfTwo } from "../../lib/format.ts";
import { chosenClass, isOnly, sizeClasses } from "../../lib/size-classes.ts";
import { usePage, useRequest } from "../../ui/page.ts";
import { useWidth } from "../../ui/use-size.ts";

const HEIGHT = 34;
/** Width of `128 KiB`, and of the space around it. */
const LABEL_PX = 52;
/** A bar that a finger hits, and the space beside it. */
const BAR_PX = 28;

export function SizeClassBars() {
  const { search, subject, go } = usePage();
  const request = useRequest();
  // All classes stay in sight while one of them is chosen.
  const { min_size: _, max_size: __, ...filters } = request.filters;
  const { data } = useQuery(documentQuery(subject, "sizes", { ...request.window, ...filters }));
  const classes = useMemo(() => (data ? sizeClasses(data.histogram) : []), [data]);
  const unit = search.unit ?? "bytes";
  const largest = Math.max(1, ...classes.map((one) => one[unit]));
  const all = classes.reduce((sum, one) => sum + one[unit], 0);
  const set = useRef<HTMLFieldSetElement>(null);
  const width = Math.max(1, useWidth(set));
  // Where there is no room for all bars beside one another they are in lines of equal length.
  const lines = Math.max(1, Math.ceil((BAR_PX * classes.length) / width));
  const inLine = Math.max(1, Math.ceil(classes.length / lines));
  // Where there is no room for each label, every second or third class has one.
  const each = Math.max(1, Math.ceil((LABEL_PX * inLine) / width));
  const isLabelled = (at: number) => at % each === 0 && at + each <= inLine;
  return (
    <fieldset ref={set} className="size-classes" style={{ gridTemplateColumns: `repeat(${inLine}, minmax(0, 72px))` }}>
      <legend className="visually-hidden">Size classes, by {unit === "bytes" ? "bytes" : "blocks"}</legend>
      {classes.map((one, i) => {
        const chosen = isOnly(one, search.filters);
        const range =
          one.to === one.from ? formatBytes(one.from) : `${formatBytes(one.from)} to ${formatBytes(one.to)}`;
        const what = `${range}: ${formatExact(one.count, "count")}, ${formatBytes(one.bytes)}`;
        return (
          <button
            key={one.from}
            type="button"
            className="size-class"
            aria-pressed={chosen}
            aria-label={`${formatPowerOfTwo(one.from)}: ${what}`}
            title={`${what}, ${formatPercent(one[unit] / (all || 1))} of all. Click: only these`}
            onClick={() => go({ filters: chosenClass(one, search.filters), root: undefined })}
          >
            <span className="size-class-room" style={{ height: HEIGHT }}>
              <i style={{ height: Math.max(1.5, (one[unit] / largest) * HEIGHT) }} />
            </span>
            <span className="size-class-name">{isLabelled(i % inLine) && formatPowerOfTwo(one.from)}</span>
          </button>
        );
      })}
    </fieldset>
  );
}

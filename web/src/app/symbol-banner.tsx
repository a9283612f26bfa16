// When many bytes are in functions without names: how many, in which modules, why, and what to do about it.
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { documentQuery } from "../api/queries.ts";
import { formatPercent } from "../lib/format.ts";
import { adviceOn } from "../lib/unnamed.ts";
import { Button } from "../ui/controls.tsx";
import { usePage } from "../ui/page.ts";
import { useUnnamed } from "./use-unnamed.ts";

/** A smaller part is not worth a bar; the bar above the timeline has it. */
const WORTH = 0.05;

export function SymbolBanner() {
  const { subject, recording, view } = usePage();
  const [closed, setClosed] = useState<string | undefined>();
  const unnamed = useUnnamed();
  const enabled = closed !== recording.id && (unnamed?.part ?? 0) >= WORTH;
  const modules = useQuery({ ...documentQuery(subject, "modules"), enabled });
  if (!enabled || !unnamed || !modules.data) return null;
  const advice = adviceOn(unnamed, modules.data.modules);
  return (
    <aside className="symbol-banner" aria-label="Functions without names" data-view={view}>
      <span>
        <b>{formatPercent(unnamed.part)}</b> of the peak is in functions without names
        {advice.map((one) => (
          <span key={one.module}>
            {" "}
            · <b>{one.module}</b> {one.why}: {one.doing}
          </span>
        ))}
      </span>
      <Button quiet aria-label="Close this notice" onClick={() => setClosed(recording.id)}>
        ✕
      </Button>
    </aside>
  );
}

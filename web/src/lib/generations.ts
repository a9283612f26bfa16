// What lies between marks.
export interface Generation {
  name: string;
  from: number;
  to: number;
}

const FIRST = "(beginning)";

/** The recording cut at its marks, in the order of time; marks at one instant are one cut with both names. */
export function generationsOf(marks: readonly { t: number; text: string }[], end: number): Generation[] {
  const cuts: { t: number; text: string }[] = [{ t: 0, text: FIRST }];
  for (const mark of [...marks].sort((a, b) => a.t - b.t)) {
    if (mark.t >= end) continue;
    const last = cuts.at(-1);
    if (last && last.t === mark.t) last.text = last.text === FIRST ? mark.text : `${last.text}, ${mark.text}`;
    else cuts.push({ ...mark });
  }
  return cuts.map(({ t, text }, i) => ({ name: text, from: t, to: cuts[i + 1]?.t ?? end }));
}

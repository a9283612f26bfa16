// Where the marks of a value axis stand.

/** Axis marks at round numbers, of binary units for bytes; about `wanted` of them. */
export function roundSplits(min: number, max: number, base: 1000 | 1024, wanted: number): number[] {
  if (!(max > min)) return [min];
  const rough = (max - min) / wanted;
  const power = base ** Math.max(0, Math.floor(Math.log(rough) / Math.log(base)));
  const lead = rough / power;
  const decade = 10 ** Math.floor(Math.log10(lead));
  const nice = [1, 2, 5, 10].map((n) => n * decade).find((n) => n >= lead * (1 - 1e-9)) ?? lead;
  const step = Math.max(nice * power, base === 1000 && max < 3 ? 0.2 : 1);
  const out: number[] = [];
  for (let i = Math.ceil(min / step); i * step <= max; i += 1) out.push(i * step);
  return out;
}

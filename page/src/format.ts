// Values with their units, as the command line writes them (src/stepscope/model/units.py).

const TIMES: [number, string][] = [
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "µs"],
];

function four(value: number): string {
  const size = Math.abs(value);
  return value.toFixed(size < 9.9995 ? 3 : size < 99.995 ? 2 : size < 999.95 ? 1 : 0);
}

/** Nanoseconds in the unit that leaves one to three digits before the point. */
export function duration(ns: number | null): string {
  if (ns === null) return "–";
  for (const [factor, unit] of TIMES) {
    if (Math.abs(ns) >= factor * 0.99995) return `${four(ns / factor)} ${unit}`;
  }
  return `${Math.round(ns)} ns`;
}

/** A point on a time axis: as many digits as tell it from its neighbours, `step` ns away. */
export function instant(ns: number, step: number): string {
  const [factor, unit] = TIMES.find(([f]) => step * 10 >= f) ?? [1, "ns"];
  const decimals = Math.max(0, Math.ceil(-Math.log10(step / factor) - 1e-9));
  return `${(ns / factor).toFixed(Math.min(decimals, 3))} ${unit}`;
}

export function percent(value: number | null): string {
  return value === null ? "–" : `${value.toFixed(1)} %`;
}

export function bytes(count: number | null): string {
  if (count === null) return "–";
  for (const [power, unit] of [[40, "TiB"], [30, "GiB"], [20, "MiB"], [10, "KiB"]] as const) {
    if (count >= 2 ** power * 0.99995) return `${four(count / 2 ** power)} ${unit}`;
  }
  return `${count} B`;
}

export function gigabytes(rate: number | null): string {
  return rate === null ? "–" : `${four(rate)} GB/s`;
}

export function teraflops(rate: number | null): string {
  return rate === null ? "–" : `${four(rate)} TFLOP/s`;
}

/** Floating-point operations. */
export function flops(count: number | null): string {
  if (count === null) return "–";
  for (const [power, unit] of [[18, "E"], [15, "P"], [12, "T"], [9, "G"], [6, "M"]] as const) {
    if (count >= 10 ** power * 0.99995) return `${four(count / 10 ** power)} ${unit}FLOP`;
  }
  return `${count} FLOP`;
}

export function count(n: number, one: string, many = `${one}s`): string {
  return `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
}

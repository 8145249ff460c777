// Values with their units, as the command line writes them (src/stepscope/model/units.py).

type Units = [number, string][];

const TIMES: Units = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
const SIZES: Units = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]];

function four(value: number): string {
  const size = Math.abs(value);
  return value.toFixed(size < 9.9995 ? 3 : size < 99.995 ? 2 : size < 999.95 ? 1 : 0);
}

/** Nanoseconds in the unit that leaves one to three digits before the point. */
export function duration(ns: number | null): string {
  return alone(ns, TIMES);
}

function alone(value: number | null, units: Units): string {
  if (value === null) return "–";
  const [factor, unit] = units.find(([f]) => Math.abs(value) >= f * 0.99995) ?? units.at(-1)!;
  return `${factor > 1 ? four(value / factor) : Math.round(value)} ${unit}`;
}

/** For the durations of one column: all in one unit, so that they compare without reading the units. */
export const durations = (column: (number | null)[]) => alike(column, TIMES);

/** The same for bytes. */
export const sizes = (column: (number | null)[]) => alike(column, SIZES);

/** As the command line has it (src/stepscope/model/alike.py); what would read as zero keeps its own unit. */
function alike(column: (number | null)[], units: Units): (value: number | null) => string {
  const known = column.filter((v): v is number => !!v).map(Math.abs).sort((a, b) => a - b);
  if (!known.length) return (value) => alone(value, units);
  const largest = known.at(-1)!, middle = (known[(known.length - 1) >> 1]! + known[known.length >> 1]!) / 2;
  let at = units.findIndex(([f]) => largest >= f * 0.99995);
  if (at < 0) at = units.length - 1;
  while (at + 1 < units.length && middle < 0.01 * units[at]![0] && largest < 1e5 * units[at + 1]![0]) at += 1;
  const [factor, unit] = units[at]!;
  return (value) => {
    if (value === null || (value && factor > 1 && Math.abs(value) < 0.0005 * factor)) return alone(value, units);
    return `${value && factor > 1 ? four(value / factor) : Math.round(value)} ${unit}`;
  };
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

/** With a capital letter where it begins with a word: names of kernels stay as they are. */
export function sentence(text: string): string {
  return /^[a-z]+[ ,']/.test(text) ? text[0]!.toUpperCase() + text.slice(1) : text;
}

export function bytes(count: number | null): string {
  return alone(count, SIZES);
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

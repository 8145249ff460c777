// Measured kernels below their roofs: operations a second against operations per byte of DRAM, both logarithmic.

import { scaleLog } from "d3-scale";
import { Key, Prose, SCROLLS, Section } from "./section";
import { count, duration, durations, percent } from "./format";
import type { Roof, Roofline, RooflineKernel } from "./messages";

const WIDTH = 960, HEIGHT = 420;
const LEFT = 64, RIGHT = 16, TOP = 14, BOTTOM = 40;
const KINDS: Record<string, string> = { compute: "compute", bandwidth: "comm", latency: "late", overhead: "copy" };

export function RooflineSection({ part }: { part: Roofline }) {
  const used = Object.keys(KINDS).filter((by) => part.rows.some((row) => row.bound === by));
  const legend = <span class="keys">{used.map((by) => <Key kind={KINDS[by]!}>bound by {by}</Key>)}</span>;
  const longest = durations(part.rows.map((row) => row.dur_ns));
  return (
    <Section id="roofline" part={part} aside={legend}>
      <p><Prose text={part.statement} /></p>
      <Chart rows={part.rows} roofs={part.roofs} />
      <div {...SCROLLS} aria-label="kernels beside their roofs">
        <table class="figure">
          <thead>
            <tr>
              <th>kernel</th><th class="lesser">launches</th><th>longest</th><th class="text">bound by</th><th class="text lesser">nearest roof</th>
              <th class="wide">reached, 0 to 100 %</th><th /><th class="lesser">in the timeline</th>
            </tr>
          </thead>
          <tbody>{part.rows.map((row) => <Kernel row={row} longest={longest(row.dur_ns)} />)}</tbody>
        </table>
      </div>
      {part.left_out > 0 && <p class="dim">{count(part.left_out, "kernel")} that take less not shown</p>}
    </Section>
  );
}

function Kernel({ row, longest }: { row: RooflineKernel; longest: string }) {
  const kind = KINDS[row.bound ?? ""] ?? "wait";
  const seen = row.ops === null ? "–" : row.ops ? `${row.ops}×, by ${row.matched}` : row.matched;
  return (
    <tr>
      <th scope="row" class="kernel" title={row.name}>
        {row.name}
        {row.access && <small>{row.access}</small>}
      </th>
      <td class="lesser">{row.n}</td>
      <td>{longest}</td>
      <td class="text" title={row.why}>{row.bound ?? "–"}</td>
      <td class="text lesser">{row.roof ?? "–"}</td>
      <td class="wide">
        <div class="bar whole" title={row.stall ?? ""}><i class={kind} style={{ width: `${Math.min(row.roof_pct ?? 0, 100)}%` }} /></div>
      </td>
      <td>{percent(row.roof_pct)}</td>
      <td class="lesser">{seen}</td>
    </tr>
  );
}

function Chart({ rows, roofs }: { rows: RooflineKernel[]; roofs: Roof[] }) {
  const points = rows.filter((row) => (row.intensity ?? 0) > 0 && (row.tflops ?? 0) > 0);
  const slopes = roofs.filter((roof) => roof.bandwidth_gbps !== null);
  const levels = roofs.filter((roof) => roof.peak_tflops !== null);
  const dram = (slopes.find((roof) => roof.roof === "DRAM") ?? slopes[0])?.bandwidth_gbps;
  if (!points.length || !dram) return null;
  const top = Math.max(...levels.map((roof) => roof.peak_tflops!), ...points.map((row) => row.tflops!));
  const low = Math.min(1, ...points.map((row) => row.intensity!)) / 2;
  const high = 3 * Math.max(...points.map((row) => row.intensity!), (1e3 * top) / dram);
  const bottom = Math.min(...points.map((row) => row.tflops!), (low * dram) / 1e3) / 2;
  const x = scaleLog([low, high], [LEFT, WIDTH - RIGHT]);
  const y = scaleLog([bottom, 2 * top], [HEIGHT - BOTTOM, TOP]);
  const longest = Math.max(...points.map((row) => row.dur_ns ?? 0), 1);
  const tens = (from: number, to: number) => {
    const first = Math.ceil(Math.log10(from));
    return Array.from({ length: Math.max(0, Math.floor(Math.log10(to)) - first + 1) }, (_, i) => 10 ** (first + i));
  };
  return (
    <svg class="roofline" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label="roofline of the measured kernels">
      {tens(low, high).map((tick) => (
        <g><line class="grid" x1={x(tick)} x2={x(tick)} y1={TOP} y2={HEIGHT - BOTTOM} />
          <text x={x(tick)} y={HEIGHT - BOTTOM + 16} text-anchor="middle">{tick}</text></g>
      ))}
      {tens(bottom, 2 * top).map((tick) => (
        <g><line class="grid" x1={LEFT} x2={WIDTH - RIGHT} y1={y(tick)} y2={y(tick)} />
          <text x={LEFT - 7} y={y(tick) + 4} text-anchor="end">{tick}</text></g>
      ))}
      {slopes.map(({ roof, bandwidth_gbps: rate }) => {
        const from = Math.max(low, (1e3 * bottom) / rate!), to = Math.min(high, (1e3 * top) / rate!);
        const [x1, y1, x2, y2] = [x(from), y((from * rate!) / 1e3), x(to), y((to * rate!) / 1e3)];
        const turned = `translate(${x2} ${y2}) rotate(${(180 / Math.PI) * Math.atan2(y2 - y1, x2 - x1)})`;
        return (
          <g><line class={roof === "DRAM" ? "roof" : "roof inner"} x1={x1} y1={y1} x2={x2} y2={y2} />
            <text transform={turned} x="-14" y="-5" text-anchor="end">{roof} {(rate! / 1e3).toFixed(2)} TB/s</text></g>
        );
      })}
      {levels.map(({ roof, peak_tflops: peak }) => (
        <g><line class="roof" x1={x(Math.max(low, (1e3 * peak!) / dram))} x2={WIDTH - RIGHT} y1={y(peak!)} y2={y(peak!)} />
          <text x={WIDTH - RIGHT - 2} y={y(peak!) - 5} text-anchor="end">{roof} {peak!.toFixed(0)} TFLOP/s</text></g>
      ))}
      {points.map((row) => (
        <circle class={`kernel ${KINDS[row.bound ?? ""] ?? "wait"}`} cx={x(row.intensity!)} cy={y(row.tflops!)}
          r={4 + 8 * Math.sqrt((row.dur_ns ?? 0) / longest)}>
          <title>{`${row.name}\n${row.tflops!.toPrecision(3)} TFLOP/s (${row.precision}), ${row.intensity!.toPrecision(3)} FLOP/byte, ${duration(row.dur_ns)}\nbound by ${row.bound}: ${row.why}`}</title>
        </circle>
      ))}
      <text x={LEFT} y={HEIGHT - 6}>TFLOP/s upwards</text>
      <text x={WIDTH - RIGHT} y={HEIGHT - 6} text-anchor="end">FLOP per byte of DRAM</text>
    </svg>
  );
}

// Whether communication is hidden behind compute: time by stage, and the share that each rank hides.

import { Key, SCROLLS, Section } from "./section";
import { count, duration, durations, percent } from "./format";
import type { Overlap, OverlapRow } from "./messages";

export function OverlapSection({ part }: { part: Overlap }) {
  const longest = Math.max(...part.rows.map((row) => Math.max(row.comm_ns, row.barrier_ns)), 1);
  const exposed = durations(part.rows.map((row) => row.exposed_ns));
  const comm = durations(part.rows.map((row) => (row.n ? row.comm_ns : row.barrier_ns)));
  const barriers = part.rows.some((row) => row.barrier_ns > 0);
  const legend = (
    <span class="keys">
      <Key kind="comm">exposed</Key>
      <Key kind="hidden">hidden</Key>
      {barriers && <Key kind="barrier">in order with compute</Key>}
    </span>
  );
  return (
    <Section id="overlap" part={part} aside={legend}>
      <div {...SCROLLS} aria-label="overlap by stage">
        <table class="figure">
          <thead>
            <tr>
              <th>{part.by}</th><th class="wide">sum over ranks</th><th>exposed</th><th>of</th>
              <th>hidden</th><th class="strip lesser">each rank, 0 to 100 % hidden</th>
            </tr>
          </thead>
          <tbody>
            {part.rows.map((row) => (
              <tr>
                <th scope="row">{row.key}</th>
                <td class="wide"><Bars row={row} longest={longest} /></td>
                <td>{row.n ? exposed(row.exposed_ns) : "–"}</td>
                <td>{row.n ? comm(row.comm_ns) : `${comm(row.barrier_ns)} in order`}</td>
                <td>{percent(row.overlap_pct)}</td>
                <td class="strip lesser"><Strip row={row} /></td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Section>
  );
}

function Bars({ row, longest }: { row: OverlapRow; longest: number }) {
  const pieces = [
    ["comm", "exposed", row.exposed_ns],
    ["hidden", "hidden", row.comm_ns - row.exposed_ns],
    ["barrier", "in order with compute", row.barrier_ns],
  ] as const;
  return (
    <div class="bar" title={count(row.n, "op")}>
      {pieces.filter(([, , ns]) => ns > 0).map(([kind, name, ns]) => (
        <i class={kind} style={{ width: `${(100 * ns) / longest}%` }} title={`${name}: ${duration(ns)}`} />
      ))}
    </div>
  );
}

function Strip({ row }: { row: OverlapRow }) {
  return (
    <svg viewBox="-4 0 108 14" role="img" aria-label="share hidden on each rank">
      <line x1="0" x2="100" y1="7" y2="7" class="axis" />
      {row.each_pct.map((pct, i) => pct !== null && (
        <circle cx={Math.max(0, pct)} cy="7" r="3.2" class="dot"><title>{`rank ${row.rank[i]}: ${percent(pct)}`}</title></circle>
      ))}
    </svg>
  );
}

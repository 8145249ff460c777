// Across ranks: what collectives cost, and who makes whom wait.

import { Key, SCROLLS, Section } from "./section";
import { count, duration, durations, gigabytes, percent, sizes } from "./format";
import { useNames } from "./ranks";
import type { Collectives, Stragglers } from "./messages";

export function CollectivesSection({ part }: { part: Collectives }) {
  const longest = Math.max(...part.rows.map((row) => (row.wait_ns ?? 0) + (row.transfer_ns ?? 0)), 1);
  const transfer = durations(part.rows.map((row) => row.transfer_ns)), wait = durations(part.rows.map((row) => row.max_wait_ns));
  const size = sizes(part.rows.map((row) => row.bytes));
  const legend = <span class="keys"><Key kind="comm">transfer</Key><Key kind="wait">waiting of its ranks, together</Key></span>;
  return (
    <Section id="collectives" part={part} aside={legend}>
      <div {...SCROLLS} aria-label="collectives">
        <table class="figure">
          <thead>
            <tr>
              <th>group</th><th class="text">operation</th><th class="text">ranks</th><th class="lesser">n</th><th class="wide lesser" /><th>transfer</th>
              <th>longest wait</th><th class="lesser">bytes</th><th>median bus bw</th>
            </tr>
          </thead>
          <tbody>
            {part.rows.map((row) => (
              <tr>
                <th scope="row" class="cut" title={row.group ?? ""}>{row.axis ?? row.group ?? "–"}</th>
                <td class="text">{row.op}</td>
                <td class="text cut" title={row.ranks}>{row.ranks}</td>
                <td class="lesser">{row.n}</td>
                <td class="wide lesser">
                  <div class="bar">
                    <i class="comm" style={{ width: `${(100 * (row.transfer_ns ?? 0)) / longest}%` }} />
                    <i class="wait" style={{ width: `${(100 * (row.wait_ns ?? 0)) / longest}%` }}
                      title={`waiting: ${duration(row.wait_ns)}`} />
                  </div>
                </td>
                <td>{transfer(row.transfer_ns)}</td>
                <td>{wait(row.max_wait_ns)}</td>
                <td class="lesser">{size(row.bytes)}</td>
                <td>{gigabytes(row.busbw_p50_gbps)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {part.left_out > 0 && <p class="dim">{count(part.left_out, "smaller group")} not shown</p>}
    </Section>
  );
}

export function StragglersSection({ part }: { part: Stragglers }) {
  const nameOf = useNames();
  const longest = Math.max(...part.rows.map((row) => row.late_ns), 1);
  const late = durations(part.rows.map((row) => row.late_ns)), excess = durations(part.rows.map((row) => row.excess_ns));
  const named = part.rows.filter((row) => row.cause);
  const aside = <span class="dim">{named.length ? "" : "no rank takes longer than ranks that do the same"}</span>;
  return (
    <Section id="stragglers" part={part} aside={aside}>
      <div {...SCROLLS} aria-label="stragglers">
        <table class="figure">
          <thead>
            <tr>
              <th>rank</th><th class="wide">others waited for it</th><th /><th>share</th><th class="lesser">came last</th>
              <th>longer than its peers</th><th class="text">cause</th>
            </tr>
          </thead>
          <tbody>
            {part.rows.map((row) => (
              <tr>
                <th scope="row">{nameOf(row.rank)}</th>
                <td class="wide">
                  <div class="bar"><i class={row.cause ? "late" : "wait"} style={{ width: `${(100 * row.late_ns) / longest}%` }} /></div>
                </td>
                <td>{late(row.late_ns)}</td>
                <td>{percent(row.share_pct)}</td>
                <td class="lesser">{row.times_last}×</td>
                <td>{row.excess_ns ? excess(row.excess_ns) : "–"}</td>
                <td class="text">{row.cause ? <b class="cause">{row.cause}</b> : ""}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {part.left_out > 0 && <p class="dim">{count(part.left_out, "rank")} not shown</p>}
    </Section>
  );
}

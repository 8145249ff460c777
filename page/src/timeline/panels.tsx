// What stands below the drawing: a mark's details, a span's figures, and what a search found.

import { Command, Prose, SCROLLS } from "../section";
import { bytes, count, duration, durations, gigabytes, percent } from "../format";
import type { DetailsData, SearchData } from "../messages";
import type { Measured } from "./source";

function value(text: string, unit: string, start: number): string {
  if (unit === "time") return duration(Number(text));
  if (unit === "bytes") return bytes(Number(text));
  if (unit === "rate") return gigabytes(Number(text));
  if (unit === "percent") return percent(Number(text));
  return unit === "instant" ? `at ${duration(start)}; ${text} ns on the rank's own clock` : text;
}

export function DetailsPanel({ data, close, frame }: { data: DetailsData; close: () => void; frame: () => void }) {
  return (
    <div class="details" role="status">
      <button type="button" class="close" onClick={close} aria-label="Close">×</button>
      <b>{data.name}</b>
      <dl>
        <dt>takes</dt><dd>{duration(data.end - data.start)} on rank {data.rank} <button type="button" onClick={frame}>frame (f)</button></dd>
        {data.facts.map(([title, text, unit]) => <><dt>{title}</dt><dd>{value(text, unit, data.start)}</dd></>)}
      </dl>
      <Command text={data.command} />
    </div>
  );
}

const PARTS: ["compute_ns" | "comm_exposed_ns" | "copy_exposed_ns" | "idle_ns", string, string][] = [
  ["compute_ns", "compute", "compute"],
  ["comm_exposed_ns", "comm", "exposed communication"],
  ["copy_exposed_ns", "copy", "exposed copies"],
  ["idle_ns", "idle", "idle"],
];

export function SpanPanel({ data, name, close }: { data: Measured; name: string; close: () => void }) {
  const { sum, overlap } = data;
  const total = durations(data.kernels.map((kernel) => kernel.total_ns)), longest = durations(data.kernels.map((kernel) => kernel.max_ns));
  const share = (ns: number) => (sum.window_ns ? (100 * ns) / sum.window_ns : 0);
  return (
    <div class="details span" role="status">
      <button type="button" class="close" onClick={close} aria-label="Close">×</button>
      <b>{name}{duration(data.to - data.from)} on {count(data.ranks.length, "rank")}{data.ops !== null && `: ${count(data.ops, "op")}, ${duration(data.op_ns)} of work`}</b>
      <div class="bar">{PARTS.map(([key, kind]) => <i class={kind} style={{ width: `${share(sum[key])}%` }} />)}</div>
      <dl data-sums={JSON.stringify({ ...sum, ops: data.ops, op_ns: data.op_ns })}>
        {PARTS.map(([key, , title]) => <><dt>{title}</dt><dd>{duration(sum[key])}, {percent(share(sum[key]))}</dd></>)}
        {sum.comm_hidden_ns !== null && <><dt>hidden communication</dt><dd>{duration(sum.comm_hidden_ns)}</dd></>}
        {overlap && overlap.comm_ns > 0 && <>
          <dt>overlap</dt>
          <dd>{percent(100 * (1 - overlap.exposed_ns / overlap.comm_ns))} of {duration(overlap.comm_ns)} in {count(overlap.n, "communication op")}</dd>
        </>}
        {overlap && overlap.barrier_ns > 0 && <><dt>barriers</dt><dd>{duration(overlap.barrier_ns)}</dd></>}
      </dl>
      {data.kernels.length > 0 && <div {...SCROLLS} aria-label="kernels of the span">
        <table class="figure">
          <thead><tr><th>kernel</th><th class="text family">family</th><th>n</th><th>total</th><th>longest</th></tr></thead>
          <tbody>
            {data.kernels.map((kernel) => (
              <tr>
                <th scope="row" class="kernel" title={kernel.name}>{kernel.name}</th><td class="text family">{kernel.family}</td>
                <td>{kernel.n.toLocaleString("en")}</td><td>{total(kernel.total_ns)}</td><td>{longest(kernel.max_ns)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>}
      {data.notes.map((note) => <p class="dim"><Prose text={note} /></p>)}
      {data.commands.map((command) => <Command text={command} />)}
    </div>
  );
}

export function SearchPanel({ data, close }: { data: SearchData; close: () => void }) {
  const total = durations(data.names.map((row) => row.total_ns)), longest = durations(data.names.map((row) => row.longest_ns));
  return (
    <div class="details" role="status">
      <button type="button" class="close" onClick={close} aria-label="Close">×</button>
      <div {...SCROLLS} aria-label="names that match">
        <table class="figure">
          <thead><tr><th>name</th><th>n</th><th>total</th><th>longest</th></tr></thead>
          <tbody>
            {data.names.map(({ name, n, total_ns, longest_ns }) => (
              <tr>
                <th scope="row" class="kernel" title={name}>{name}</th>
                <td>{n.toLocaleString("en")}</td><td>{total(total_ns)}</td><td>{longest(longest_ns)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </div>
  );
}

// How much of the GPU's peak the model uses, and the products that have most of its FLOPs.

import { Command, Key, SCROLLS, Section } from "./section";
import { count, durations, flops, percent, teraflops } from "./format";
import { useNames } from "./ranks";
import type { Peak, PeakTerm } from "./messages";

export function PeakSection({ part }: { part: Peak }) {
  const nameOf = useNames();
  const again = part.rows.some((row) => (row.hfu_pct ?? 0) - (row.mfu_pct ?? 0) >= 0.05);
  const legend = (
    <span class="keys">
      <Key kind="compute">model FLOPs (MFU)</Key>
      {again && <Key kind="hidden">recomputed (HFU)</Key>}
    </span>
  );
  return (
    <Section id="peak" part={part} aside={legend}>
      <p>{part.statement}</p>
      <div {...SCROLLS} aria-label="share of the peak by rank">
        <table class="figure">
          <thead>
            <tr>
              <th>rank</th><th class="wide">share of the peak, 0 to 100 %</th><th>MFU</th><th>HFU</th><th class="lesser">model FLOPs</th>
              <th>achieved</th><th class="lesser">peak</th><th class="lesser">compute without count</th>
            </tr>
          </thead>
          <tbody>
            {part.rows.map((row) => (
              <tr>
                <th scope="row">{nameOf(row.rank)}</th>
                <td class="wide"><Share model={row.mfu_pct ?? 0} all={row.hfu_pct ?? row.mfu_pct ?? 0} /></td>
                <td>{percent(row.mfu_pct)}</td>
                <td>{percent(row.hfu_pct)}</td>
                <td class="lesser">{flops(row.model_flops)}</td>
                <td>{teraflops(row.achieved_tflops)}</td>
                <td class="lesser">{teraflops(row.peak_tflops)}</td>
                <td class="lesser">{percent(row.uncounted_pct)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <Terms terms={part.terms} />
      {part.left_out > 0 && <p class="dim">{count(part.left_out, "smaller term")} not shown</p>}
      <Command text={part.term_command} />
    </Section>
  );
}

function Terms({ terms }: { terms: PeakTerm[] }) {
  const time = durations(terms.map((term) => term.gpu_ns));
  return (
    <div {...SCROLLS} aria-label="products of matrices">
      <table class="figure">
        <thead>
          <tr>
            <th>op</th><th class="text">shapes</th><th class="text lesser">phase</th><th class="lesser">n</th><th>share of FLOPs</th><th>GPU time</th>
            <th class="wide">of the peak while it runs</th><th />
          </tr>
        </thead>
        <tbody>
          {terms.map((term) => (
            <tr>
              <th scope="row">{term.op.replace(/^aten::/, "")}</th>
              <td class="text shapes" title={term.shapes ?? ""}>{term.shapes ?? "–"}</td>
              <td class="text lesser">{term.phase}</td>
              <td class="lesser">{term.n}</td>
              <td>{percent(term.share_pct)}</td>
              <td>{time(term.gpu_ns)}</td>
              <td class="wide"><Share model={term.peak_pct ?? 0} all={term.peak_pct ?? 0} /></td>
              <td>{percent(term.peak_pct)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Share({ model, all }: { model: number; all: number }) {
  return (
    <div class="bar whole">
      <i class="compute" style={{ width: `${Math.min(model, 100)}%` }} title={percent(model)} />
      <i class="hidden" style={{ width: `${Math.max(0, Math.min(all, 100) - model)}%` }} title={percent(all)} />
    </div>
  );
}

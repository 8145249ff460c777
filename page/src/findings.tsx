// The conclusion: one sentence, then what to change first.

import { Command, Prose, Window } from "./section";
import { count, duration, percent, sentence } from "./format";
import type { Finding, Findings } from "./messages";

export type Show = (finding: Finding) => void;

export function Statement({ findings }: { findings: Findings | null }) {
  if (findings?.statement == null) return null;
  return <h1 class="statement">{findings.statement}</h1>;
}

export function FindingList({ findings, show }: { findings: Findings; show: Show | null }) {
  const step = findings.shares_of;
  return (
    <section id="findings">
      <header>
        <h2>{findings.title}</h2>
        {findings.mean_step_ns !== null && <span class="dim">of the {duration(findings.mean_step_ns)} {step}</span>}
      </header>
      <Window lines={findings.windows} />
      {findings.above.map((text) => <p class="above"><b>The capture:</b> <Prose text={text} /></p>)}
      {findings.rows.length === 0 && (
        <p class="clean">{findings.clean ? "A clean bill: nothing stands out." : "Nothing was found."}</p>
      )}
      <ol class="findings">
        {findings.rows.map((finding) => <Card finding={finding} show={show} step={step} />)}
      </ol>
      {findings.skipped.length > 0 && (
        <details class="skipped">
          <summary>{count(findings.skipped.length, "check")} could not be made on this profile</summary>
          <ul>{findings.skipped.map(({ id, why }) => <li><code>{id}</code> <Prose text={why} /></li>)}</ul>
        </details>
      )}
      <Command text={findings.command} />
    </section>
  );
}

/** `22 to 46 ms`: a unit that both have is said once. */
function between(low: string, high: string) {
  const unit = high.slice(high.lastIndexOf(" "));
  return `${low.endsWith(unit) ? low.slice(0, -unit.length) : low} to ${high}`;
}

function Card({ finding, show, step }: { finding: Finding; show: Show | null; step: string }) {
  const f = finding;
  const bound = f.expected_ns < f.recoverable_ns;
  return (
    <li class="finding" data-id={f.id}>
      <div class="gain">
        {bound && <span class="dim">up to</span>}
        <b>{duration(f.recoverable_ns)}</b>
        <span class="dim">
          {bound ? `${duration(f.expected_ns)} expected` : between(duration(f.recoverable_low_ns), duration(f.recoverable_high_ns))}
        </span>
        <span class="dim">{percent(f.share_pct)} of the {step}</span>
        <span class="share"><i style={{ width: `${Math.min(100, Math.max(f.share_pct, 0))}%` }} /></span>
      </div>
      <div>
        <h3>{f.title}</h3>
        <p class="about">
          {f.ranks && <span>rank{/^\d+$/.test(f.ranks) ? "" : "s"} {f.ranks}</span>}
          {f.stage && <span>{f.stage}</span>}
          <span class={`sure ${f.cause}`}>{f.cause}</span>
          <code>{f.id}</code>
        </p>
        <p><Prose text={sentence(f.evidence)} /></p>
        <p><b>Try:</b> <Prose text={f.try_next} /></p>
        <Command text={f.command} />
      </div>
      {show && f.where.length > 0 && (
        <button type="button" class="show" onClick={() => show(f)}>Show on timeline</button>
      )}
    </li>
  );
}

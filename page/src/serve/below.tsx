// What stands below the timeline: the findings, once they are worked out, and what all of it rests on.

import { FindingList, type Show, Statement } from "../findings";
import { NoteItems, Prose } from "../section";
import { StepsSection } from "../steps";
import type { SceneData, StepRow } from "../messages";
import { NAMES } from "../timeline/scene";
import type { Conclusion } from "../messages";

interface BelowProps {
  data: SceneData;
  concluded: Conclusion | null;
  pending: string;
  show: Show;
  goToStep: (row: StepRow) => void;
}

export function Below({ data, concluded, pending, show, goToStep }: BelowProps) {
  const { profiles } = data;
  return (
    <>
      {!concluded?.ready && <section id="findings"><p class="dim">Findings: {pending}{concluded?.doing && ` (${concluded.doing})`}</p></section>}
      {concluded?.why && <section id="findings"><p class="dim">No findings: <Prose text={concluded.why} /></p></section>}
      {concluded?.findings && <>
        <div class="hero"><Statement findings={concluded.findings} /></div>
        <FindingList findings={concluded.findings} show={show} />
      </>}
      {concluded?.steps && <StepsSection part={concluded.steps} go={goToStep} />}
      <section id="notes">
        <header><h2>What it rests on</h2></header>
        {profiles.map(({ notes }, p) => notes.length > 0 && <ul>
          {profiles.length > 1 && <li><b>{NAMES[p]}</b></li>}
          <NoteItems notes={notes} />
        </ul>)}
        {profiles.every(({ notes }) => !notes.length) && <p class="dim">No notes.</p>}
        <p class="dim">stepscope {data.version}</p>
      </section>
    </>
  );
}

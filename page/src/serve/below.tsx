// What stands below the timeline: the findings, once they are worked out, and what all of it rests on.

import { FindingList, type Show, Statement } from "../findings";
import { NoteItems, Prose } from "../section";
import { StepsSection } from "../steps";
import type { StepRow } from "../types";
import { NAMES, type Scene } from "./scene";
import type { Conclusion } from "./types";

interface BelowProps {
  scene: Scene;
  concluded: Conclusion | null;
  pending: string;
  show: Show;
  goToStep: (row: StepRow) => void;
}

export function Below({ scene, concluded, pending, show, goToStep }: BelowProps) {
  const { profiles } = scene.data;
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
        <p class="dim">stepscope {scene.data.version}</p>
      </section>
    </>
  );
}

// The report's timeline: its section, with the moments that findings name.

import { useEffect, useMemo } from "preact/hooks";
import type { Place, Stragglers, TimelineData } from "./messages";
import { Section } from "./section";
import { Carried } from "./timeline/carried";
import { Scene } from "./timeline/scene";
import { useTimeline } from "./timeline/state";
import { Timeline } from "./timeline/timeline";

/** What to look at: `at` changes with every click, so that the same finding can be shown twice. */
export interface Focus {
  title: string;
  places: Place[];
  at: number;
}

const NOWHERE: Place[] = [];
const MOST_HEIGHT = 620;

export function TimelineSection({ part, block, focus, back, stragglers }: {
  part: TimelineData; block: ArrayBuffer; focus: Focus | null; back: (() => void) | null; stragglers: Stragglers | undefined;
}) {
  const scene = useMemo(() => new Scene([part.drawing]), [part]);
  const source = useMemo(() => new Carried(scene, part, block), [scene, block]);
  const late = useMemo(() => Object.fromEntries((stragglers?.rows ?? []).map(({ rank, late_ns }) => [rank, late_ns])), [stragglers]);
  const state = useTimeline({ scene, source, late, places: focus?.places ?? NOWHERE });
  const chunked = scene.ranks.some(({ about }) => about.windows.some(({ start, end }) => end - start <= 0.98 * scene.end));
  useEffect(() => {
    if (focus) state.goTo(0);
  }, [focus?.at]);
  return (
    <Section id="timeline" part={part}>
      <Timeline state={state} most={MOST_HEIGHT} all="whole window"
        focus={focus && { title: focus.title, actions: back && <button type="button" onClick={back}>back to findings</button> }}
        label="Timeline of all ranks and streams. Keys: w and s zoom, a and d move, f frames, m measures, 0 shows all, ? lists all."
        says={<>
          {" "}Ranges lie where the work they launched ran.
          {chunked && " The line under a rank's strip is the window of the figures below."}
          {part.left_out.map((line) => <> {line}.</>)}
        </>} />
    </Section>
  );
}

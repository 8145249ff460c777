// What the page asks the server beside the timeline.

import { useEffect, useState } from "preact/hooks";
import type { Conclusion } from "../messages";
import { ask } from "./ask";
import { isThere } from "./connection";

/** Findings take longer than the drawing: ask until they are there, and how far they are. */
export function useConclusions(profiles: number): (Conclusion | null)[] {
  const [all, setAll] = useState<(Conclusion | null)[]>(() => Array<null>(profiles).fill(null));
  useEffect(() => {
    let stopped = false;
    const look = async (p: number) => {
      for (let wait = 300; !stopped; wait = Math.min(wait * 1.3, 2_000)) {
        const answer = isThere() ? await ask<Conclusion>("findings", { p }).catch(() => null) : null;
        if (answer) setAll((before) => before.map((old, i) => (i === p ? answer : old)));
        if (answer?.ready) return;
        await new Promise((done) => setTimeout(done, wait));
      }
    };
    for (let p = 0; p < profiles; p++) void look(p);
    return () => { stopped = true; };
  }, [profiles]);
  return all;
}

// What lies under the pointer, and what a search matches.

import type { Row } from "./rows";
import { RANGE_LINE } from "./rows";
import { bound, type Lane, type Model, reaching } from "./model";

/** The mark of the row at a moment, within `slack` ns; -1 where there is none. */
export function markAt(row: Row, time: number, slack: number, below: number): number {
  const lane = row.lane ?? row.rank.parts;
  if (!lane) return -1;
  const line = lane.line ? Math.floor(below / RANGE_LINE) : 0;
  let best = -1, nearest = slack;
  const last = bound(lane, time + slack);
  for (let i = reaching(lane, time - slack); i < last; i++) {
    if (lane.line && lane.line[i] !== line) continue;
    const start = lane.marks.start[i]!, end = start + lane.marks.dur[i]!;
    const off = time < start ? start - time : time > end ? time - end : 0;
    if (off <= nearest) [best, nearest] = [i, off]; // of several, the last to start: the innermost
  }
  return best;
}

export interface Found {
  /** By text. */
  matches: Uint8Array;
  /** Marks, by time. */
  marks: { lane: Lane; mark: number }[];
  total: number;
  error: string | null;
}

/** Marks whose name matches, as plain text, or between slashes as a regular expression. */
export function search(model: Model, wanted: string): Found | null {
  const text = wanted.trim();
  if (!text) return null;
  const matches = new Uint8Array(model.data.texts.length);
  let test: (name: string) => boolean;
  const between = /^\/(.+)\/$/.exec(text);
  try {
    const pattern = between && new RegExp(between[1]!, "i");
    test = pattern ? (name) => pattern.test(name) : (name) => name.toLowerCase().includes(text.toLowerCase());
  } catch (error) {
    return { matches, marks: [], total: 0, error: (error as Error).message };
  }
  for (let i = 1; i < matches.length; i++) matches[i] = test(model.full(i)) ? 1 : 0;
  const marks: Found["marks"] = [];
  let total = 0;
  for (const rank of model.ranks) {
    for (const lane of rank.lanes) {
      if (lane.group === "host" || lane.group === "counters") continue;
      for (let mark = 0; mark < lane.marks.start.length; mark++) {
        if (!matches[lane.marks.name[mark]!]) continue;
        marks.push({ lane, mark });
        if (lane.group === "streams") total += lane.marks.dur[mark]!;
      }
    }
  }
  marks.sort((a, b) => a.lane.marks.start[a.mark]! - b.lane.marks.start[b.mark]!);
  return { matches, marks, total, error: null };
}

// From what the server tells of a mark to the arrows that are drawn.

import type { Lane, Picked } from "./marks";
import type { Arrow } from "./view";
import { keyOf, type Scene } from "./scene";
import type { DetailsData, End } from "../messages";

/** Arrows of the selected mark, where they are drawn. */
export function arrowsOf(scene: Scene, selected: Picked | null, details: DetailsData | null): Arrow[] {
  if (!selected || !details) return [];
  const { profile } = selected.lane, shift = scene.shift[profile]!;
  const own = selected.lane.about.group === "functions" ? selected.lane : null;
  const end = ({ rank, stream, thread, at }: End, lane: Lane | null) => ({
    key: keyOf(profile, rank), lane, stream: stream ?? null, thread: thread ?? null, at: at + shift,
  });
  return details.arrows.map(({ kind, from, to }) => ({ kind, from: end(from, own), to: end(to, null) }));
}

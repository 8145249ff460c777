// What is looked at: time, rows, colours, and where a moment lies on the canvas.

import type { Kind, Place } from "../messages";
import type { Lane, Picked } from "./marks";
import type { Row } from "./rows";

export const AXIS = 26, PIN = 18;

/** Room for the names of lanes, in a drawing so wide. */
export const labelsOf = (width: number): number => (width < 600 ? 92 : 168);

/** A tie between two marks: a launch and what it launched, or two sides of a communication. */
export interface Arrow {
  kind: "launch" | "comm";
  from: ArrowEnd;
  to: ArrowEnd;
}

/** Where an arrow begins or ends: on a lane, on a stream, or on a thread's calls. */
export interface ArrowEnd {
  key: number;
  lane: Lane | null;
  stream: number | null;
  thread: number | null;
  at: number;
}

export interface View {
  width: number;
  height: number;
  /** Visible time. */
  from: number;
  to: number;
  scroll: number;
  rows: Row[];
  open: Set<number>;
  /** Whether marks are searched for: what does not match is faint. */
  searched: boolean;
  selected: Picked | null;
  hovered: Picked | null;
  /** Ranks of places are keys. */
  places: Place[];
  place: number;
  arrows: Arrow[];
  /** The stretch of time that is measured. */
  span: [number, number] | null;
  /** Ranks that stay on top; null where none can be. */
  pinned: Set<number> | null;
}

export type Palette = Record<"ink" | "dim" | "paper" | "panel" | "line" | "accent" | "onmark", string> & { kinds: string[][] };

/** Colours of the style sheet, by kind: marks have three shades, so that neighbours differ; parts have one. */
export function palette(kinds: Kind[]): Palette {
  const style = getComputedStyle(document.documentElement);
  const get = (name: string) => style.getPropertyValue(`--${name}`).trim();
  const shades = ({ colour, part }: Kind) =>
    part === null ? [get(colour), get(`${colour}-2`) || get(colour), get(`${colour}-3`) || get(colour)] : [get(colour)];
  return {
    ink: get("ink"), dim: get("dim"), paper: get("paper"), panel: get("panel"), line: get("line"),
    accent: get("accent"), onmark: get("onmark"), kinds: kinds.map(shades),
  };
}

/** Pixels of a moment. */
export function xOf(view: View, time: number): number {
  const labels = labelsOf(view.width);
  return labels + ((time - view.from) * (view.width - labels)) / (view.to - view.from);
}

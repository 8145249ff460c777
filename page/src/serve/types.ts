// What the server answers: src/stepscope/web. Times are drawn nanoseconds of the profile.

import type { Findings, Group, Kind, Note, PartSums, Rank, Steps } from "../types";

export interface ServedRank extends Rank {
  own: string;
  drawn: number;
  rate: number;
}

export interface ServedLane {
  rank: number;
  group: Group;
  level: number;
  label: string;
  n: number;
  /** Of a counter: its largest value, and its unit where that is known. */
  most?: number;
  unit?: string;
}

export interface Step {
  label: string;
  start: number;
  end: number;
}

export interface ServedProfile {
  source: string;
  paths: string[];
  end: number;
  ops: number;
  kinds: Kind[];
  families: string[];
  ranks: ServedRank[];
  lanes: ServedLane[];
  steps: Step[];
  notes: Note[];
}

export interface SceneData {
  version: string;
  /** What starts the server again. */
  command: string;
  profiles: ServedProfile[];
}

export interface End {
  rank: number;
  stream?: number;
  thread?: number;
  at: number;
}

export interface DetailsData {
  lane: number;
  row: number;
  rank: number;
  start: number;
  end: number;
  name: string;
  /** Title, value, unit. */
  facts: [string, string, string][];
  arrows: { kind: "launch" | "comm"; from: End; to: End }[];
  command: string;
}

export interface SpanData {
  from: number;
  to: number;
  ranks: (PartSums & { rank: number })[];
  sum: PartSums;
  overlap: { n: number; comm_ns: number; exposed_ns: number; exposed_wall_ns: number; barrier_ns: number } | null;
  ops: number;
  op_ns: number;
  kernels: { name: string; family: string; n: number; total_ns: number; max_ns: number }[];
  commands: string[];
  notes: string[];
}

export interface SearchData {
  error: string | null;
  count: number;
  ops: number;
  total_ns: number;
  names: { name: string; n: number; total_ns: number; longest_ns: number }[];
}

export interface MatchData {
  k: number;
  lane: number;
  row: number;
  rank: number;
  start: number;
  end: number;
}

export interface Conclusion {
  ready: boolean;
  /** Until it is: how long it has been worked on, and on what. */
  seconds?: number;
  doing?: string;
  findings?: Findings | null;
  why?: string | null;
  /** All steps of the run; null where there are not several. */
  steps?: Steps | null;
  /** By rank: how long the others waited for it. */
  late?: Record<string, number>;
}

export interface SqlData {
  columns: string[];
  /** By column: whether it has numbers. */
  numbers: boolean[];
  rows: unknown[][];
  /** By row: rank, start and end on the timeline. */
  places: ([number, number, number] | null)[];
  notes: string[];
  command: string;
}

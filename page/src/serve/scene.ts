// What a server has drawn so far: lanes of all profiles on one axis, filled with marks as blocks arrive.

import type { Numbers } from "../data";
import type { Kind } from "../types";
import { type Drawable, isBucket, type Lane, laneOf, type Marks, type RankLanes } from "../timeline/model";
import type { Block } from "./ask";
import type { SceneData, ServedLane, ServedProfile } from "./types";

/** Ranks of the second profile have keys from here on. */
const BESIDE = 2 ** 20;
const NOTHING: Marks = {
  start: new Float64Array(), dur: new Uint8Array(), kind: new Uint8Array(), name: new Uint8Array(), n: new Uint8Array(),
  of: null, sent: { busy: new Uint8Array(), row: new Uint8Array(), match: new Uint8Array() },
};

/** What a lane was last asked for. */
export interface Loaded {
  from: number;
  to: number;
  pixels: number;
  wanted: string;
}

export interface SceneLane extends Lane {
  profile: number;
  id: number;
  about: ServedLane;
  loaded: Loaded | null;
  texts: Record<string, string>;
}

export const keyOf = (profile: number, rank: number): number => profile * BESIDE + rank;
export const NAMES = ["A", "B"];

export class Scene implements Drawable {
  readonly kinds: Kind[];
  readonly ranks: RankLanes[];
  readonly end: number;
  /** By profile: what is added to its times, so that steps lie below each other. */
  readonly shift: number[];
  readonly lanes: SceneLane[][];

  constructor(readonly data: SceneData) {
    this.kinds = data.profiles[0]!.kinds;
    this.shift = data.profiles.map(() => 0);
    this.end = Math.max(...data.profiles.map((profile) => profile.end), 1) * (data.profiles.length > 1 ? 1.25 : 1);
    this.lanes = data.profiles.map((profile, p) => profile.lanes.map((about, id) => ({
      ...laneOf(about, NOTHING), profile: p, id, about, loaded: null, texts: {},
    })));
    this.ranks = data.profiles.flatMap((profile, p) => this.ranksOf(profile, p));
  }

  label(lane: Lane, mark: number): string {
    return (lane as SceneLane).texts[lane.marks.name[mark]!] ?? "";
  }

  /** A title for what lies under the pointer. */
  title(lane: SceneLane, mark: number): string {
    const { marks, about } = lane;
    const kind = this.kinds[marks.kind[mark]!]!;
    if (kind.part !== null) return kind.part;
    if (about.group === "counters") return about.label;
    const { families } = this.data.profiles[lane.profile]!;
    if (!isBucket(lane, mark)) return this.label(lane, mark);
    return `${marks.n[mark]!.toLocaleString("en")} begin here, mostly ${families[marks.name[mark]!]}`;
  }

  take(profile: number, block: Block, loaded: Loaded): void {
    const { columns } = block;
    let first = 0;
    for (const [id, n, base] of block.rows) {
      const own = (numbers: Numbers) => numbers.subarray(first, first + n);
      const start = Float64Array.from(own(columns.start));
      let at = base + this.shift[profile]!;
      for (let i = 0; i < n; i++) start[i] = at += start[i]!;
      const marks: Marks = {
        start, dur: own(columns.dur), kind: own(columns.kind), name: own(columns.name),
        n: own(columns.n), of: null,
        sent: { busy: own(columns.busy), row: own(columns.row), match: own(columns.match) },
      };
      const lane = this.lanes[profile]![id]!;
      Object.assign(lane, laneOf(lane, marks), { loaded, texts: block.texts });
      first += n;
    }
  }

  /** Move a profile on the axis: what was loaded of it lies elsewhere now. */
  align(profile: number, shift: number): void {
    if (this.shift[profile] === shift) return;
    this.shift[profile] = shift;
    for (const lane of this.lanes[profile]!) {
      lane.loaded = null;
      lane.marks = NOTHING;
    }
  }

  private ranksOf(profile: ServedProfile, p: number): RankLanes[] {
    const named = this.data.profiles.length > 1 ? `${NAMES[p]} ` : "";
    return profile.ranks.map(({ rank, host, place, own, drawn, rate }) => {
      const mine = this.lanes[p]!.filter((lane) => lane.rank === rank);
      return {
        key: keyOf(p, rank),
        rank,
        title: `${named}rank ${rank}`,
        subtitle: place || host || "",
        scale: { rank, own, drawn, rate, windows: [] },
        parts: mine.find((lane) => lane.group === "parts") ?? null,
        lanes: mine.filter((lane) => lane.group !== "parts"),
      };
    });
  }
}

/** Few enough rows of torch ops and functions to be shown at first. */
export function hasFewFunctions({ ranks }: Scene): boolean {
  const rows = ranks.flatMap(({ lanes }) => lanes.filter(({ group }) => group === "functions")).length;
  return rows > 0 && rows <= 10;
}

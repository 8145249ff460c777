// A report's marks: all of them are there, and what is asked of them is worked out here.

import type { DetailsData, MatchData, SearchData, TimelineData } from "../messages";
import { type Lane, type Marks, marksOf } from "./marks";
import { carriedFacts, type Scene } from "./scene";
import type { Measured, Source, Wanted } from "./source";

/** Names that are listed with their figures. */
const MOST_NAMES = 20;
const SEARCHED = new Set(["streams", "ranges", "functions"]);
const PARTS: Record<string, "compute_ns" | "comm_exposed_ns" | "copy_exposed_ns" | "idle_ns"> = {
  compute: "compute_ns", comm: "comm_exposed_ns", copy: "copy_exposed_ns", idle: "idle_ns",
};

interface Found {
  wanted: string;
  /** By text: 1 where it matches. */
  texts: Uint8Array;
  matches: { lane: Lane; mark: number }[];
  data: SearchData;
}

export class Carried implements Source {
  heard: Source["heard"] = { arrived: () => undefined, failed: () => undefined };
  readonly pause = 0;
  private readonly lanes: Lane[];
  /** The whole text of every name. */
  private readonly full: string[];
  private found: Found | null = null;
  /** What the lanes' marks say that they match. */
  private marked = "";

  constructor(private readonly scene: Scene, private readonly data: TimelineData, block: ArrayBuffer) {
    const short = data.texts.map(([text]) => text!);
    this.full = data.texts.map((text) => text.at(-1)!);
    const everything = { from: -Infinity, to: Infinity, pixels: Infinity, wanted: "" };
    for (const [id, marks] of marksOf(data.marks, block)) {
      if (scene.lanes[0]![id]!.about.group !== "counters") marks.row = Uint32Array.from(marks.dur, (_, i) => i);
      scene.take(0, id, marks, everything, short, this.full);
    }
    this.lanes = scene.lanes[0]!;
  }

  show({ search }: Wanted): void {
    if (search === this.marked) return;
    this.marked = search;
    const { texts } = this.lookedFor(search);
    for (const { marks } of this.lanes) {
      marks.match = search ? Uint8Array.from(marks.name, (name, i) => (marks.busy[i] ? 0 : texts[name]!)) : new Uint8Array();
    }
    this.heard.arrived();
  }

  search(wanted: string): Promise<SearchData[]> {
    return Promise.resolve([this.lookedFor(wanted).data]);
  }

  match(_: number, wanted: string, where: { k: number } | { at: number }): Promise<MatchData> {
    const { matches } = this.lookedFor(wanted), startOf = ({ lane, mark }: Found["matches"][number]) => lane.marks.start[mark]!;
    let k = "k" in where ? where.k : matches.findIndex((match) => startOf(match) >= where.at);
    if ("at" in where && k < 0) k = matches.length; // round again
    k = ((k % matches.length) + matches.length) % matches.length;
    const { lane, mark } = matches[k]!, start = startOf(matches[k]!);
    return Promise.resolve({ k, lane: lane.id, row: mark, rank: lane.about.rank, start, end: start + lane.marks.dur[mark]! });
  }

  details(_: number, id: number, row: number): Promise<DetailsData> {
    const lane = this.lanes[id]!, { marks, about } = lane, { rank } = about;
    const start = marks.start[row]!, end = start + marks.dur[row]!;
    const [from, to] = this.own(rank, start, end);
    const part = this.scene.kinds[marks.kind[row]!]!.part;
    const facts: DetailsData["facts"] = [["starts", String(from), "instant"]];
    if (about.label) facts.push(["row", about.label, "text"]);
    for (const [title, text] of carriedFacts(marks, row, this.full)) facts.push([title, text, "text"]);
    const command = `${this.data.plain} --rank ${rank} --start @${from} --end @${to}`;
    return Promise.resolve({ lane: id, row, rank, start, end, name: part ?? this.full[marks.name[row]!]!, facts, arrows: [], command });
  }

  /** What `breakdown` says of it, as far as the window goes on each rank. */
  span(_: number, ranks: number[], from: number, to: number): Promise<Measured | null> {
    const sum = { window_ns: 0, compute_ns: 0, comm_exposed_ns: 0, copy_exposed_ns: 0, idle_ns: 0, comm_hidden_ns: null };
    const of = new Map<string, number[]>();
    let merged = false;
    for (const { about, marks } of this.lanes) {
      const n = marks.start.length;
      if (about.group !== "parts" || !n || !ranks.includes(about.rank)) continue;
      const lo = Math.max(Math.round(from), marks.start[0]!), hi = Math.min(Math.round(to), marks.start[n - 1]! + marks.dur[n - 1]!);
      if (hi <= lo) continue;
      for (let i = 0; i < n; i++) {
        const within = Math.min(hi, marks.start[i]! + marks.dur[i]!) - Math.max(lo, marks.start[i]!);
        if (within <= 0) continue;
        sum[PARTS[this.scene.kinds[marks.kind[i]!]!.colour]!] += within;
        merged ||= marks.busy[i]! > 0;
      }
      sum.window_ns += hi - lo;
      const key = this.own(about.rank, lo, hi).map((own, i) => `--${i ? "end" : "start"} @${own}`).join(" ");
      of.set(key, [...(of.get(key) ?? []), about.rank]);
    }
    const plain = this.data.plain.replace(/^stepscope timeline/, "stepscope breakdown");
    return Promise.resolve({
      from, to, ranks: [...of.values()].flat().map((rank) => ({ rank })), sum, overlap: null, ops: null, op_ns: null, kernels: [],
      commands: [...of].slice(0, 4).map(([window, some]) => `${plain} --rank ${some.join()} ${window}`),
      notes: merged ? ["Short parts are drawn merged here; the command has the exact sums."] : [],
    });
  }

  parts(_: number, lanes: number[]): Promise<Marks[]> {
    return Promise.resolve(lanes.map((id) => this.lanes[id]!.marks));
  }

  /** Drawn moments on a rank's own clock, at least a nanosecond apart. */
  private own(rank: number, ...[start, end]: [number, number]): [bigint, bigint] {
    const { own, drawn, rate } = this.scene.profiles[0]!.ranks.find((each) => each.rank === rank)!;
    const at = (time: number) => BigInt(own) + BigInt(Math.round((time - drawn) * rate));
    const from = at(start), to = at(end);
    return [from, to > from ? to : from + 1n];
  }

  private lookedFor(wanted: string): Found {
    if (this.found?.wanted !== wanted) this.found = this.lookFor(wanted);
    return this.found;
  }

  /** Marks whose name matches, as plain text, or between slashes as a regular expression. */
  private lookFor(wanted: string): Found {
    const texts = new Uint8Array(this.full.length), matches: Found["matches"] = [];
    const data: SearchData = { error: null, count: 0, ops: 0, total_ns: 0, names: [] };
    const between = /^\/(.+)\/$/.exec(wanted), plain = wanted.toLowerCase();
    let pattern: RegExp | null = null;
    try {
      pattern = between && new RegExp(between[1]!, "i");
    } catch (error) {
      return { wanted, texts, matches, data: { ...data, error: (error as Error).message } };
    }
    const test = (name: string) => name !== "" && (pattern ? pattern.test(name) : name.toLowerCase().includes(plain));
    for (let i = 0; i < texts.length; i++) texts[i] = test(this.full[i]!) ? 1 : 0;
    const names = new Map<number, SearchData["names"][number]>();
    for (const lane of this.lanes) {
      const { marks, about } = lane;
      if (!SEARCHED.has(about.group)) continue;
      for (let mark = 0; mark < marks.start.length; mark++) {
        const name = marks.name[mark]!, ns = marks.dur[mark]!;
        if (marks.busy[mark] || !texts[name]) continue;
        matches.push({ lane, mark });
        const row = names.get(name) ?? { name: this.full[name]!, n: 0, total_ns: 0, longest_ns: 0 };
        names.set(name, { ...row, n: row.n + 1, total_ns: row.total_ns + ns, longest_ns: Math.max(row.longest_ns, ns) });
        if (about.group !== "streams") continue;
        data.ops += 1;
        data.total_ns += ns;
      }
    }
    matches.sort((a, b) => a.lane.marks.start[a.mark]! - b.lane.marks.start[b.mark]!);
    data.count = matches.length;
    data.names = [...names.values()].sort((a, b) => b.total_ns - a.total_ns || b.n - a.n).slice(0, MOST_NAMES);
    return { wanted, texts, matches, data };
  }
}

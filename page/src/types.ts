// What the Python side embeds: src/stepscope/render/html/report.py. Times are nanoseconds.

export interface Part {
  title: string;
  command: string;
  windows: string[];
}

export interface Place {
  rank: number;
  stream: number | null;
  start: number;
  end: number;
}

export interface Finding {
  id: string;
  title: string;
  ranks: string | null;
  recoverable_ns: number;
  share_pct: number;
  expected_ns: number;
  cause: string;
  evidence: string;
  try_next: string;
  command: string;
  stage: string | null;
  where: Place[];
  recoverable_low_ns: number | null;
  recoverable_high_ns: number | null;
}

export interface Findings extends Part {
  above: string[];
  rows: Finding[];
  statement: string | null;
  step_ns: number | null;
  mean_step_ns: number | null;
  shares_of: string;
  clean: boolean;
  skipped: { id: string; why: string }[];
}

/** Where a stretch of time went. */
export interface PartSums {
  window_ns: number;
  compute_ns: number;
  comm_exposed_ns: number;
  copy_exposed_ns: number;
  idle_ns: number;
  comm_hidden_ns: number;
}

export interface BreakdownRow extends PartSums {
  rank: number;
  causes: Record<string, number>;
}

export interface Breakdown extends Part {
  /** Causes of idle time and what they are called, as they are drawn. */
  causes: [string, string][];
  rows: BreakdownRow[];
  cause_command: string | null;
}

export interface OverlapRow {
  key: string;
  n: number;
  comm_ns: number;
  exposed_ns: number;
  barrier_ns: number;
  overlap_pct: number | null;
  rank: number[];
  each_pct: (number | null)[];
}

export interface Overlap extends Part {
  by: string;
  rows: OverlapRow[];
}

export interface StepRow {
  label: string;
  index: number;
  kind: string | null;
  spike: boolean;
  cut: string | null;
  step_ns: number;
  between_ns: number;
  compute_ns: number;
  comm_exposed_ns: number;
  copy_exposed_ns: number;
  idle_ns: number;
}

export interface Steps extends Part {
  rows: StepRow[];
  left_out: number;
  statement: string;
  look: string;
}

export interface LossRow {
  loss: string;
  what: string;
  total_ns: number;
  share_pct: number | null;
}

export interface WorkGroup {
  part: string;
  phase: string;
  n: number;
  total_ns: number;
  share_pct: number | null;
  good_ns: number;
  good_from: string | null;
  precision: string | null;
  bound: string | null;
}

export interface Compute extends Part {
  rows: LossRow[];
  ranks: number;
  groups: WorkGroup[];
  left_out: number;
  group_command: string;
  statement: string;
}

export interface PeakRow {
  rank: number;
  window_ns: number;
  model_flops: number;
  hardware_flops: number | null;
  mfu_pct: number | null;
  hfu_pct: number | null;
  achieved_tflops: number | null;
  peak_tflops: number | null;
  uncounted_pct: number | null;
}

export interface PeakTerm {
  phase: string;
  op: string;
  shapes: string | null;
  precision: string | null;
  n: number;
  share_pct: number | null;
  gpu_ns: number | null;
  peak_pct: number | null;
}

export interface Peak extends Part {
  rows: PeakRow[];
  terms: PeakTerm[];
  left_out: number;
  term_command: string;
  statement: string;
}

export interface MemoryDevice {
  rank: number;
  device: number;
  phase: string;
  reserved_bytes: number;
  allocated_bytes: number;
  /** name, colour, bytes */
  parts: [string, string, number][];
}

export interface MemoryFrame {
  part: string;
  frame: string;
  bytes: number;
  share_pct: number;
  blocks: number;
}

export interface Memory extends Part {
  /** parts of the ledger that are there, with their colours, from the bottom up */
  kinds: [string, string][];
  devices: MemoryDevice[];
  left_out: number;
  drawn: { rank: number; device: number };
  /** start_ns is null where the recording has no times; parts: name, colour, bytes at each moment */
  time: { start_ns: number[] | null; reserved: number[]; parts: [string, string, number[]][] };
  frames: MemoryFrame[];
  frames_left_out: number;
  frame_command: string;
  time_command: string;
  statement: string;
}

export interface Roof {
  roof: string;
  peak_tflops: number | null;
  bandwidth_gbps: number | null;
}

export interface RooflineKernel {
  name: string;
  n: number;
  dur_ns: number | null;
  bound: string | null;
  why: string;
  precision: string | null;
  tflops: number | null;
  intensity: number | null;
  dram_pct: number | null;
  roof: string | null;
  roof_pct: number | null;
  access: string | null;
  stall: string | null;
  /** Ops of the timeline that it stands for, and how they are known; null without one. */
  ops: number | null;
  matched: string | null;
}

export interface Roofline extends Part {
  rows: RooflineKernel[];
  left_out: number;
  roofs: Roof[];
  statement: string;
}

export interface CollectivesRow {
  group: string | null;
  op: string;
  axis: string | null;
  n: number;
  ranks: string;
  bytes: number | null;
  transfer_ns: number | null;
  max_wait_ns: number | null;
  wait_ns: number | null;
  busbw_p50_gbps: number | null;
}

export interface Collectives extends Part {
  rows: CollectivesRow[];
  left_out: number;
}

export interface StragglersRow {
  rank: number;
  late_ns: number;
  times_last: number;
  share_pct: number;
  cause: string | null;
  excess_ns: number;
}

export interface Stragglers extends Part {
  rows: StragglersRow[];
  left_out: number;
}

export interface Chunk {
  rank: number;
  kind: string;
  mb: number | null;
  part: number | null;
  label: string;
  start_ns: number;
  end_ns: number;
  bubble_ns: number | null;
  before_ns: number | null;
}

export interface PipelineRank {
  rank: number;
  stage: number | null;
  step_ns: number;
  bubble_ns: number;
  bubble_pct: number | null;
  ideal_pct: number | null;
}

export interface Pipeline extends Part {
  /** Kinds of chunks and what they are called. */
  kinds: [string, string][];
  chunks: Chunk[];
  ranks: PipelineRank[];
  left_out: number;
  rank_command: string;
  summary: { schedule?: string; micro_batches?: number; ideal_pct?: number; bubble_pct?: number; slowest?: string };
}

export interface Column {
  type: "u1" | "u2" | "u4" | "f8";
  at: number;
  n: number;
}

/** What a lane holds. */
export type Group = "parts" | "host" | "ranges" | "streams" | "counters" | "functions";

export interface LaneIndex {
  rank: number;
  group: Group;
  level: number;
  label: string;
  first: number;
  n: number;
  /** Of a counter: its largest value. Its marks have their largest in `n` and their least in `range`, of 65,535. */
  most?: number;
}

export type ColumnName = "start" | "dur" | "kind" | "name" | "range" | "stage" | "outside" | "n";

/** A moment of the rank's own clock, where it is drawn, and how many ns of that clock pass in one that is drawn. */
export interface RankScale {
  rank: number;
  own: string;
  drawn: number;
  rate: number;
  windows: { start: number; end: number; label: string }[];
}

/** A kind of mark: its colour; and for a part of a rank's time, which has no name of its own, what it is called. */
export interface Kind {
  colour: string;
  part: string | null;
}

export interface TimelineData extends Part {
  /** The command without a window, to add one to. */
  plain: string;
  kinds: Kind[];
  lanes: LaneIndex[];
  columns: Record<ColumnName, Column>;
  texts: string[][];
  ranks: RankScale[];
  ops: number;
  left_out: string[];
}

export interface Rank {
  rank: number;
  host: string | null;
  gpu: string | null;
  place: string;
}

/** What a reader must know beside the figures: src/stepscope/model/note.py. */
export interface Note {
  code: string;
  severity: "info" | "warning" | "loss";
  origin: "recording" | "import" | "analysis";
  text: string;
}

export interface Report {
  source: string;
  command: string;
  version: string;
  ranks: Rank[];
  findings: Findings | null;
  parts: {
    breakdown: Breakdown;
    steps?: Steps;
    compute?: Compute;
    overlap?: Overlap;
    peak?: Peak;
    memory?: Memory;
    roofline?: Roofline;
    collectives?: Collectives;
    stragglers?: Stragglers;
    pipeline?: Pipeline;
  };
  timeline: TimelineData | null;
  missing: { title: string; why: string }[];
  notes: Note[];
}

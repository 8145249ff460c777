// What is looked at, and how one gets from there to somewhere else: the same for a report's timeline and for a server's.

import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { DetailsData, Group, Place } from "../messages";
import { arrowsOf } from "./arrows";
import type { Linked } from "./linked";
import { isBucket, type Lane, type Picked } from "./marks";
import type { OverviewControl } from "./overview";
import { arranged, type Sort } from "./ranks";
import { firstOpen, layout } from "./rows";
import { closedAtFirst, keyOf, type Scene, stepAt } from "./scene";
import type { Source } from "./source";
import type { Control, Hit } from "./stage";
import { useSearch, useSpan } from "./asked";

export interface Given {
  scene: Scene;
  source: Source;
  /** What an address says. */
  linked?: Linked;
  /** By rank of the first profile: how long the others waited for it. */
  late: Record<string, number>;
  /** Moments that are pointed at. */
  places: Place[];
  /** Something changed that an address keeps; or what changes next is a jump that Back undoes. */
  remember?: () => void;
  jump?: () => void;
  /** An answer that did not come because nobody is there is said elsewhere. */
  silent?: (reason: unknown) => boolean;
}

const nothing = () => undefined;

export type TimelineState = ReturnType<typeof useTimeline>;

export function useTimeline({ scene, source, linked = {}, late, places, remember = nothing, jump = nothing, silent }: Given) {
  const { profiles } = scene;
  const control = useRef<Control | null>(null);
  const overview = useRef<OverviewControl | null>(null);
  const input = useRef<HTMLInputElement>(null);
  const [version, setVersion] = useState(0);
  const [failed, setFailed] = useState("");
  const [open, setOpen] = useState(() => firstOpen(scene));
  const [closed, setClosed] = useState(() => closedAtFirst(scene, linked.closed));
  const [pinned, setPinned] = useState(() => new Set(linked.pinned ?? []));
  const [filter, setFilter] = useState(linked.filter ?? "");
  const [sort, setSort] = useState<Sort>((linked.sort as Sort) ?? "rank");
  const [wanted, setWanted] = useState(linked.search ?? "");
  const [current, setCurrent] = useState(-1);
  const [listed, setListed] = useState(false);
  const [selected, setSelected] = useState<Picked | null>(null);
  const [details, setDetails] = useState<DetailsData | null>(null);
  const [span, setSpan] = useState<[number, number] | null>(linked.span ?? null);
  const [settled, setSettled] = useState(true);
  const [place, setPlace] = useState(linked.place ?? 0);
  const [step, setStep] = useState(linked.step ?? 0);
  const [seenStep, setSeenStep] = useState(-1);
  const [helped, setHelped] = useState(false);
  const view = useRef<[number, number]>([0, scene.end]);
  const matched = useRef(-1);
  const owed = useRef(0);
  const found = useSearch(source, wanted);
  const hosts = useMemo(() => new Map(scene.ranks.map(({ key, about }) => [key, about.host ?? ""])), [scene]);
  const shown = useMemo(() => arranged(scene.ranks, pinned, filter, sort, late, hosts), [scene, pinned, filter, sort, late]);
  const { rows, height } = useMemo(() => layout(shown, open, closed), [shown, open, closed]);
  const kinds = useMemo(() => new Set(scene.ranks.flatMap(({ lanes }) => lanes.map(({ about }) => about.group))), [scene]);
  const spans = useSpan(scene, source, settled ? span : null, shown);
  const arrows = useMemo(() => arrowsOf(scene, selected, details), [details]);
  const nav = () => control.current!.nav;
  const redraw = () => setVersion((v) => v + 1);
  const fail = (reason: unknown) => { if (!silent?.(reason)) setFailed((reason as Error).message); };

  source.heard = { arrived: redraw, failed: setFailed };
  const seen = useCallback((from: number, to: number, top: number, bottom: number, pixels: number) => {
    view.current = [from, to];
    overview.current?.framed(from, to);
    setSeenStep(stepAt(profiles[0]!.steps, from, to));
    const inView = rows.filter((row) => row.top + row.height > top - 40 && row.top < bottom + 40);
    source.show({ from, to, rows: inView, pixels, search: found.error ? "" : found.wanted });
    remember();
  }, [rows, source, found]);
  useEffect(remember, [selected, span, wanted, filter, sort, closed, pinned, step, place]);
  useEffect(() => {
    if (linked.from !== undefined && linked.to !== undefined) nav().show(linked.from, linked.to, 0, false);
    if (linked.selected) void pick(...linked.selected, false);
    if (profiles.length > 1) align(step, false);
  }, [scene]);

  /** What an address keeps. */
  const now = (): Linked => {
    const [from, to] = view.current, lane = selected?.lane;
    return {
      from, to, search: wanted, filter, sort, closed: [...closed], step, pinned: [...pinned], place,
      ...(span && { span }), ...(lane && { selected: [lane.profile, lane.id, selected!.row] as [number, number, number] }),
    };
  };
  /** What an address says: all of it, so that Back leads to what there was. */
  const apply = (to: Linked) => {
    setWanted(to.search ?? "");
    setCurrent(-1);
    setFilter(to.filter ?? "");
    setSort((to.sort as Sort) ?? "rank");
    setPinned(new Set(to.pinned ?? []));
    setClosed(closedAtFirst(scene, to.closed));
    setSpan(to.span ?? null);
    setPlace(to.place ?? 0);
    if (to.selected) void pick(...to.selected, false);
    else clear();
    if (profiles.length > 1) align(to.step ?? 0, false);
    nav().show(to.from ?? 0, to.to ?? scene.end, 0);
  };
  /** Show a stretch of time; Back leads away from it. */
  const visit = (from: number, to: number, room = 0) => {
    jump();
    nav().show(from, to, room);
  };
  /** Steps of the second profile below those of the first. */
  const align = (k: number, go = true) => {
    const to = profiles[0]!.steps[k];
    profiles.slice(1).forEach(({ steps }, i) => {
      const own = steps[Math.min(k, steps.length - 1)];
      scene.align(i + 1, to && own ? to.start - own.start : 0);
    });
    setStep(k);
    redraw();
    if (go && to) visit(to.start, to.end, 0.02);
  };
  /** Bring a moment of a rank into view, on a lane or on a stream. */
  const reveal = (key: number, stream: number | null, from: number, to: number, lane: Lane | null = null, onHost = false) => {
    const hidden = new Set(closed);
    if (lane) hidden.delete(lane.about.group);
    if (onHost) hidden.delete("host");
    setClosed(hidden);
    setOpen((before) => (before.has(key) ? before : new Set(before).add(key)));
    nav().show(from, to, 0.6);
    requestAnimationFrame(() => {
      const mine = layout(shown, new Set(open).add(key), hidden).rows.filter((row) => row.rank.key === key);
      const row = mine.find((r) => (lane ? r.lane === lane : r.lane?.about.group === "streams" && r.lane.about.level === stream)) ?? mine[0];
      if (row) control.current!.reveal(row.top, row.height);
    });
  };
  /** Select a mark, and go there. */
  const pick = async (profile: number, id: number, row: number, go = true) => {
    const lane = scene.lanes[profile]?.[id];
    if (!lane) return;
    if (go) jump();
    setSelected({ lane, row });
    try {
      const data = await source.details(profile, id, row);
      setDetails(data);
      const shift = scene.shift[profile]!;
      if (go) reveal(keyOf(profile, data.rank), null, data.start + shift, data.end + shift, lane);
    } catch (reason) {
      setDetails(null);
      fail(reason);
    }
  };
  const clear = () => {
    setSelected(null);
    setDetails(null);
  };
  const picked = (hit: Hit | null) => {
    const lane = hit?.lane;
    if (!hit || !lane || lane.about.group === "counters") return selected ? (jump(), clear()) : undefined;
    if (isBucket(lane, hit.mark)) { // too many to tell apart: closer
      const start = lane.marks.start[hit.mark]!;
      visit(start, start + lane.marks.dur[hit.mark]!, 4);
    } else {
      jump();
      void pick(lane.profile, lane.id, lane.marks.row[hit.mark]!, false);
    }
  };
  const here = (): [number, number] | null => {
    if (!details || !selected) return span;
    const shift = scene.shift[selected.lane.profile]!;
    return [details.start + shift, Math.max(details.end, details.start + 1) + shift];
  };
  const frame = () => {
    const target = here();
    if (target) visit(...target, 0.2);
  };
  const neighbour = (by: number) => {
    const row = (selected?.row ?? 0) + by;
    const last = selected && (selected.lane.marks.carried ? selected.lane.marks.start.length : selected.lane.about.n);
    if (selected && row >= 0 && row < last!) void pick(selected.lane.profile, selected.lane.id, row);
  };
  /** From match to match; where the last one is out of view, on from what is looked at. */
  const next = async (by: number) => {
    owed.current = found.wanted === wanted.trim() ? 0 : by; // asked for before the answer was there
    if (owed.current) return;
    const counts = found.answers.map((answer) => answer.count), total = counts.reduce((sum, n) => sum + n, 0);
    if (!total) return;
    const [from, to] = view.current;
    const first = counts[0] ? 0 : 1;
    try {
      let k = current + by;
      if (current < 0 || matched.current < from || matched.current > to) {
        const at = Math.round(Math.max(from - scene.shift[first]!, -scene.end));
        const near = await source.match(first, found.wanted, { at });
        k = (first ? counts[0]! : 0) + near.k - (by < 0 ? 1 : 0);
      }
      k = ((k % total) + total) % total;
      setCurrent(k);
      const profile = k < counts[0]! ? 0 : 1;
      const match = await source.match(profile, found.wanted, { k: profile ? k - counts[0]! : k });
      matched.current = match.start + scene.shift[profile]!;
      await pick(profile, match.lane, match.row);
    } catch (reason) {
      fail(reason);
    }
  };
  useEffect(() => {
    if (owed.current && found.wanted === wanted.trim()) void next(owed.current);
  }, [found]);
  /** What names no stream may be about the host: show what it did. */
  const goTo = (index: number, all = places) => {
    const target = all[((index % all.length) + all.length) % all.length];
    if (!target) return;
    setPlace(all.indexOf(target));
    reveal(target.rank, target.stream, target.start, target.end, null, target.stream === null);
  };
  const showSpan = (profile: number, rank: number, start: number, end: number) => {
    jump();
    const shift = scene.shift[profile]!;
    setSpan([start + shift, end + shift]);
    reveal(keyOf(profile, rank), null, start + shift, end + shift);
  };
  const keys: Record<string, () => void> = {
    f: frame,
    m: () => { jump(); setSpan(here()); },
    "/": () => input.current!.focus(),
    n: () => void next(1),
    p: () => void next(-1),
    "0": () => visit(0, scene.end),
    "?": () => setHelped(true),
    ".": () => neighbour(1),
    ",": () => neighbour(-1),
    Escape: () => { jump(); clear(); setSpan(null); },
  };
  return {
    scene, source, control, overview, input, version, failed, setFailed, rows, height, open, closed, pinned, filter, setFilter, sort, setSort,
    wanted, found, current, listed, setListed, selected, details, span, spans, places, place, step, seenStep, helped, setHelped, kinds, arrows,
    keys, late, now, apply, visit, align, clear, picked, frame, next, goTo, showSpan, seen, nav, jump, redraw, setSpan,
    search: (text: string) => { setWanted(text); setCurrent(-1); owed.current = 0; },
    toggleKind: (kind: Group) => setClosed(toggled(closed, kind)),
    fold: (key: number) => setOpen(toggled(open, key)),
    foldAll: (all: boolean) => setOpen(new Set(all ? [] : scene.ranks.map(({ key }) => key))),
    pin: (key: number) => setPinned(toggled(pinned, key)),
    measure: (to: [number, number] | null, done: boolean) => { if (settled) jump(); setSpan(to); setSettled(done); },
  };
}

function toggled<T>(set: Set<T>, key: T): Set<T> {
  const now = new Set(set);
  if (!now.delete(key)) now.add(key);
  return now;
}

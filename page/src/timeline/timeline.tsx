// The report's timeline: search, selection, and the moments that findings name.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { count, duration } from "../format";
import { Key, Section } from "../section";
import type { Place, TimelineData } from "../types";
import { Details, facts, Tip, titleOf } from "./about";
import { search } from "./find";
import { type Model } from "./model";
import { firstOpen, layout, withHost } from "./rows";
import { type Control, type Hit, Stage } from "./stage";

/** What to look at: `at` changes with every click, so that the same finding can be shown twice. */
export interface Focus {
  title: string;
  places: Place[];
  at: number;
}

const NOWHERE: Place[] = [];
const MOST_HEIGHT = 620;

export function Timeline({ part, model, focus, back }: {
  part: TimelineData; model: Model; focus: Focus | null; back: (() => void) | null;
}) {
  const control = useRef<Control | null>(null);
  const [open, setOpen] = useState(() => firstOpen(model));
  const [wanted, setWanted] = useState("");
  const [current, setCurrent] = useState(-1);
  const [picked, setPicked] = useState<Hit | null>(null);
  const [place, setPlace] = useState(0);
  const [host, setHost] = useState(() => model.ranks.length <= 2);
  const { rows, height } = useMemo(() => layout(model.ranks, open, withHost(host)), [model, open, host]);
  const found = useMemo(() => search(model, wanted), [model, wanted]);
  const selected = useMemo(() => picked && { lane: picked.lane, row: picked.mark }, [picked]);
  const places = focus?.places ?? NOWHERE;
  const chunked = model.ranks.some(({ scale }) => scale.windows.some(({ start, end }) => end - start <= 0.98 * model.end));
  const nav = () => control.current!.nav;

  /** Bring a moment of a rank into view. */
  const reveal = (rank: number, stream: number | null, from: number, to: number, onHost = host) => {
    setHost(onHost);
    setOpen((before) => (before.has(rank) ? before : new Set(before).add(rank)));
    nav().show(from, to, 0.6);
    requestAnimationFrame(() => {
      const mine = layout(model.ranks, new Set(open).add(rank), withHost(onHost)).rows.filter((row) => row.rank.key === rank);
      const row = mine.find((r) => r.lane?.group === "streams" && r.lane.level === stream) ?? mine[0];
      if (row) control.current!.reveal(row.top, row.height);
    });
  };
  const goTo = (index: number) => {
    const target = places[((index % places.length) + places.length) % places.length];
    if (!target) return;
    setPlace(places.indexOf(target));
    // What names no stream may be about the host: show what it did.
    reveal(target.rank, target.stream, target.start, target.end, host || target.stream === null);
  };
  useEffect(() => {
    if (focus) goTo(0);
  }, [focus?.at]);

  const step = (by: number) => {
    if (!found?.marks.length) return;
    const next = (current + by + found.marks.length) % found.marks.length;
    const { lane, mark } = found.marks[next]!;
    const rank = model.ranks.find((r) => r.key === lane.rank)!;
    const start = lane.marks.start[mark]!;
    setCurrent(next);
    setPicked({ row: { rank, lane, top: 0, height: 0 }, lane, mark });
    reveal(rank.key, lane.group === "streams" ? lane.level : null, start, start + lane.marks.dur[mark]!);
  };
  const fold = (key: number) => {
    const now = new Set(open);
    if (!now.delete(key)) now.add(key);
    setOpen(now);
  };
  const frame = () => {
    if (!picked) return;
    const start = picked.lane.marks.start[picked.mark]!;
    nav().show(start, start + picked.lane.marks.dur[picked.mark]!, 0.2);
  };

  return (
    <Section id="timeline" part={part} aside={<Legend />}>
      <div class="tools">
        <input type="search" placeholder="Search kernels and ranges, or /regex/" aria-label="Search the timeline" value={wanted}
          onInput={(e) => { setWanted(e.currentTarget.value); setCurrent(-1); }}
          onKeyDown={(e) => { if (e.key === "Enter") step(e.shiftKey ? -1 : 1); }} />
        {found && (
          <span class="found" role="status">
            {found.error ?? `${current >= 0 ? `${current + 1} of ` : ""}${count(found.marks.length, "match", "matches")}, ${duration(found.total)}`}
            <button type="button" onClick={() => step(-1)} aria-label="Previous match">‹</button>
            <button type="button" onClick={() => step(1)} aria-label="Next match">›</button>
          </span>
        )}
        {focus && (
          <span class="focus" role="status">
            <b>{focus.title}</b>
            {places.length > 1 && <>
              <button type="button" onClick={() => goTo(place - 1)} aria-label="Previous place">‹</button>
              {place + 1} of {places.length}
              <button type="button" onClick={() => goTo(place + 1)} aria-label="Next place">›</button>
            </>}
            {back && <button type="button" onClick={back}>back to findings</button>}
          </span>
        )}
        <span class="spring" />
        <label><input type="checkbox" checked={host} onChange={(e) => setHost(e.currentTarget.checked)} /> host</label>
        <button type="button" onClick={() => nav().scale(2)} aria-label="Zoom in">+</button>
        <button type="button" onClick={() => nav().scale(0.5)} aria-label="Zoom out">−</button>
        <button type="button" onClick={() => nav().whole()}>whole window</button>
      </div>
      <Stage model={model} rows={rows} height={height} open={open} most={MOST_HEIGHT} matches={found?.matches ?? null}
        selected={selected} places={places} place={place} control={control} onPick={setPicked} onFold={fold}
        keys={{ f: frame }}
        label="Timeline of all ranks and streams. Keys: w and s zoom, a and d move, f frames what is selected, 0 shows all."
        tip={({ row, lane, mark }) => <Tip title={titleOf(model, lane, mark)} rows={facts(model, row.rank, lane, mark)} />} />
      {picked && (
        <Details model={model} rank={picked.row.rank} lane={picked.lane} mark={picked.mark} close={() => setPicked(null)} />
      )}
      <p class="dim hint">
        Drag to move, Ctrl + wheel to zoom, or keys <kbd>w</kbd> <kbd>s</kbd> <kbd>a</kbd> <kbd>d</kbd> <kbd>f</kbd> <kbd>0</kbd>.
        {" "}{count(part.ops, "op")}. Ranges lie where the work they launched ran.
        {chunked && " The line under a rank's strip is the window of the figures below."}
        {part.left_out.map((line) => <> {line}.</>)}
      </p>
    </Section>
  );
}

export function Legend() {
  return (
    <span class="keys">
      <Key kind="compute">compute</Key><Key kind="comm">communication</Key><Key kind="copy">copies</Key><Key kind="idle">idle</Key>
    </span>
  );
}

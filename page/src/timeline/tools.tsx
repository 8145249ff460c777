// What stands above the drawing: search, the finding that is shown, steps, ranks, kinds of rows, zoom.

import type { ComponentChildren } from "preact";
import { count, duration } from "../format";
import type { Group, Place, Step } from "../messages";
import type { Searched } from "./asked";
import { type Sort, SORTS } from "./ranks";

export const KINDS: [Group, string][] = [
  ["ranges", "ranges on the GPU"], ["streams", "streams"], ["counters", "counters"], ["host", "host threads"], ["functions", "functions"],
];

export function SearchTool({ found, wanted, setWanted, current, next, list, input }: {
  found: Searched; wanted: string; setWanted: (text: string) => void; current: number; next: (by: number) => void; list: () => void;
  input: { current: HTMLInputElement | null };
}) {
  const total = found.answers.reduce((sum, answer) => sum + answer.count, 0);
  const onGpu = found.answers.reduce((sum, answer) => sum + answer.total_ns, 0);
  return (
    <>
      <input ref={input} type="search" placeholder="Search names, or /regex/" aria-label="Search the timeline" value={wanted}
        onInput={(e) => setWanted(e.currentTarget.value)}
        onKeyDown={(e) => { if (e.key === "Enter") next(e.shiftKey ? -1 : 1); if (e.key === "Escape") e.currentTarget.blur(); }} />
      {found.wanted && (
        <span class="found" role="status">
          {found.error ?? `${current >= 0 ? `${(current + 1).toLocaleString("en")} of ` : ""}${count(total, "match", "matches")}${onGpu ? `, ${duration(onGpu)}` : ""}`}
          <button type="button" onClick={() => next(-1)} aria-label="Previous match">‹</button>
          <button type="button" onClick={() => next(1)} aria-label="Next match">›</button>
          <button type="button" onClick={list}>list</button>
        </span>
      )}
    </>
  );
}

export function FocusTool({ title, places, place, go, actions }: {
  title: string; places: Place[]; place: number; go: (place: number) => void; actions: ComponentChildren;
}) {
  return (
    <span class="focus" role="status">
      <b>{title}</b>
      {places.length > 1 && <>
        <button type="button" onClick={() => go(place - 1)} aria-label="Previous place">‹</button>
        {place + 1} of {places.length}
        <button type="button" onClick={() => go(place + 1)} aria-label="Next place">›</button>
      </>}
      {actions}
    </span>
  );
}

/** `step` is the one that is looked at; -1 where the view is of several, or of none. */
export function StepTool({ steps, step, aligns, go }: { steps: Step[]; step: number; aligns: boolean; go: (step: number) => void }) {
  if (!steps.length) return null;
  return (
    <select aria-label={aligns ? "Align on this step" : "Go to a step"} value={step} onChange={(e) => go(Number(e.currentTarget.value))}>
      {!aligns && <option value={-1}>{count(steps.length, "step")}</option>}
      {steps.map(({ label }, k) => <option value={k}>{label}</option>)}
    </select>
  );
}

export function RankTools({ filter, setFilter, sort, setSort, late }: {
  filter: string; setFilter: (filter: string) => void; sort: Sort; setSort: (sort: Sort) => void; late: boolean;
}) {
  return (
    <>
      <input type="text" class="ranks" placeholder="ranks: 0,3-5" title="Numbers, or a part of the host or place" aria-label="Only these ranks" value={filter} onInput={(e) => setFilter(e.currentTarget.value)} />
      <select aria-label="Order of ranks" value={sort} onChange={(e) => setSort(e.currentTarget.value as Sort)}>
        {SORTS.map(([key, title]) => <option value={key} disabled={key === "culprit" && !late}>{title}</option>)}
      </select>
    </>
  );
}

/** Which kinds of rows are shown, and whether ranks are folded. */
export function TrackTool({ kinds, closed, toggle, fold }: {
  kinds: Set<Group>; closed: Set<Group>; toggle: (kind: Group) => void; fold: (all: boolean) => void;
}) {
  return (
    <details class="menu">
      <summary>tracks</summary>
      <div>
        {KINDS.filter(([kind]) => kinds.has(kind)).map(([kind, title]) => (
          <label><input type="checkbox" checked={!closed.has(kind)} onChange={() => toggle(kind)} /> {title}</label>
        ))}
        <button type="button" onClick={() => fold(true)}>fold all ranks</button>
        <button type="button" onClick={() => fold(false)}>open all ranks</button>
      </div>
    </details>
  );
}

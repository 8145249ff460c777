// The interactive timeline: canvas, search, selection, and the moments that findings name.

import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { count, duration } from "../format";
import { Key, Section } from "../section";
import type { Place, TimelineData } from "../types";
import { Details, facts, Tip, titleOf } from "./about";
import { AXIS, draw, LABELS, palette, type View } from "./draw";
import { markAt, search } from "./find";
import { type Model } from "./model";
import { Navigator } from "./navigate";
import { firstOpen, layout, type Row } from "./rows";

/** What to look at: `at` changes with every click, so that the same finding can be shown twice. */
export interface Focus {
  title: string;
  places: Place[];
  at: number;
}

const MOST_HEIGHT = 620, MOST_PRINTED = 2400;

export function Timeline({ part, model, focus, back }: {
  part: TimelineData; model: Model; focus: Focus | null; back: (() => void) | null;
}) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const scroller = useRef<HTMLDivElement>(null);
  const navigator = useRef<Navigator | null>(null);
  const visible = useRef<[number, number]>([0, model.end]);
  const queued = useRef(0);
  const printed = useRef(false);
  const [open, setOpen] = useState(() => firstOpen(model));
  const [wanted, setWanted] = useState("");
  const [current, setCurrent] = useState(-1);
  const [selected, setSelected] = useState<{ mark: number; row: Row } | null>(null);
  const [hover, setHover] = useState<{ mark: number; row: Row; x: number; y: number } | null>(null);
  const [place, setPlace] = useState(0);
  const [host, setHost] = useState(() => model.ranks.length <= 2);
  const { rows, height } = useMemo(() => layout(model, open, host), [model, open, host]);
  const found = useMemo(() => search(model, wanted), [model, wanted]);
  const places = focus?.places ?? [];
  const chunked = model.ranks.some(({ scale }) => scale.windows.some(({ start, end }) => end - start <= 0.98 * model.end));

  const paint = useCallback(() => {
    queued.current = 0;
    const element = canvas.current!;
    const ratio = printed.current ? 2 : window.devicePixelRatio || 1;
    const width = element.clientWidth, tall = scroller.current!.clientHeight; // what is visible, not all rows
    element.style.height = `${tall}px`;
    if (element.width !== Math.round(width * ratio) || element.height !== Math.round(tall * ratio)) {
      element.width = Math.round(width * ratio);
      element.height = Math.round(tall * ratio);
    }
    const ctx = element.getContext("2d")!;
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    const view: View = {
      width, height: tall, from: visible.current[0], to: visible.current[1], scroll: scroller.current!.scrollTop,
      rows, open, matches: found?.matches ?? null, selected: selected?.mark ?? -1, hovered: hover?.mark ?? -1, places, place,
    };
    draw(ctx, model, view, palette(model.data.kinds));
    element.dataset.from = String(Math.round(view.from));
    element.dataset.to = String(Math.round(view.to));
  }, [model, rows, open, found, selected, hover?.mark, places, place]);
  const latest = useRef(paint);
  latest.current = paint;
  const repaint = useCallback(() => {
    queued.current ||= requestAnimationFrame(() => latest.current());
  }, []);

  useEffect(repaint, [paint]);
  useEffect(() => {
    const element = canvas.current!;
    const nav = new Navigator(element, model.end, (from, to, vertical) => {
      visible.current = [from, to];
      if (vertical) scroller.current!.scrollTop -= vertical;
      repaint();
    });
    navigator.current = nav;
    const resized = new ResizeObserver(() => {
      const [from, to] = visible.current;
      nav.resize();
      nav.show(from, to, 0, false);
      repaint();
    });
    resized.observe(element);
    const themed = new MutationObserver(repaint);
    themed.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    return () => {
      resized.disconnect();
      themed.disconnect();
    };
  }, [model]);
  usePrinted(() => {
    printed.current = true;
    scroller.current!.style.height = `${Math.min(height + AXIS, MOST_PRINTED)}px`;
    latest.current();
  }, () => {
    printed.current = false;
    scroller.current!.style.height = "";
    repaint();
  });

  /** Bring a moment of a rank into view. */
  const reveal = (rank: number, stream: number | null, from: number, to: number, onHost = host) => {
    setHost(onHost);
    setOpen((before) => (before.has(rank) ? before : new Set(before).add(rank)));
    navigator.current!.show(from, to, 0.6);
    requestAnimationFrame(() => {
      const mine = layout(model, new Set(open).add(rank), onHost).rows.filter((row) => row.rank.rank === rank);
      const row = mine.find((r) => r.lane?.group === "streams" && r.lane.level === stream) ?? mine[0];
      const box = scroller.current!;
      if (row && (row.top < box.scrollTop || row.top + row.height > box.scrollTop + box.clientHeight - AXIS)) {
        box.scrollTop = Math.max(0, row.top - 60);
      }
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
    const mark = found.marks[next]!;
    const rank = model.ranks.find((r) => r.lanes.some((lane) => mark >= lane.first && mark < lane.first + lane.n))!;
    const lane = rank.lanes.find((l) => mark >= l.first && mark < l.first + l.n)!;
    setCurrent(next);
    setSelected({ mark, row: { rank, lane, top: 0, height: 0 } });
    reveal(rank.rank, lane.group === "streams" ? lane.level : null, model.start[mark]!, model.start[mark]! + model.dur[mark]!);
  };

  const under = (event: MouseEvent): { row: Row | null; mark: number; x: number; y: number } => {
    const box = canvas.current!.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    const down = y - AXIS + scroller.current!.scrollTop;
    const row = y < AXIS ? null : rows.find((r) => down >= r.top && down < r.top + r.height) ?? null;
    const [from, to] = visible.current;
    const perPixel = (to - from) / Math.max(1, box.width - LABELS);
    const time = from + (x - LABELS) * perPixel;
    const mark = row && x >= LABELS ? markAt(model, row, time, 2 * perPixel, down - row.top) : -1;
    return { row, mark, x, y };
  };
  const moved = (event: MouseEvent) => {
    const { row, mark, x, y } = under(event);
    canvas.current!.style.cursor = row && x < LABELS && !row.lane ? "pointer" : mark >= 0 ? "pointer" : "";
    setHover(row && mark >= 0 && !event.buttons ? { mark, row, x, y } : null);
  };
  const clicked = (event: MouseEvent) => {
    const { row, mark, x } = under(event);
    if (row && !row.lane && x < LABELS) {
      const now = new Set(open);
      if (!now.delete(row.rank.rank)) now.add(row.rank.rank);
      setOpen(now);
    } else if (row?.lane) {
      setSelected(mark >= 0 ? { mark, row } : null);
    }
  };
  const pressed = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = keys[event.key];
    if (!act) return;
    event.preventDefault();
    act(navigator.current!);
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
        <button type="button" onClick={() => navigator.current!.scale(2)} aria-label="Zoom in">+</button>
        <button type="button" onClick={() => navigator.current!.scale(0.5)} aria-label="Zoom out">−</button>
        <button type="button" onClick={() => navigator.current!.whole()}>whole window</button>
      </div>
      <div class="stage" tabIndex={0} ref={scroller} onScroll={repaint} onKeyDown={pressed}
        style={{ maxHeight: `${Math.min(height + AXIS, MOST_HEIGHT)}px` }}
        aria-label="Timeline of all ranks and streams. Keys: w and s zoom, a and d move, 0 shows all.">
        <div class="tall" style={{ height: `${height + AXIS}px` }}>
          <canvas ref={canvas} onMouseMove={moved} onMouseLeave={() => setHover(null)} onClick={clicked} />
        </div>
      </div>
      {hover && (
        <div class="tip" style={tipPlace(hover, canvas.current!)}>
          <Tip title={titleOf(model, hover.mark)} rows={facts(model, hover.row.rank, hover.mark, hover.row.lane?.label ?? "")} />
        </div>
      )}
      {selected && (
        <Details model={model} rank={selected.row.rank} mark={selected.mark} lane={selected.row.lane?.label ?? ""}
          close={() => setSelected(null)} />
      )}
      <p class="dim hint">
        Drag to move, Ctrl + wheel to zoom, or keys <kbd>w</kbd> <kbd>s</kbd> <kbd>a</kbd> <kbd>d</kbd> <kbd>0</kbd>.
        {" "}{count(part.ops, "op")}. Ranges lie where the work they launched ran.
        {chunked && " The line under a rank's strip is the window of the figures below."}
        {part.left_out.map((line) => <> {line}.</>)}
      </p>
    </Section>
  );
}

const keys: Record<string, (nav: Navigator) => void> = {
  w: (nav) => nav.scale(2),
  s: (nav) => nav.scale(0.5),
  a: (nav) => nav.pan(-0.3),
  d: (nav) => nav.pan(0.3),
  ArrowLeft: (nav) => nav.pan(-0.3),
  ArrowRight: (nav) => nav.pan(0.3),
  "0": (nav) => nav.whole(),
};

function Legend() {
  return (
    <span class="keys">
      <Key kind="compute">compute</Key><Key kind="comm">communication</Key><Key kind="copy">copies</Key><Key kind="idle">idle</Key>
    </span>
  );
}

function tipPlace({ x, y }: { x: number; y: number }, canvas: HTMLCanvasElement): Record<string, string> {
  const box = canvas.getBoundingClientRect();
  const left = Math.min(box.left + x + 14, innerWidth - 380);
  const above = box.top + y > innerHeight - 180;
  return { left: `${left}px`, ...(above ? { bottom: `${innerHeight - box.top - y + 10}px` } : { top: `${box.top + y + 16}px` }) };
}

/** Paper is light, and has no scroll bars: drawn anew before printing, and again after it. */
function usePrinted(before: () => void, after: () => void): void {
  const acts = useRef({ before, after });
  acts.current = { before, after };
  useEffect(() => {
    const root = document.documentElement;
    let theme = "light";
    const begin = () => {
      theme = root.dataset.theme!;
      root.dataset.theme = "light";
      document.querySelectorAll("details").forEach((element) => element.setAttribute("open", ""));
      acts.current.before();
    };
    const finish = () => {
      root.dataset.theme = theme;
      acts.current.after();
    };
    addEventListener("beforeprint", begin);
    addEventListener("afterprint", finish);
    return () => {
      removeEventListener("beforeprint", begin);
      removeEventListener("afterprint", finish);
    };
  }, []);
}

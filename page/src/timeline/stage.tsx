// The drawing itself: a canvas that scrolls, zooms and answers the pointer and the keyboard. Reports and servers share it.

import type { ComponentChildren } from "preact";
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { draw } from "./draw";
import { type Lane, markAt, type Marks, type Picked } from "./marks";
import { Navigator } from "./navigate";
import type { Row } from "./rows";
import type { Scene } from "./scene";
import { type Arrow, AXIS, labelsOf, palette, PIN, type View } from "./view";
import type { Place } from "../messages";

/** What lies under the pointer. */
export interface Hit {
  row: Row;
  lane: Lane;
  mark: number;
}

export interface StageProps {
  scene: Scene;
  rows: Row[];
  height: number;
  open: Set<number>;
  /** How tall the drawing may become; "fill" leaves it to the style sheet. */
  most: number | "fill";
  searched: boolean;
  selected: Picked | null;
  places?: Place[];
  place?: number;
  arrows?: Arrow[];
  span?: [number, number] | null;
  /** Changes whenever marks arrive. */
  version?: number;
  label: string;
  tip: (hit: Hit) => ComponentChildren;
  onPick: (hit: Hit | null) => void;
  onFold: (key: number) => void;
  pinned?: Set<number> | null;
  onPin?: (key: number) => void;
  onSpan?: (span: [number, number] | null, done: boolean) => void;
  /** What is visible: time, and the rows that are scrolled to. */
  onView?: (from: number, to: number, top: number, bottom: number, width: number) => void;
  keys?: Record<string, () => void>;
  control: { current: Control | null };
}

/** What the page around it can make the drawing do. */
export interface Control {
  nav: Navigator;
  /** Scroll so that a row is in view. */
  reveal: (top: number, height: number) => void;
}

const MOST_PRINTED = 2400;
/** Few rows still have room for what is said of them. */
const LEAST_TALL = 180;
/** Of the screen, for what stays above the rows: they scroll in their box rather than below the screen's edge. */
const ABOVE = 190;
const NONE: never[] = [];

export function Stage(props: StageProps) {
  const { scene, rows, height, open, selected, version, places = NONE, place = 0, arrows = NONE, span = null } = props;
  const { searched, pinned = null } = props;
  const canvas = useRef<HTMLCanvasElement>(null);
  const scroller = useRef<HTMLDivElement>(null);
  const visible = useRef<[number, number]>([0, scene.end]);
  const queued = useRef(0);
  const printed = useRef(false);
  const measured = useRef<number | null>(null);
  const [pointed, setHover] = useState<{ hit: Hit; marks: Marks; x: number; y: number } | null>(null);
  const hover = pointed && pointed.hit.lane.marks === pointed.marks ? pointed : null; // others may have arrived since
  const live = useRef(props);
  live.current = props;

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
    const [from, to] = visible.current, scroll = scroller.current!.scrollTop;
    const hovered = hover && { lane: hover.hit.lane, row: hover.hit.lane.marks.row[hover.hit.mark]! };
    const view: View = {
      width, height: tall, from, to, scroll, rows, open, searched, selected, hovered, places, place, arrows, span,
      pinned,
    };
    draw(ctx, scene, view, palette(scene.kinds));
    element.dataset.from = String(Math.round(from));
    element.dataset.to = String(Math.round(to));
    live.current.onView?.(from, to, scroll, scroll + tall, width - labelsOf(width));
  }, [scene, rows, open, searched, selected, hover?.hit.mark, hover?.hit.lane, places, place, arrows, span, pinned, version]);
  const latest = useRef(paint);
  latest.current = paint;
  const repaint = useCallback(() => {
    queued.current ||= requestAnimationFrame(() => latest.current());
  }, []);

  useEffect(repaint, [paint]);
  useEffect(() => {
    const element = canvas.current!;
    const changed = (from: number, to: number, vertical: number) => {
      visible.current = [from, to];
      if (vertical) scroller.current!.scrollTop -= vertical;
      repaint();
    };
    const measures = (event: MouseEvent) => live.current.onSpan !== undefined && event.offsetY < AXIS;
    const nav = new Navigator(element, scene.end, changed, measures);
    props.control.current = {
      nav,
      reveal: (top, tall) => {
        const box = scroller.current!;
        if (top < box.scrollTop || top + tall > box.scrollTop + box.clientHeight - AXIS) box.scrollTop = Math.max(0, top - 60);
      },
    };
    const resized = new ResizeObserver(() => {
      nav.resized(...visible.current);
      repaint();
    });
    resized.observe(element);
    const themed = new MutationObserver(repaint);
    themed.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    // Keys need no click first: they act while the drawing is on the screen, unless somebody types.
    const pressed = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      const types = target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
      if (document.querySelector("dialog[open]")) return;
      if (event.ctrlKey || event.metaKey || event.altKey || (types && target.getAttribute("type") !== "checkbox")) return;
      const own = live.current.keys?.[event.key], act = keys[event.key];
      if ((!own && !act) || !(nav.hovered || onScreen(scroller.current!))) return;
      event.preventDefault();
      if (own) own();
      else act!(nav, event.repeat);
    };
    addEventListener("keydown", pressed);
    return () => {
      resized.disconnect();
      themed.disconnect();
      removeEventListener("keydown", pressed);
    };
  }, [scene]);
  usePrinted(() => {
    printed.current = true;
    scroller.current!.style.height = `${Math.min(height + AXIS, MOST_PRINTED)}px`;
    latest.current();
  }, () => {
    printed.current = false;
    scroller.current!.style.height = "";
    repaint();
  });

  const at = ({ lane, rank }: Row, time: number, slack: number) => (lane ?? rank.parts ? markAt((lane ?? rank.parts)!, time, slack) : -1);
  const under = (event: MouseEvent): { row: Row | null; mark: number; x: number; y: number } => {
    const box = canvas.current!.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    const down = y - AXIS + scroller.current!.scrollTop, labels = labelsOf(box.width);
    const row = y < AXIS ? null : rows.find((r) => down >= r.top && down < r.top + r.height) ?? null;
    const [from, to] = visible.current;
    const perPixel = (to - from) / Math.max(1, box.width - labels);
    const time = from + (x - labels) * perPixel;
    const mark = row && x >= labels ? at(row, time, 2 * perPixel) : -1;
    return { row, mark, x, y };
  };
  const hitOf = (row: Row | null, mark: number): Hit | null => {
    const lane = row?.lane ?? row?.rank.parts;
    return row && lane && mark >= 0 ? { row, lane, mark } : null;
  };
  const timeAt = (event: MouseEvent) => {
    const box = canvas.current!.getBoundingClientRect();
    return Math.min(Math.max(props.control.current!.nav.timeAt(event.clientX - box.left), 0), scene.end);
  };
  const moved = (event: MouseEvent) => {
    const { row, mark, x, y } = under(event);
    const onName = row && x < labelsOf(canvas.current!.clientWidth) && !row.lane;
    canvas.current!.style.cursor = y < AXIS && props.onSpan ? "col-resize" : onName || mark >= 0 ? "pointer" : "";
    const hit = hitOf(row, mark);
    setHover(hit && !event.buttons ? { hit, marks: hit.lane.marks, x, y } : null);
  };
  const down = (event: PointerEvent) => {
    const onAxis = event.offsetY < AXIS;
    if (!props.onSpan || event.button || !(event.shiftKey || onAxis) || event.offsetX < labelsOf(canvas.current!.clientWidth)) return;
    measured.current = timeAt(event);
    canvas.current!.setPointerCapture(event.pointerId);
    event.preventDefault();
  };
  const dragged = (event: PointerEvent, done: boolean) => {
    const from = measured.current;
    if (from === null) return;
    const to = timeAt(event);
    if (done) measured.current = null;
    const wide = Math.abs(to - from) >= 2 * (visible.current[1] - visible.current[0]) / canvas.current!.clientWidth;
    props.onSpan!(wide ? [Math.min(from, to), Math.max(from, to)] : null, done);
  };
  const clicked = (event: MouseEvent) => {
    if (event.shiftKey) return;
    const { row, mark, x, y } = under(event);
    if (y < AXIS) return;
    const labels = labelsOf(canvas.current!.clientWidth);
    if (row && !row.lane && x < labels) (props.onPin && x > labels - PIN ? props.onPin : props.onFold)(row.rank.key);
    else if (row?.lane) props.onPick(hitOf(row, mark));
  };

  return (
    <>
      <div class={`stage${props.most === "fill" ? " fill" : ""}`} role="region" tabIndex={0} ref={scroller} onScroll={repaint}
        style={{ maxHeight: `${props.most === "fill" ? Math.max(height + AXIS + 2, LEAST_TALL) : Math.min(height + AXIS, props.most, Math.max(innerHeight - ABOVE, LEAST_TALL))}px` }} aria-label={props.label}>
        <div class="tall" style={{ height: `${height + AXIS}px` }}>
          <canvas ref={canvas} onMouseMove={moved} onMouseLeave={() => setHover(null)} onClick={clicked}
            onPointerDown={down} onPointerMove={(e) => dragged(e, false)} onPointerUp={(e) => dragged(e, true)} />
        </div>
      </div>
      {hover && <div class="tip" style={tipPlace(hover, canvas.current!)}>{props.tip(hover.hit)}</div>}
    </>
  );
}

/** One press doubles; a key that is held goes on smoothly. */
const keys: Record<string, (nav: Navigator, held: boolean) => void> = {
  w: (nav, held) => nav.scale(held ? 1.25 : 2, true),
  s: (nav, held) => nav.scale(held ? 0.8 : 0.5, true),
  a: (nav) => nav.pan(-0.3),
  d: (nav) => nav.pan(0.3),
  ArrowLeft: (nav) => nav.pan(-0.3),
  ArrowRight: (nav) => nav.pan(0.3),
  "0": (nav) => nav.whole(),
};

/** Whether a good part of the element is in view. */
function onScreen(element: HTMLElement): boolean {
  const { top, bottom } = element.getBoundingClientRect();
  return Math.min(bottom, innerHeight) - Math.max(top, 0) > Math.min(bottom - top, innerHeight) / 3;
}

function tipPlace({ x, y }: { x: number; y: number }, canvas: HTMLCanvasElement): Record<string, string> {
  const box = canvas.getBoundingClientRect();
  const left = Math.max(4, Math.min(box.left + x + 14, innerWidth - Math.min(380, innerWidth)));
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

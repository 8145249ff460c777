// The whole capture in one strip, and the view as a frame in it: press or drag to look elsewhere.

import { useEffect, useRef } from "preact/hooks";
import type { Scene } from "./scene";
import type { Source } from "./source";
import { palette } from "./view";

const HEIGHT = 34;
/** Ranks that the strip is made of at most: evenly chosen among all. */
const MOST_RANKS = 24;

/** By profile, kind of part and pixel: how much of the pixel's time it took, of all ranks together. */
type Shares = Float64Array[][];

export interface OverviewControl {
  /** The view has moved. */
  framed: (from: number, to: number) => void;
}

export function Overview({ scene, source, title, control, go }: {
  scene: Scene; source: Source; title: string; control: { current: OverviewControl | null }; go: (from: number, to: number, begins: boolean) => void;
}) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const frame = useRef<HTMLDivElement>(null);
  const view = useRef<[number, number]>([0, scene.end]);
  const held = useRef<{ offset: number; span: number } | null>(null);
  const shares = useRef<Shares>([]);

  const place = () => {
    const [from, to] = view.current, { style } = frame.current!;
    style.left = `${(100 * from) / scene.end}%`;
    style.width = `${(100 * (to - from)) / scene.end}%`;
  };
  control.current = { framed: (from, to) => { view.current = [from, to]; place(); } };

  useEffect(() => {
    const element = canvas.current!;
    let stopped = false, pixels = 0;
    const paint = () => draw(element, scene, shares.current);
    const fill = async () => {
      const wide = element.clientWidth;
      if (!wide || wide === pixels) return paint();
      pixels = wide;
      const gathered = await Promise.all(scene.lanes.map((_, p) => sharesOf(scene, source, p, wide).catch(() => [])));
      if (stopped) return;
      shares.current = gathered;
      paint();
      place();
    };
    const resized = new ResizeObserver(() => void fill());
    resized.observe(element);
    const themed = new MutationObserver(paint);
    themed.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    return () => {
      stopped = true;
      resized.disconnect();
      themed.disconnect();
    };
  }, [scene, source]);

  const momentOf = (event: PointerEvent) => {
    const { left, width } = canvas.current!.getBoundingClientRect();
    return Math.min(Math.max((event.clientX - left) / width, 0), 1) * scene.end;
  };
  const pressed = (event: PointerEvent) => {
    if (event.button) return;
    const at = momentOf(event), [from, to] = view.current;
    const whole = to - from > 0.98 * scene.end;
    const span = whole ? scene.end / 10 : to - from;
    // Inside the frame it is dragged by where it is held; elsewhere it comes to the pointer.
    held.current = { span, offset: !whole && at >= from && at <= to ? at - from : span / 2 };
    (event.currentTarget as HTMLElement).setPointerCapture(event.pointerId);
    event.preventDefault();
    go(at - held.current.offset, at - held.current.offset + span, true);
  };
  const dragged = (event: PointerEvent) => {
    if (!held.current) return;
    const from = momentOf(event) - held.current.offset;
    go(from, from + held.current.span, false);
  };
  return (
    <div class="overview">
      <span class="dim">{title}</span>
      <div class="strip" onPointerDown={pressed} onPointerMove={dragged} onPointerUp={() => { held.current = null; }}>
        <canvas ref={canvas} role="img" aria-label="All of it: compute, exposed communication, exposed copies and idle time of all ranks. The frame is the view." />
        <div ref={frame} class="frame" />
      </div>
    </div>
  );
}

/** What the parts of some ranks take of every pixel. */
async function sharesOf(scene: Scene, source: Source, profile: number, pixels: number): Promise<Float64Array[]> {
  const parts = scene.lanes[profile]!.filter(({ about }) => about.group === "parts");
  const every = Math.ceil(parts.length / MOST_RANKS);
  const lanes = parts.filter((_, i) => i % every === 0).map(({ id }) => id);
  const shares = scene.kinds.map(() => new Float64Array(pixels));
  if (!lanes.length) return shares;
  const scale = pixels / scene.end;
  for (const { start, dur, kind } of await source.parts(profile, lanes, pixels)) {
    for (let i = 0; i < start.length; i++) {
      const left = Math.max(start[i]! * scale, 0), right = Math.min((start[i]! + dur[i]!) * scale, pixels);
      const share = shares[kind[i]!]!;
      for (let x = Math.floor(left); x < right; x++) share[x]! += Math.min(right, x + 1) - Math.max(left, x);
    }
  }
  return shares;
}

/** Profiles below each other, each pixel stacked by its shares. */
function draw(canvas: HTMLCanvasElement, scene: Scene, all: Shares): void {
  const ratio = window.devicePixelRatio || 1, wide = canvas.clientWidth;
  canvas.width = Math.round(wide * ratio);
  canvas.height = Math.round(HEIGHT * ratio);
  const ctx = canvas.getContext("2d")!, colours = palette(scene.kinds);
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.fillStyle = colours.panel;
  ctx.fillRect(0, 0, wide, HEIGHT);
  const tall = HEIGHT / Math.max(all.length, 1);
  all.forEach((shares, p) => {
    for (let x = 0; x < (shares[0]?.length ?? 0); x++) {
      const sum = shares.reduce((total, share) => total + share[x]!, 0);
      let y = tall * p + 1;
      shares.forEach((share, kind) => {
        const height = sum ? ((tall - 2) * share[x]!) / sum : 0;
        ctx.fillStyle = colours.kinds[kind]![0]!;
        if (height) ctx.fillRect(x, y, 1, height);
        y += height;
      });
    }
  });
}


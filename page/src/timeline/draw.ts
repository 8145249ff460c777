// Draws the visible part of the timeline on a canvas. What is narrower than a pixel is drawn once per pixel.

import { scaleLinear } from "d3-scale";
import { instant } from "../format";
import type { Kind, Place } from "../types";
import { RANGE_LINE, type Row } from "./rows";
import { type Lane, type Model } from "./model";

export const LABELS = 168, AXIS = 26;

export interface View {
  width: number;
  height: number;
  /** Visible time. */
  from: number;
  to: number;
  scroll: number;
  rows: Row[];
  open: Set<number>;
  /** By text: 1 where it matches the search; null without one. */
  matches: Uint8Array | null;
  selected: number;
  hovered: number;
  places: Place[];
  place: number;
}

export type Palette = Record<"ink" | "dim" | "paper" | "panel" | "line" | "accent" | "onmark", string> & { kinds: string[][] };

/** Colours of the style sheet, by kind: marks have three shades, so that neighbours differ; parts have one. */
export function palette(kinds: Kind[]): Palette {
  const style = getComputedStyle(document.documentElement);
  const get = (name: string) => style.getPropertyValue(`--${name}`).trim();
  const shades = ({ colour, part }: Kind) =>
    part === null ? [get(colour), get(`${colour}-2`) || get(colour), get(`${colour}-3`) || get(colour)] : [get(colour)];
  return {
    ink: get("ink"), dim: get("dim"), paper: get("paper"), panel: get("panel"), line: get("line"),
    accent: get("accent"), onmark: get("onmark"), kinds: kinds.map(shades),
  };
}

export function draw(ctx: CanvasRenderingContext2D, model: Model, view: View, colours: Palette): void {
  ctx.clearRect(0, 0, view.width, view.height);
  ctx.fillStyle = colours.paper;
  ctx.fillRect(0, 0, view.width, view.height);
  ctx.textBaseline = "middle";
  ctx.save();
  ctx.beginPath();
  ctx.rect(0, AXIS, view.width, view.height - AXIS);
  ctx.clip();
  ctx.translate(0, AXIS - view.scroll);
  const rows = view.rows.filter((row) => row.top + row.height > view.scroll && row.top < view.scroll + view.height);
  for (const row of rows) drawRow(ctx, model, view, colours, row);
  for (const row of rows) drawLabel(ctx, view, colours, row);
  drawPlaces(ctx, view, colours);
  ctx.restore();
  drawAxis(ctx, view, colours);
}

/** Pixels of a moment. */
export function xOf(view: View, time: number): number {
  return LABELS + ((time - view.from) * (view.width - LABELS)) / (view.to - view.from);
}

function drawAxis(ctx: CanvasRenderingContext2D, view: View, colours: Palette): void {
  const x = scaleLinear([view.from, view.to], [LABELS, view.width]);
  const ticks = x.ticks(Math.max(3, Math.floor((view.width - LABELS) / 110)));
  const step = (ticks[1] ?? view.to) - (ticks[0] ?? view.from);
  ctx.fillStyle = colours.panel;
  ctx.fillRect(0, 0, view.width, AXIS);
  ctx.font = "11px system-ui, sans-serif";
  ctx.textAlign = "left";
  for (const tick of ticks) {
    ctx.fillStyle = colours.line;
    ctx.fillRect(Math.round(x(tick)), 0, 1, AXIS);
    ctx.fillStyle = colours.dim;
    ctx.fillText(instant(tick, step), x(tick) + 4, AXIS / 2);
  }
  ctx.fillStyle = colours.line;
  ctx.fillRect(0, AXIS - 1, view.width, 1);
}

function drawLabel(ctx: CanvasRenderingContext2D, view: View, colours: Palette, row: Row): void {
  const middle = row.top + (row.lane && row.lane.group !== "streams" ? RANGE_LINE / 2 : row.height / 2);
  ctx.fillStyle = row.lane ? colours.paper : colours.panel;
  ctx.fillRect(0, row.top, LABELS, row.height);
  ctx.textAlign = "left";
  if (row.lane) {
    ctx.font = "11px system-ui, sans-serif";
    ctx.fillStyle = colours.dim;
    ctx.fillText(cut(row.lane.label, 24), 22, middle);
  } else {
    ctx.font = "600 12px system-ui, sans-serif";
    ctx.fillStyle = colours.ink;
    ctx.fillText(`${view.open.has(row.rank.rank) ? "▾" : "▸"} ${row.rank.title}`, 6, middle);
    const wide = ctx.measureText(`▾ ${row.rank.title}`).width;
    ctx.font = "11px system-ui, sans-serif";
    ctx.fillStyle = colours.dim;
    ctx.fillText(cut(row.rank.subtitle, Math.floor((LABELS - wide - 20) / 5.6)), wide + 14, middle);
  }
  ctx.fillStyle = colours.line;
  ctx.fillRect(LABELS - 1, row.top, 1, row.height);
}

function drawRow(ctx: CanvasRenderingContext2D, model: Model, view: View, colours: Palette, row: Row): void {
  if (!row.lane) {
    ctx.fillStyle = colours.panel;
    ctx.fillRect(LABELS, row.top, view.width - LABELS, row.height);
  }
  if (row.lane) {
    drawMarks(ctx, model, view, colours, row, row.lane);
  } else {
    if (row.rank.parts) drawParts(ctx, model, view, colours, row, row.rank.parts);
    drawWindows(ctx, model, view, colours, row);
  }
}

/** The rank's strip. Where several parts share a pixel, it is stacked by their shares, so that no time is lost. */
function drawParts(
  ctx: CanvasRenderingContext2D, model: Model, view: View, colours: Palette, row: Row, lane: Lane,
): void {
  const scale = (view.width - LABELS) / (view.to - view.from);
  const top = row.top + 4, tall = row.height - 8;
  const shares = new Float64Array(colours.kinds.length);
  let pixel = -1, filled = 0;
  const flush = () => {
    let y = top;
    for (let kind = 0; kind < shares.length && filled; kind++) {
      const height = (tall * shares[kind]!) / filled;
      ctx.fillStyle = colours.kinds[kind]![0]!;
      if (height) ctx.fillRect(LABELS + pixel, y, 1, height);
      y += height;
    }
    shares.fill(filled = 0);
  };
  const last = model.bound(lane, view.to);
  for (let i = model.from(lane, view.from); i < last; i++) {
    const kind = model.kind[i]!;
    const left = Math.max(0, (model.start[i]! - view.from) * scale);
    const right = Math.min(view.width - LABELS, (model.start[i]! + model.dur[i]! - view.from) * scale);
    for (let x = Math.floor(left); x < right; x++) {
      if (x !== pixel) {
        flush();
        pixel = x;
      }
      const end = Math.floor(right);
      if (x >= left && end - x > 1) { // whole pixels at once
        ctx.fillStyle = colours.kinds[kind]![0]!;
        ctx.fillRect(LABELS + x, top, end - x, tall);
        x = end - 1;
        pixel = -1;
        continue;
      }
      const share = Math.min(right, x + 1) - Math.max(left, x);
      shares[kind]! += share;
      filled += share;
    }
  }
  flush();
}

function drawMarks(
  ctx: CanvasRenderingContext2D, model: Model, view: View, colours: Palette, row: Row, lane: Lane,
): void {
  const scale = (view.width - LABELS) / (view.to - view.from);
  const ranges = lane.group !== "streams";
  const pad = ranges ? 1 : 2;
  const tall = (ranges ? RANGE_LINE : row.height) - 2 * pad;
  const last = model.bound(lane, view.to);
  const done = [-1, -1, -1]; // by line, the pixel up to which marks narrower than one are drawn
  ctx.font = "11px system-ui, sans-serif";
  for (let i = model.from(lane, view.from); i < last; i++) {
    const start = model.start[i]!;
    const left = LABELS + (start - view.from) * scale;
    const wide = model.dur[i]! * scale;
    if (left + wide < LABELS) continue;
    const line = lane.line?.[i - lane.first] ?? 0;
    const matches = view.matches === null || view.matches[model.name[i]!] === 1;
    const strong = matches && view.matches !== null;
    if (wide < 1 && !strong && i !== view.selected) {
      const pixel = Math.floor(left);
      if (pixel === done[line]) continue;
      done[line] = pixel;
    }
    const x = Math.max(left, LABELS), w = Math.max(Math.min(left + wide, view.width) - x - (wide > 3 ? 0.6 : 0), 0.9);
    const y = row.top + pad + line * RANGE_LINE;
    const shades = colours.kinds[model.kind[i]!]!;
    ctx.globalAlpha = !matches ? 0.13 : model.outside[i] ? 0.4 : 1;
    ctx.fillStyle = shades[model.name[i]! % shades.length]!;
    ctx.fillRect(x, y, w, tall);
    if (i === view.selected || i === view.hovered) {
      ctx.globalAlpha = 1;
      ctx.strokeStyle = colours.ink;
      ctx.lineWidth = i === view.selected ? 2 : 1;
      ctx.strokeRect(x, y, Math.max(w, 1.5), tall);
    }
    if (w > 26) {
      ctx.fillStyle = ranges ? colours.ink : colours.onmark;
      const room = Math.floor((w - 6) / 6.4), text = model.short(model.name[i]!);
      ctx.fillText(ranges ? cutMiddle(text, room) : cut(text, room), x + 4, y + tall / 2 + 0.5);
    }
  }
  ctx.globalAlpha = 1;
}

/** A line under the stretch of the step that the other figures measure, where that is not all of it. */
function drawWindows(ctx: CanvasRenderingContext2D, model: Model, view: View, colours: Palette, row: Row): void {
  ctx.fillStyle = colours.ink;
  for (const { start, end } of row.rank.scale.windows) {
    if (end - start > 0.98 * model.end) continue;
    const left = Math.max(xOf(view, start), LABELS), right = Math.min(xOf(view, end), view.width);
    if (right > left) ctx.fillRect(left, row.top + row.height - 3, right - left, 2);
  }
}

/** Frames around the moments that a finding names. */
function drawPlaces(ctx: CanvasRenderingContext2D, view: View, colours: Palette): void {
  view.places.forEach((place, i) => {
    const mine = view.rows.filter((row) => row.rank.rank === place.rank);
    const named = mine.filter((row) => row.lane?.group === "streams" && row.lane.level === place.stream);
    const rows = named.length ? named : mine;
    const first = rows[0], last = rows[rows.length - 1];
    if (!first || !last) return;
    const left = Math.max(xOf(view, place.start), LABELS), right = Math.min(xOf(view, place.end), view.width);
    if (right < LABELS || left > view.width) return;
    const height = last.top + last.height - first.top;
    const wide = Math.max(right - left, 2);
    ctx.fillStyle = colours.accent;
    ctx.globalAlpha = i === view.place ? 0.16 : 0.08;
    ctx.fillRect(left, first.top, wide, height);
    ctx.globalAlpha = 1;
    ctx.strokeStyle = colours.accent;
    ctx.lineWidth = i === view.place ? 2 : 1;
    ctx.strokeRect(left, first.top + 1, wide, height - 2);
  });
}

/** Ranges that are numbered differ at their ends: `backward mb 3`. */
function cutMiddle(text: string, most: number): string {
  const tail = Math.floor((most - 1) * 0.6);
  if (text.length <= most || most < 4 || !/\d/.test(text.slice(-3))) return cut(text, most);
  return most < 8 ? `…${text.slice(1 - most)}` : `${text.slice(0, most - 1 - tail)}…${text.slice(-tail)}`;
}

function cut(text: string, most: number): string {
  return text.length <= most ? text : most < 5 ? "" : `${text.slice(0, most - 1)}…`;
}

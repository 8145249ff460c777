// Draws the visible part of the timeline on a canvas. What is narrower than a pixel is drawn once per pixel.

import { scaleLinear } from "d3-scale";
import { instant } from "../format";
import { bound, FULL, isBucket, type Lane, type Picked, reaching } from "./marks";
import { drawArrows, drawPlaces, drawSpan } from "./overlay";
import type { Row } from "./rows";
import type { Scene } from "./scene";
import { AXIS, labelsOf, type Palette, PIN, type View, xOf } from "./view";

export function draw(ctx: CanvasRenderingContext2D, scene: Scene, view: View, colours: Palette): void {
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
  for (const row of rows) drawRow(ctx, scene, view, colours, row);
  for (const row of rows) drawLabel(ctx, view, colours, row);
  drawPlaces(ctx, view, colours);
  drawArrows(ctx, view, colours);
  ctx.restore();
  drawAxis(ctx, view, colours);
  drawSpan(ctx, view, colours);
}

function drawAxis(ctx: CanvasRenderingContext2D, view: View, colours: Palette): void {
  const labels = labelsOf(view.width);
  const x = scaleLinear([view.from, view.to], [labels, view.width]);
  const ticks = x.ticks(Math.max(2, Math.floor((view.width - labels) / 110)));
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
  const middle = row.top + row.height / 2;
  const labels = labelsOf(view.width), indent = labels < 120 ? 8 : 22;
  ctx.fillStyle = row.lane ? colours.paper : colours.panel;
  ctx.fillRect(0, row.top, labels, row.height);
  ctx.textAlign = "left";
  if (row.lane) {
    ctx.font = "11px system-ui, sans-serif";
    ctx.fillStyle = colours.dim;
    ctx.fillText(cut(row.lane.about.label, Math.floor((labels - indent - 4) / 6.2)), indent, middle);
  } else {
    ctx.font = "600 12px system-ui, sans-serif";
    ctx.fillStyle = colours.ink;
    ctx.fillText(`${view.open.has(row.rank.key) ? "▾" : "▸"} ${row.rank.title}`, 6, middle);
    const wide = ctx.measureText(`▾ ${row.rank.title}`).width;
    ctx.font = "11px system-ui, sans-serif";
    ctx.fillStyle = colours.dim;
    const room = labels - wide - (view.pinned ? 34 : 20);
    ctx.fillText(cut(row.rank.subtitle, Math.floor(room / 5.6)), wide + 14, middle);
    if (view.pinned) ctx.fillText(view.pinned.has(row.rank.key) ? "◆" : "◇", labels - PIN + 3, middle);
  }
  ctx.fillStyle = colours.line;
  ctx.fillRect(labels - 1, row.top, 1, row.height);
}

function drawRow(ctx: CanvasRenderingContext2D, scene: Scene, view: View, colours: Palette, row: Row): void {
  if (!row.lane) {
    ctx.fillStyle = colours.panel;
    ctx.fillRect(labelsOf(view.width), row.top, view.width, row.height);
  }
  if (row.lane?.about.group === "counters") {
    drawCounter(ctx, view, colours, row, row.lane);
    drawCaption(ctx, scene, view, colours, row, row.lane);
  } else if (row.lane) {
    drawMarks(ctx, scene, view, colours, row, row.lane);
  } else {
    if (row.rank.parts) drawParts(ctx, view, colours, row, row.rank.parts);
    drawWindows(ctx, scene, view, colours, row);
  }
}

/** The rank's strip. Where several parts share a pixel, it is stacked by their shares, so that no time is lost. */
function drawParts(ctx: CanvasRenderingContext2D, view: View, colours: Palette, row: Row, lane: Lane): void {
  const labels = labelsOf(view.width), { marks } = lane;
  const scale = (view.width - labels) / (view.to - view.from);
  const top = row.top + 4, tall = row.height - 8;
  const shares = new Float64Array(colours.kinds.length);
  let pixel = -1, filled = 0;
  const flush = () => {
    let y = top;
    for (let kind = 0; kind < shares.length && filled; kind++) {
      const height = (tall * shares[kind]!) / filled;
      ctx.fillStyle = colours.kinds[kind]![0]!;
      if (height) ctx.fillRect(labels + pixel, y, 1, height);
      y += height;
    }
    shares.fill(filled = 0);
  };
  const last = bound(lane, view.to);
  for (let i = reaching(lane, view.from); i < last; i++) {
    const kind = marks.kind[i]!;
    const left = Math.max(0, (marks.start[i]! - view.from) * scale);
    const right = Math.min(view.width - labels, (marks.start[i]! + marks.dur[i]! - view.from) * scale);
    for (let x = Math.floor(left); x < right; x++) {
      if (x !== pixel) {
        flush();
        pixel = x;
      }
      const end = Math.floor(right);
      if (x >= left && end - x > 1) { // whole pixels at once
        ctx.fillStyle = colours.kinds[kind]![0]!;
        ctx.fillRect(labels + x, top, end - x, tall);
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
  ctx: CanvasRenderingContext2D, scene: Scene, view: View, colours: Palette, row: Row, lane: Lane,
): void {
  const labels = labelsOf(view.width), { marks } = lane;
  const scale = (view.width - labels) / (view.to - view.from);
  const ranges = lane.about.group !== "streams";
  const pad = ranges ? 1 : 2;
  const tall = row.height - 2 * pad;
  const last = bound(lane, view.to);
  let done = -1; // the pixel up to which marks narrower than one are drawn
  const is = (picked: Picked | null, i: number) => picked?.lane === lane && !isBucket(lane, i) && picked.row === marks.row[i];
  ctx.font = "11px system-ui, sans-serif";
  const first = reaching(lane, view.from), n = Math.max(last - first, 0);
  for (let k = lane.merged ? 0 : n; k < 2 * n; k++) { // buckets first: marks of their own lie over them
    const i = first + (k % n), busy = marks.busy[i]!;
    if ((busy > 0) !== (k < n)) continue;
    const left = labels + (marks.start[i]! - view.from) * scale;
    const wide = marks.dur[i]! * scale;
    if (left + wide < labels) continue;
    const selected = is(view.selected, i);
    const matches = !view.searched || marks.match[i] === 1;
    if (wide < 1 && !(matches && view.searched) && !selected) {
      const pixel = Math.floor(left);
      if (pixel === done) continue;
      done = pixel;
    }
    const x = Math.max(left, labels), gap = wide > 3 && !busy ? 0.6 : 0;
    const w = Math.max(Math.min(left + wide, view.width) - x - gap, 0.9);
    const y = row.top + pad;
    const shades = colours.kinds[marks.kind[i]!]!;
    // A bucket is as strong as it is busy, but never too faint to be seen.
    ctx.globalAlpha = !matches ? 0.13 : marks.carried?.outside[i] ? 0.4 : busy ? 0.25 + (0.75 * busy) / 255 : 1;
    ctx.fillStyle = shades[marks.name[i]! % shades.length]!;
    ctx.fillRect(x, y, w, tall);
    if (selected || is(view.hovered, i)) {
      ctx.globalAlpha = 1;
      ctx.strokeStyle = colours.ink;
      ctx.lineWidth = selected ? 2 : 1;
      ctx.strokeRect(x, y, Math.max(w, 1.5), tall);
    }
    if (w > 26 && !busy) {
      ctx.fillStyle = ranges ? colours.ink : colours.onmark;
      const room = Math.floor((w - 6) / 6.4), text = scene.label(lane, i);
      ctx.fillText(ranges ? cutMiddle(text, room) : cut(text, room), x + 4, y + tall / 2 + 0.5);
    }
  }
  ctx.globalAlpha = 1;
}

/** A counter as steps; where a mark stands for several samples, from the least of them to the largest. */
function drawCounter(ctx: CanvasRenderingContext2D, view: View, colours: Palette, row: Row, lane: Lane): void {
  const { marks } = lane, labels = labelsOf(view.width), base = row.top + row.height - 2, tall = row.height - 4;
  const last = bound(lane, view.to);
  for (let i = reaching(lane, view.from); i < last; i++) {
    const left = Math.max(xOf(view, marks.start[i]!), labels);
    const right = Math.min(xOf(view, marks.start[i]! + marks.dur[i]!), view.width);
    if (right < labels) continue;
    const low = (tall * marks.row[i]!) / FULL, high = (tall * marks.n[i]!) / FULL;
    ctx.fillStyle = colours.kinds[marks.kind[i]!]![0]!;
    ctx.fillRect(left, base - high, Math.max(right - left, 0.9), high);
    ctx.fillStyle = colours.dim;
    ctx.fillRect(left, base - high, Math.max(right - left, 0.9), Math.max(1, high - low));
  }
}

/** Name and scale over a counter's own row: the column of labels is too narrow for most names. */
function drawCaption(ctx: CanvasRenderingContext2D, scene: Scene, view: View, colours: Palette, row: Row, lane: Lane): void {
  const labels = labelsOf(view.width), room = Math.floor((view.width - labels - 12) / 5.6);
  const text = cut(scene.caption(lane), room);
  ctx.font = "10px system-ui, sans-serif";
  ctx.textAlign = "left";
  ctx.globalAlpha = 0.8;
  ctx.fillStyle = colours.paper;
  ctx.fillRect(labels + 2, row.top + 1, ctx.measureText(text).width + 6, 12);
  ctx.globalAlpha = 1;
  ctx.fillStyle = colours.ink;
  ctx.fillText(text, labels + 5, row.top + 7.5);
}

/** A line under the stretch of the step that the other figures measure, where that is not all of it. */
function drawWindows(ctx: CanvasRenderingContext2D, scene: Scene, view: View, colours: Palette, row: Row): void {
  ctx.fillStyle = colours.ink;
  for (const { start, end } of row.rank.about.windows) {
    if (end - start > 0.98 * scene.end) continue;
    const left = Math.max(xOf(view, start), labelsOf(view.width)), right = Math.min(xOf(view, end), view.width);
    if (right > left) ctx.fillRect(left, row.top + row.height - 3, right - left, 2);
  }
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

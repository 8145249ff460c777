// What lies over the rows: moments that a finding names, arrows, and the stretch that is measured.

import { duration } from "../format";
import type { Row } from "./rows";
import { type ArrowEnd, AXIS, labelsOf, type Palette, type View, xOf } from "./view";

/** Frames around the moments that a finding names. */
export function drawPlaces(ctx: CanvasRenderingContext2D, view: View, colours: Palette): void {
  view.places.forEach((place, i) => {
    const mine = view.rows.filter((row) => row.rank.key === place.rank);
    const named = mine.filter((row) => row.lane?.about.group === "streams" && row.lane.about.level === place.stream);
    const rows = named.length ? named : mine;
    const first = rows[0], last = rows[rows.length - 1];
    if (!first || !last) return;
    const labels = labelsOf(view.width);
    const left = Math.max(xOf(view, place.start), labels), right = Math.min(xOf(view, place.end), view.width);
    if (right < labels || left > view.width) return;
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

/** From a launch to what it launched, and between the ranks of a communication. */
export function drawArrows(ctx: CanvasRenderingContext2D, view: View, colours: Palette): void {
  const rowOfEnd = (end: ArrowEnd) => {
    const mine = view.rows.filter((row) => row.rank.key === end.key);
    if (end.lane) return mine.find((row) => row.lane === end.lane) ?? mine[0];
    return mine.find((row) => row.lane && (end.stream !== null
      ? row.lane.about.group === "streams" && row.lane.about.level === end.stream
      : row.lane.about.group === "host" && row.lane.about.level === end.thread && row.lane.about.label.endsWith("calls"))) ?? mine[0];
  };
  const middle = (row: Row) => row.top + row.height / 2;
  const labels = labelsOf(view.width);
  ctx.save();
  ctx.beginPath();
  ctx.rect(labels, view.scroll - AXIS, view.width - labels, view.height + AXIS);
  ctx.clip();
  ctx.lineWidth = 1.5;
  for (const { kind, from, to } of view.arrows) {
    const a = rowOfEnd(from), b = rowOfEnd(to);
    if (!a || !b) continue;
    const [x1, y1, x2, y2] = [xOf(view, from.at), middle(a), xOf(view, to.at), middle(b)];
    const bend = Math.max(18, Math.min(90, Math.abs(x2 - x1) / 2));
    ctx.strokeStyle = ctx.fillStyle = kind === "launch" ? colours.ink : colours.accent;
    ctx.beginPath();
    ctx.moveTo(x1, y1);
    ctx.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2, y2);
    ctx.stroke();
    ctx.beginPath();
    ctx.moveTo(x2, y2);
    ctx.lineTo(x2 - 7, y2 - 4);
    ctx.lineTo(x2 - 7, y2 + 4);
    ctx.fill();
  }
  ctx.restore();
}

/** The stretch that is measured, with its length. */
export function drawSpan(ctx: CanvasRenderingContext2D, view: View, colours: Palette): void {
  if (!view.span) return;
  const labels = labelsOf(view.width);
  const left = Math.max(xOf(view, view.span[0]), labels), right = Math.min(xOf(view, view.span[1]), view.width);
  if (right < labels || left > view.width) return;
  ctx.fillStyle = colours.accent;
  ctx.globalAlpha = 0.1;
  ctx.fillRect(left, AXIS, right - left, view.height - AXIS);
  ctx.globalAlpha = 1;
  ctx.fillRect(left, 0, 1, view.height);
  ctx.fillRect(right, 0, 1, view.height);
  ctx.fillRect(left, AXIS - 4, right - left, 4);
  const text = duration(view.span[1] - view.span[0]);
  ctx.font = "600 11px system-ui, sans-serif";
  const wide = ctx.measureText(text).width + 10;
  const at = Math.min(Math.max((left + right - wide) / 2, labels), view.width - wide);
  ctx.fillStyle = colours.paper;
  ctx.fillRect(at, 2, wide, 17);
  ctx.fillStyle = colours.accent;
  ctx.textAlign = "left";
  ctx.fillText(text, at + 5, 11);
}

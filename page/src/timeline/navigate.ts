// Zoom and pan, by d3-zoom: wheel with Ctrl, drag, pinch, double click, buttons and keys all change one transform.

import { select } from "d3-selection";
import "d3-transition";
import { zoom, zoomIdentity, zoomTransform, type D3ZoomEvent, type ZoomBehavior } from "d3-zoom";
import { labelsOf } from "./view";

/** The shortest time that fills the width. */
const LEAST_NS = 500;

export class Navigator {
  private readonly behaviour: ZoomBehavior<HTMLCanvasElement, unknown>;
  /** Where keys zoom: at the pointer, while it is over the drawing. */
  private pointer: [number, number] | null = null;
  /** Where a movement goes, while it is under way. */
  private goal: [number, number, number] | null = null;

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly end: number,
    changed: (from: number, to: number, vertical: number) => void,
    /** Whether a press begins to measure, and not to drag. */
    private readonly measures: (event: MouseEvent) => boolean = () => false,
  ) {
    this.behaviour = zoom<HTMLCanvasElement, unknown>()
      .scaleExtent([1, Math.max(1, end / LEAST_NS)])
      .filter((event: Event) => {
        if (event.type === "wheel") return (event as WheelEvent).ctrlKey || (event as WheelEvent).metaKey;
        const pointer = event as MouseEvent;
        return !pointer.button && !pointer.shiftKey && pointer.offsetX >= this.labels() && !this.measures(pointer);
      })
      .wheelDelta((event) => -event.deltaY * (event.deltaMode === 1 ? 0.05 : event.deltaMode ? 1 : 0.004))
      .on("zoom", (event: D3ZoomEvent<HTMLCanvasElement, unknown>) => {
        const source = event.sourceEvent as MouseEvent | null;
        changed(...this.visible(), source?.type === "mousemove" ? source.movementY : 0);
      });
    select(canvas).call(this.behaviour);
    canvas.addEventListener("wheel", (event) => this.slide(event), { passive: false });
    canvas.addEventListener("mousemove", (event) => { this.pointer = [event.offsetX, event.offsetY]; });
    canvas.addEventListener("mouseleave", () => { this.pointer = null; });
    this.resize();
  }

  /** Time that the canvas shows. */
  visible(): [number, number] {
    const { k, x } = zoomTransform(this.canvas);
    const wide = this.width();
    const labels = this.labels();
    const from = ((-x / k + labels / k - labels) / wide) * this.end;
    return [this.base(from), this.base(from) + this.end / k];
  }

  /** The canvas has another width: show the same time, or go on to where the view was going. */
  resized(from: number, to: number): void {
    const goal = this.goal;
    this.resize();
    this.show(from, to, 0, false);
    if (goal) this.show(...goal);
  }

  private resize(): void {
    const { clientWidth: wide, clientHeight: tall } = this.canvas;
    const box: [[number, number], [number, number]] = [[this.labels(), 0], [wide, tall]];
    this.behaviour.extent(box).translateExtent(box);
  }

  /** Show [from, to), with some room around it where `room` is above 0. */
  show(from: number, to: number, room = 0, smooth = true): void {
    const span = Math.max(to - from, LEAST_NS) * (1 + 2 * room);
    const k = Math.min(Math.max(1, this.end / span), this.end / LEAST_NS);
    const left = Math.min(Math.max(0, (from + to) / 2 - this.end / k / 2), this.end - this.end / k);
    const x = this.labels() - k * (this.labels() + (left / this.end) * this.width());
    const to_ = zoomIdentity.translate(x, 0).scale(k);
    const target = select(this.canvas);
    if (smooth) {
      const goal: [number, number, number] = [from, to, room];
      this.goal = goal;
      target.transition().duration(350)
        .on("end interrupt cancel", () => { if (this.goal === goal) this.goal = null; })
        .call(this.behaviour.transform, to_);
    } else target.call(this.behaviour.transform, to_);
  }

  whole(): void {
    this.show(0, this.end);
  }

  /** Zoom by buttons at the middle; by keys where the pointer is. */
  scale(factor: number, atPointer = false): void {
    const at = atPointer && this.pointer && this.pointer[0] >= this.labels() ? this.pointer : undefined;
    select(this.canvas).transition().duration(160).call(this.behaviour.scaleBy, factor, at);
  }

  /** The moment at so many pixels from the left edge of the canvas. */
  timeAt(x: number): number {
    const [from, to] = this.visible();
    return from + ((x - this.labels()) * (to - from)) / this.width();
  }

  get hovered(): boolean {
    return this.pointer !== null;
  }

  /** Move by a part of what is visible. */
  pan(part: number): void {
    const [from, to] = this.visible();
    const by = (to - from) * part;
    this.show(from + by, to + by);
  }

  private base(time: number): number {
    return Math.min(Math.max(0, time), this.end);
  }

  private width(): number {
    return Math.max(this.canvas.clientWidth - this.labels(), 1);
  }

  private labels(): number {
    return labelsOf(this.canvas.clientWidth);
  }

  /** A wheel sideways, or with Shift, pans; up and down scrolls the page as ever. */
  private slide(event: WheelEvent): void {
    if (event.ctrlKey || event.metaKey) return;
    const sideways = event.shiftKey ? event.deltaX || event.deltaY : event.deltaX;
    if (Math.abs(sideways) <= (event.shiftKey ? 0 : Math.abs(event.deltaY))) return;
    event.preventDefault();
    const { k } = zoomTransform(this.canvas);
    select(this.canvas).call(this.behaviour.translateBy, -sideways / k, 0);
  }
}

// The pipeline: chunks of micro-batches on a line per rank; what is white between them is the bubble.

import { scaleLinear } from "d3-scale";
import { useEffect, useRef, useState } from "preact/hooks";
import { Command, Key, Section } from "./section";
import { count, duration, instant, percent } from "./format";
import { useNames } from "./ranks";
import type { Chunk, Pipeline } from "./messages";

const LINE = 22;

export function PipelineSection({ part, show }: { part: Pipeline; show: ((chunk: Chunk) => void) | null }) {
  const { schedule, micro_batches, ideal_pct, bubble_pct } = part.summary;
  const kinds = part.kinds.filter(([kind]) => part.chunks.some((chunk) => chunk.kind === kind));
  const facts = [
    schedule,
    micro_batches != null && count(micro_batches, "micro-batch", "micro-batches"),
    bubble_pct != null && `bubble ${percent(bubble_pct)}`,
    ideal_pct != null && `ideal ${percent(ideal_pct)}`,
  ].filter(Boolean);
  return (
    <Section id="pipeline" part={part} aside={<span class="keys">{kinds.map(([kind, name]) => <Key kind={`chunk-${kind}`}>{name}</Key>)}</span>}>
      <p>{facts.join(" · ")}{part.summary.slowest && <> · slowest {part.summary.slowest}</>}</p>
      <Gantt part={part} show={show} />
      {part.left_out > 0 && (
        <p class="dim">one rank of every stage; {count(part.left_out, "more rank")} with the command below</p>
      )}
      <Command text={part.rank_command} />
    </Section>
  );
}

function Gantt({ part, show }: { part: Pipeline; show: ((chunk: Chunk) => void) | null }) {
  const nameOf = useNames();
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(900);
  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(Math.max(120, Math.floor(entry!.contentRect.width))));
    watch.observe(box.current!);
    return () => watch.disconnect();
  }, []);
  const start = Math.min(...part.chunks.map((chunk) => chunk.start_ns));
  const end = Math.max(...part.chunks.map((chunk) => chunk.end_ns)) - start;
  const x = scaleLinear([0, Math.max(end, 1)], [0, width]);
  const ticks = x.ticks(Math.max(2, Math.min(8, Math.floor(width / 90))));
  const step = (ticks[1] ?? end) - (ticks[0] ?? 0);
  const place = new Map(part.ranks.map((row, i) => [row.rank, i]));
  const height = part.ranks.length * LINE;
  return (
    <div class="gantt">
      <div class="names">
        {part.ranks.map((row) => (
          <div>{nameOf(row.rank)}<small>bubble {percent(row.bubble_pct)}</small></div>
        ))}
      </div>
      <div class="lines" ref={box}>
        <svg width={width} height={height + 22} role="img" aria-label="chunks of micro-batches on every rank">
          {ticks.map((t) => (
            <g>
              <line x1={x(t)} x2={x(t)} y1="0" y2={height} class="grid" />
              <text x={x(t)} y={height + 15} text-anchor={t === 0 ? "start" : "middle"}>{instant(t, step)}</text>
            </g>
          ))}
          {part.chunks.map((chunk) => {
            const left = x(chunk.start_ns - start);
            const wide = Math.max(0.8, x(chunk.end_ns - start) - left - 0.6);
            const y = place.get(chunk.rank)! * LINE;
            return (
              <g class={show ? "chunk clicks" : "chunk"} onClick={show ? () => show(chunk) : undefined}>
                <rect x={left} y={y + 2} width={wide} height={LINE - 4} rx="2" class={`chunk-${chunk.kind}`}>
                  <title>{tip(chunk)}</title>
                </rect>
                {wide > 13 && chunk.mb !== null && (
                  <text x={left + wide / 2} y={y + LINE / 2 + 4} text-anchor="middle" class="mb">{chunk.mb}</text>
                )}
              </g>
            );
          })}
        </svg>
      </div>
    </div>
  );
}

function tip(chunk: Chunk): string {
  const lines = [`rank ${chunk.rank}: ${chunk.label}`, `${duration(chunk.end_ns - chunk.start_ns)}`];
  if (chunk.bubble_ns) lines.push(`bubble in it ${duration(chunk.bubble_ns)}`);
  if (chunk.before_ns) lines.push(`nothing before it for ${duration(chunk.before_ns)}`);
  return lines.join("\n");
}

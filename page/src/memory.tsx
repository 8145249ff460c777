// What the GPU's memory is made of: every device at its peak, one over time, and who holds it there.

import { Command, SCROLLS, Section } from "./section";
import { bytes, count, duration, percent, sizes } from "./format";
import { useNames } from "./ranks";
import type { Memory, MemoryDevice } from "./messages";

export function MemorySection({ part }: { part: Memory }) {
  const nameOf = useNames();
  const most = Math.max(...part.devices.map((d) => d.reserved_bytes), 1);
  const several = new Set(part.devices.map((d) => d.device)).size > 1;
  const reserved = sizes(part.devices.map((d) => d.reserved_bytes)), given = sizes(part.devices.map((d) => d.allocated_bytes));
  const legend = (
    <span class="keys">
      {part.kinds.map(([name, colour]) => <span class="key"><i class="swatch" style={{ background: `var(--${colour})` }} />{name}</span>)}
    </span>
  );
  return (
    <Section id="memory" part={part}>
      <p>{part.statement}</p>
      {legend}
      <div {...SCROLLS} aria-label="memory by rank">
        <table class="figure">
          <thead>
            <tr><th>rank</th><th class="wide">reserved bytes at the peak</th><th>reserved</th><th>given out</th><th class="text">when</th></tr>
          </thead>
          <tbody>
            {part.devices.map((device) => (
              <tr>
                <th scope="row">{nameOf(device.rank)}{several && `, device ${device.device}`}</th>
                <td class="wide"><Bar device={device} most={most} /></td>
                <td>{reserved(device.reserved_bytes)}</td>
                <td>{given(device.allocated_bytes)}</td>
                <td class="text">{device.phase}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {part.left_out > 0 && <p class="dim">{count(part.left_out, "device")} with less not shown</p>}
      <OverTime part={part} />
      <Command text={part.time_command} />
      <Frames part={part} />
      <Command text={part.frame_command} />
    </Section>
  );
}

function Bar({ device, most }: { device: MemoryDevice; most: number }) {
  return (
    <div class="bar">
      {device.parts.map(([name, colour, held]) => (
        <i
          style={{ width: `${(100 * held) / most}%`, background: `var(--${colour})` }}
          title={`${name}: ${bytes(held)}`}
        />
      ))}
    </div>
  );
}

const WIDTH = 960, HEIGHT = 260, LEFT = 76, FOOT = 22, TOP = 8;

/** The parts of one device, stacked; the line above them is what is reserved. */
function OverTime({ part }: { part: Memory }) {
  const { time, drawn } = part;
  const n = time.reserved.length;
  if (n < 2) return null;
  const times = time.start_ns ?? time.reserved.map((_, i) => i);
  const first = Math.min(...times), span = Math.max(Math.max(...times) - first, 1);
  const most = Math.max(...time.reserved, 1);
  const xs = times.map((t) => (LEFT + ((WIDTH - LEFT) * (t - first)) / span).toFixed(1));
  const y = (value: number) => (HEIGHT - FOOT - ((HEIGHT - FOOT - TOP) * value) / most).toFixed(1);
  let low: number[] = new Array(n).fill(0);
  const line = (values: number[]) => values.map((value, i) => `${xs[i]},${y(value)}`);
  const areas = time.parts.map(([name, colour, held]) => {
    const high = low.map((value, i) => value + (held[i] ?? 0));
    const points = [...line(high), ...line(low).reverse()].join(" ");
    low = high;
    return (
      <polygon points={points} style={{ fill: `var(--${colour})` }}>
        <title>{`${name}: ${bytes(Math.max(...held))} at most`}</title>
      </polygon>
    );
  });
  const label = `memory of rank ${drawn.rank}, device ${drawn.device}, over the recording`;
  return (
    <figure class="memory">
      <figcaption class="dim">{label}{time.start_ns && `, ${duration(span)}`}; the line is what is reserved</figcaption>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={label}>
        {[0, 0.5, 1].map((share) => (
          <>
            <line class="axis" x1={LEFT} x2={WIDTH} y1={y(most * share)} y2={y(most * share)} />
            <text x={LEFT - 6} y={Number(y(most * share)) + 4} text-anchor="end">{bytes(most * share)}</text>
          </>
        ))}
        {areas}
        <polyline class="reserved" points={line(time.reserved).join(" ")} />
      </svg>
    </figure>
  );
}

function Frames({ part }: { part: Memory }) {
  const held = sizes(part.frames.map((row) => row.bytes));
  return (
    <div {...SCROLLS} aria-label="blocks at the peak">
      <table class="figure">
        <thead>
          <tr><th class="text">line of the user's code</th><th class="text">part</th><th class="lesser">blocks</th><th>bytes at the peak</th><th>share</th></tr>
        </thead>
        <tbody>
          {part.frames.map((row) => (
            <tr>
              <th scope="row" class="text shapes" title={row.frame}>{row.frame}</th>
              <td class="text">{row.part}</td>
              <td class="lesser">{row.blocks}</td>
              <td>{held(row.bytes)}</td>
              <td>{percent(row.share_pct)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {part.frames_left_out > 0 && <p class="dim">{count(part.frames_left_out, "smaller holder")} not shown</p>}
    </div>
  );
}

// The timeline: tools, an overview, the drawing, and below it what is selected and measured. Reports and servers share it.

import type { ComponentChildren } from "preact";
import { count } from "../format";
import { Key, Prose } from "../section";
import { Help } from "./help";
import { Overview } from "./overview";
import { DetailsPanel, SearchPanel, SpanPanel } from "./panels";
import { NAMES } from "./scene";
import { Stage } from "./stage";
import type { TimelineState } from "./state";
import { FocusTool, RankTools, SearchTool, StepTool, TrackTool } from "./tools";

/** The panels below the drawing need room. */
export const paneled = ({ details, span, listed, found }: TimelineState): boolean => Boolean(details || span || (listed && found.wanted));

export function Timeline({ state, most, all, focus, keys = {}, keysHelp = [], label, says, between }: {
  state: TimelineState;
  /** How tall the drawing may become; "fill" leaves it to the style sheet. */
  most: number | "fill";
  /** What all of the time is called. */
  all: string;
  /** What is pointed at, and how to leave that. */
  focus: { title: string; actions: ComponentChildren } | null;
  /** Keys beside the timeline's own, and what they do. */
  keys?: Record<string, () => void>;
  keysHelp?: [string[], string][];
  label: string;
  /** Further things that a reader must know. */
  says?: ComponentChildren;
  between?: ComponentChildren;
}) {
  const { scene, found, span, spans, details, places, place } = state, { profiles } = scene, several = profiles.length > 1;
  return (
    <>
      <div class="tools">
        <SearchTool found={found} wanted={state.wanted} setWanted={state.search} current={state.current}
          next={(by) => void state.next(by)} list={() => state.setListed(!state.listed)} input={state.input} />
        {focus && <FocusTool title={focus.title} places={places} place={place} go={(index) => { state.jump(); state.goTo(index); }} actions={focus.actions} />}
        <span class="spring" />
        <StepTool steps={profiles[0]!.steps} aligns={several} step={several ? state.step : state.seenStep}
          go={(k) => (k < 0 ? state.visit(0, scene.end) : state.align(k))} />
        {scene.ranks.length > 1 && <RankTools filter={state.filter} setFilter={state.setFilter} sort={state.sort} setSort={state.setSort}
          late={Object.keys(state.late).length > 0} />}
        <TrackTool kinds={state.kinds} closed={state.closed} toggle={state.toggleKind} fold={state.foldAll} />
        <button type="button" onClick={() => state.nav().scale(2)} aria-label="Zoom in">+</button>
        <button type="button" onClick={() => state.nav().scale(0.5)} aria-label="Zoom out">−</button>
        <button type="button" onClick={() => state.visit(0, scene.end)}>{all}</button>
        <button type="button" onClick={() => state.setHelped(true)} aria-label="Keys">?</button>
      </div>
      <Overview scene={scene} source={state.source} title={all} control={state.overview} go={(from, to, begins) => {
        if (begins) state.jump();
        state.nav().show(from, to, 0, false);
      }} />
      <Stage scene={scene} rows={state.rows} height={state.height} open={state.open} most={most} searched={found.wanted !== "" && !found.error}
        selected={state.selected} places={places} place={place} arrows={state.arrows} span={span} version={state.version} control={state.control}
        pinned={scene.ranks.length > 1 ? state.pinned : null} onPin={state.pin} onPick={state.picked} onFold={state.fold}
        onSpan={state.measure} onView={state.seen} keys={{ ...state.keys, ...keys }} label={label}
        tip={({ row, lane, mark }) => <Tip title={scene.title(lane, mark)} rows={scene.facts(row.rank, lane, mark)} />} />
      <p class="dim hint">
        <Legend />
        <span class="keyboard">Drag to move, Ctrl + wheel to zoom, drag on the axis to measure; <kbd>?</kbd> lists the keys.</span>
        {" "}{count(profiles.reduce((sum, { ops }) => sum + ops, 0), "op")}.{says}
      </p>
      {between}
      {state.failed && <p class="failed" role="alert"><Prose text={state.failed} /> <button type="button" onClick={() => state.setFailed("")}>dismiss</button></p>}
      <div class="panels">
        {state.listed && found.wanted && found.answers.map((answer) => <SearchPanel data={answer} close={() => state.setListed(false)} />)}
        {details && <DetailsPanel data={details} close={state.clear} frame={state.frame} />}
        {span && spans.map((data, p) => data && <SpanPanel data={data} name={several ? `${NAMES[p]}: ` : ""} close={() => state.setSpan(null)} />)}
      </div>
      {state.helped && <Help all={all} further={keysHelp} close={() => state.setHelped(false)} />}
    </>
  );
}

function Tip({ title, rows }: { title: string; rows: [string, string][] }) {
  return (
    <>
      <b>{title}</b>
      <dl>{rows.map(([name, value]) => <><dt>{name}</dt><dd>{value}</dd></>)}</dl>
    </>
  );
}

function Legend() {
  return (
    <span class="keys">
      <Key kind="compute">compute</Key><Key kind="comm">communication</Key><Key kind="copy">copies</Key><Key kind="idle">idle</Key>
    </span>
  );
}

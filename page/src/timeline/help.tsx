// What every key does.

import { useEffect, useRef } from "preact/hooks";

const KEYS: [string[], string][] = [
  [["w", "s"], "zoom in and out, at the pointer"],
  [["a", "d", "←", "→"], "move left and right"],
  [["f"], "frame what is selected"],
  [["m"], "measure what is selected"],
  [[".", ","], "next and previous mark of the row"],
  [["/"], "search; Enter goes to the next match from the view, Shift+Enter back"],
  [["n", "p"], "next and previous match"],
  [["Esc"], "forget the selection and the span"],
  [["?"], "this list"],
];

const POINTER: [string, string][] = [
  ["drag", "move"],
  ["Ctrl + wheel, pinch", "zoom"],
  ["drag on the axis, Shift + drag", "measure a span"],
  ["click on a rank's name", "fold the rank; ◇ pins it"],
  ["strip above", "where the view lies in all of it: press or drag to look elsewhere"],
];

/** `all` is what "0" shows; `further` are keys and acts of the page around the timeline. */
export function Help({ all, further, close }: { all: string; further: [string[], string][]; close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current!.showModal(), []);
  return (
    <dialog ref={dialog} class="help" aria-labelledby="help-title" onClose={close}
      onClick={(e) => { if (e.target === e.currentTarget) close(); }}>
      <button type="button" class="close" onClick={close} aria-label="Close">×</button>
      <h2 id="help-title">Keys</h2>
      <dl>
        {[...KEYS.slice(0, 2), [["0"], `show the ${all}`] as const, ...KEYS.slice(2), ...further].map(([keys, does]) => <><dt>{keys.map((key) => <kbd>{key}</kbd>)}</dt><dd>{does}</dd></>)}
        {POINTER.map(([what, does]) => <><dt>{what}</dt><dd>{does}</dd></>)}
      </dl>
    </dialog>
  );
}

// What every key does.

import { useEffect, useRef } from "preact/hooks";

const KEYS: [string[], string][] = [
  [["w", "s"], "zoom in and out, at the pointer"],
  [["a", "d", "←", "→"], "move left and right"],
  [["0"], "show the whole capture"],
  [["f"], "frame what is selected"],
  [["m"], "measure what is selected"],
  [[".", ","], "next and previous mark of the row"],
  [["/"], "search; Enter goes to the next match from the view, Shift+Enter back"],
  [["n", "p"], "next and previous match"],
  [["q"], "write a query in SQL"],
  [["Esc"], "forget the selection and the span"],
  [["?"], "this list"],
];

const POINTER: [string, string][] = [
  ["drag", "move"],
  ["Ctrl + wheel, pinch", "zoom"],
  ["drag on the axis, Shift + drag", "measure a span"],
  ["click on a rank's name", "fold the rank; ◇ pins it"],
  ["strip above", "where the view lies in the whole capture: press or drag to look elsewhere"],
  ["Back, Forward", "undo and redo a jump: search, selection, finding, step, frame"],
];

export function Help({ close }: { close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current!.showModal(), []);
  return (
    <dialog ref={dialog} class="help" aria-labelledby="help-title" onClose={close}
      onClick={(e) => { if (e.target === e.currentTarget) close(); }}>
      <button type="button" class="close" onClick={close} aria-label="Close">×</button>
      <h2 id="help-title">Keys</h2>
      <dl>
        {KEYS.map(([keys, does]) => <><dt>{keys.map((key) => <kbd>{key}</kbd>)}</dt><dd>{does}</dd></>)}
        {POINTER.map(([what, does]) => <><dt>{what}</dt><dd>{does}</dd></>)}
      </dl>
    </dialog>
  );
}

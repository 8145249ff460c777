// Reads what the page carries: the report as JSON, and the timeline's numbers as a compressed block.

import type { Column, Report } from "./messages";

export function readReport(): Report {
  return JSON.parse(document.getElementById("report")!.textContent!) as Report;
}

export type Numbers = Uint8Array | Uint16Array | Uint32Array | Float64Array;

const TYPES = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, f8: Float64Array };

/** The block's bytes: base64, then the browser's own decompressor. */
export async function readBlock(): Promise<ArrayBuffer> {
  const text = atob(document.getElementById("block")!.textContent!);
  const packed = Uint8Array.from(text, (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

export function column(block: ArrayBuffer, { type, at, n }: Column): Numbers {
  return new TYPES[type](block, at, n);
}

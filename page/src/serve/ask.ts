// Questions to the server. Nothing else is ever asked.

import type { BlockHead } from "../messages";
import { lost, retry } from "./connection";

type Parameters = Record<string, string | number>;

const address = (name: string, parameters: Parameters) =>
  `/api/${name}?${new URLSearchParams(Object.entries(parameters).map(([key, value]) => [key, String(value)]))}`;

/** The server says in one line what is wrong. */
export class Refused extends Error {}
/** Nobody answers: the page says so once, whatever was asked. */
export class Lost extends Error {}

async function fetched(name: string, parameters: Parameters): Promise<Response> {
  const response = await fetch(address(name, parameters), { credentials: "same-origin" }).catch((): never => {
    lost();
    throw new Lost("the server does not answer");
  });
  if (response.status === 401) retry();
  if (!response.ok) throw new Refused((await response.text()) || response.statusText);
  return response;
}

export async function ask<T>(name: string, parameters: Parameters = {}): Promise<T> {
  return (await fetched(name, parameters)).json() as Promise<T>;
}

/** What some lanes show: a head in JSON, then columns of numbers, which begin at `base`. */
export async function askBlock(parameters: Parameters): Promise<{ head: BlockHead; bytes: ArrayBuffer; base: number }> {
  const bytes = await (await fetched("block", parameters)).arrayBuffer();
  const length = new DataView(bytes).getUint32(0, true);
  return { head: JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 4, length))) as BlockHead, bytes, base: 4 + length };
}

// Questions to the server. Nothing else is ever asked.

import { column, type Numbers } from "../data";
import type { Column } from "../types";
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

export type SentColumn = "start" | "dur" | "kind" | "name" | "n" | "busy" | "row" | "match";

export interface Block {
  from: number;
  to: number;
  /** Lane, number of marks, start of the first. */
  rows: [number, number, number][];
  columns: Record<SentColumn, Numbers>;
  texts: Record<string, string>;
}

interface Head extends Omit<Block, "columns"> {
  columns: Record<SentColumn, Column>;
}

/** What some lanes show: a head in JSON, then columns of numbers. */
export async function askBlock(parameters: Parameters): Promise<Block> {
  const bytes = await (await fetched("block", parameters)).arrayBuffer();
  const length = new DataView(bytes).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 4, length))) as Head;
  const base = 4 + length;
  const columns = Object.fromEntries(Object.entries(head.columns).map(([name, place]) =>
    [name, column(bytes, { ...place, at: base + place.at })])) as Block["columns"];
  return { ...head, columns };
}

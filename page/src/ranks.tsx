// What ranks are called: their number, and their place in the mesh.

import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { Rank } from "./messages";

export const Ranks = createContext<Map<number, Rank>>(new Map());

export function useNames(): (rank: number) => preact.ComponentChildren {
  const ranks = useContext(Ranks);
  return (rank) => {
    const place = ranks.get(rank)?.place;
    return <span class="rank">{rank}{place && <small>{place}</small>}</span>;
  };
}

// Gaps between the chunks that carry tokens, and their quantiles (nearest rank, like `core.timeline.metrics`).
import { carriesTokens, type Chunks } from "./record.js";

export interface Gap {
  start_ns: number;
  end_ns: number;
}

export function gaps(chunks: Chunks): Gap[] {
  const stamps = chunks.arrival_ns.filter((_, n) => carriesTokens(chunks.kind[n]));
  return stamps.slice(1).map((end_ns, n) => ({ start_ns: stamps[n] ?? 0, end_ns }));
}

export function quantile(values: number[], q: number): number | null {
  if (!values.length) return null;
  const ordered = [...values].sort((a, b) => a - b);
  return ordered[Math.min(ordered.length - 1, Math.max(0, Math.ceil(q * ordered.length) - 1))] ?? null;
}

/** Index of the stamp nearest to `at` in a sorted column; -1 for an empty one. */
export function nearest(stamps: number[], at: number): number {
  let low = 0;
  let high = stamps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((stamps[middle] ?? 0) < at) low = middle + 1;
    else high = middle;
  }
  if (low === stamps.length) return low - 1;
  return low > 0 && at - (stamps[low - 1] ?? 0) < (stamps[low] ?? 0) - at ? low - 1 : low;
}

// What this page saw of one answer, and that joined with the gateway's ledger.
import { gaps, quantile } from "./gaps.js";
import {
  COMPLETED, carriesTokens, type Bar, type ChunkKind, type Chunks, type Exchange, type Facts, type Metrics, type Outcome, type Row, type ShownPhase, type Usage,
} from "./record.js";

const MOST_CHUNKS = 4096;

/** Stamps of one answer, in nanoseconds since the request was handed to the browser. */
export class PageRecord {
  headers_ns: number | null = null;
  end_ns: number | null = null;
  painted_ns: number | null = null;
  usage: Usage | null = null;
  outcome: Outcome = COMPLETED;
  facts: Facts = {};
  readonly chunks: Chunks = { arrival_ns: [], size_bytes: [], kind: [], tokens: [], error_ns: [], beyond: null };
  private first_token_ns: number | null = null;
  private first_output_ns: number | null = null;
  private last_token_ns: number | null = null;

  constructor(readonly started_at: number, private readonly error_ns: number) {}

  add(at: number, kind: ChunkKind, size: number): void {
    if (carriesTokens(kind)) {
      if (this.last_token_ns !== null && this.chunks.beyond) {
        this.chunks.beyond.max_gap_ns = Math.max(this.chunks.beyond.max_gap_ns, at - this.last_token_ns);
      }
      this.first_token_ns ??= at;
      this.last_token_ns = at;
      if (kind !== "reasoning") this.first_output_ns ??= at;
    }
    if (this.chunks.arrival_ns.length >= MOST_CHUNKS) {
      this.chunks.beyond ??= { count: 0, last_ns: at, max_gap_ns: 0 };
      this.chunks.beyond.count += 1;
      this.chunks.beyond.last_ns = at;
      return;
    }
    this.chunks.arrival_ns.push(at);
    this.chunks.size_bytes.push(size);
    this.chunks.kind.push(kind);
    this.chunks.tokens.push(null);
    this.chunks.error_ns.push(this.error_ns);
  }

  /** The exchange as far as it has come; `now_ns` ends it while it runs. */
  exchange(now_ns: number): Exchange {
    const end = this.end_ns ?? now_ns;
    const total = Math.max(end, this.painted_ns ?? 0);
    const { rows, bars } = stack(this.pieces(end));
    if (this.painted_ns !== null && this.painted_ns > end) put(rows, bars, "render", "page", "measured", end, this.painted_ns);
    return {
      id: this.facts.request_id ?? "",
      timeline: { trace_id: "", party: "page", started_at: this.started_at, end_ns: total, chunks: this.chunks, facts: this.facts, outcome: this.outcome },
      rows,
      bars,
      metrics: this.metrics(total),
    };
  }

  private pieces(end: number): [ShownPhase, number, number][] {
    const first = this.first_token_ns;
    if (first === null) {
      const seen = this.headers_ns;
      return seen === null ? [["wait", 0, end]] : [["wait", 0, seen], [this.end_ns === null ? "wait" : "drain", seen, end]];
    }
    const shown = this.first_output_ns ?? this.last_token_ns ?? end;
    const last = this.end_ns === null ? end : (this.last_token_ns ?? end);
    return [["wait", 0, first], ["thinking", first, shown], ["decode", shown, last], ["drain", last, end]];
  }

  private metrics(total: number): Metrics {
    const widths = gaps(this.chunks).map((gap) => gap.end_ns - gap.start_ns);
    const n = this.usage?.completion_tokens ?? null;
    const decode = this.first_token_ns !== null && this.last_token_ns !== null ? this.last_token_ns - this.first_token_ns : null;
    const per = decode !== null && decode > 0 && n !== null && n > 1 ? decode / (n - 1) : null;
    return {
      e2e_ns: total, ttfb_ns: this.headers_ns, ttfe_ns: this.chunks.arrival_ns[0] ?? null, ttft_ns: this.first_token_ns, ttfot_ns: this.first_output_ns,
      icl_p50_ns: quantile(widths, 0.5), icl_p95_ns: quantile(widths, 0.95), icl_max_ns: widths.length ? widths.reduce((a, b) => Math.max(a, b), 0) : null,
      tpot_ns: per, tpot_star_ns: null, completion_tokens: n, ttft_error_ns: this.error_ns,
    };
  }
}

function put(rows: Row[], bars: Bar[], phase: ShownPhase, hop: Row["hop"], source: Row["source"], start: number, end: number): void {
  bars.push({ start_ns: start, end_ns: end, row: rows.length });
  rows.push({ phase, hop, source, duration_ns: end - start, attempt: 0, won: true });
}

function stack(pieces: [ShownPhase, number, number][]): { rows: Row[]; bars: Bar[] } {
  const rows: Row[] = [];
  const bars: Bar[] = [];
  for (const [phase, start, end] of pieces) {
    if (end <= start) continue;
    const n = rows.findIndex((row) => row.phase === phase);
    const row = rows[n];
    if (row) {
      row.duration_ns += end - start;
      bars.push({ start_ns: start, end_ns: end, row: n });
    } else put(rows, bars, phase, "page", "measured", start, end);
  }
  return { rows, bars };
}

/** A ledger without places: rows laid one after the other, in their order. */
export function laidOut(rows: Row[]): Bar[] {
  let at = 0;
  return rows.map((row, n) => ({ start_ns: at, end_ns: (at += row.duration_ns), row: n }));
}

export interface Inner {
  end_ns: number;
  rows: Row[];
  bars: Bar[];
}

/** Put the gateway's ledger inside what the page saw. The two clocks share nothing, so what the page's time has more
 * than the gateway's is network, laid half before and half after; `error_ns` is how far off that can be. Rows sum to
 * the page's total to the nanosecond. */
export function joined(page: Exchange, inner: Inner, net_end_ns: number): { exchange: Exchange; error_ns: number } {
  const slack = Math.max(0, net_end_ns - inner.end_ns);
  const shift = Math.floor(slack / 2);
  const rows: Row[] = inner.rows.map((row) => ({ ...row, duration_ns: 0 }));
  const bars: Bar[] = [];
  for (const bar of inner.bars) {
    const start = Math.max(0, bar.start_ns + shift);
    const end = Math.min(net_end_ns, bar.end_ns + shift);
    const row = rows[bar.row];
    if (!row || end <= start) continue;
    row.duration_ns += end - start;
    bars.push({ start_ns: start, end_ns: end, row: bar.row });
  }
  const covered = rows.reduce((sum, row) => sum + row.duration_ns, 0);
  const network: Row = { phase: "network", hop: "page", source: "inferred", duration_ns: net_end_ns - covered, attempt: 0, won: true };
  const kept = rows.map((row, n) => ({ row, n })).filter(({ row }) => row.duration_ns > 0);
  const place = new Map(kept.map(({ n }, index) => [n, index + 1]));
  const all: Row[] = [network, ...kept.map(({ row }) => row)];
  const allBars: Bar[] = bars.map((bar) => ({ ...bar, row: place.get(bar.row) ?? 0 }));
  if (shift > 0) allBars.push({ start_ns: 0, end_ns: shift, row: 0 });
  if (net_end_ns > shift + inner.end_ns) allBars.push({ start_ns: shift + inner.end_ns, end_ns: net_end_ns, row: 0 });
  const total = page.timeline.end_ns;
  if (total > net_end_ns) put(all, allBars, "render", "page", "measured", net_end_ns, total);
  return { exchange: { ...page, rows: all, bars: allBars }, error_ns: slack - shift };
}

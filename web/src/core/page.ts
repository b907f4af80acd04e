// What this page saw of one answer: stamps in, spans out, as `core.timeline.answer` cuts them in Python.
import { gaps, quantile } from "./gaps.js";
import {
  COMPLETED, PHASES, carriesTokens, type Bar, type Beyond, type ChunkKind, type Chunks, type Exchange, type Facts, type Metrics, type Outcome, type Phase, type Row, type Span,
  type Timeline, type Usage,
} from "./record.js";

const MOST_CHUNKS = 4096;
const OVER = new Set<ChunkKind>(["usage", "done", "error"]);

/** The browser's own stamps of the request (Resource Timing), where the gateway lets this page see them. */
export interface BrowserStamps {
  dns_ns: [number, number];
  connect_ns: [number, number];
  /** When the TLS handshake began; null without one. */
  tls_ns: number | null;
  request_ns: number;
  first_byte_ns: number;
}

/** Stamps of one answer, in nanoseconds since the request was handed to the browser. */
export class PageRecord {
  headers_ns: number | null = null;
  end_ns: number | null = null;
  painted_ns: number | null = null;
  browser: BrowserStamps | null = null;
  usage: Usage | null = null;
  outcome: Outcome = COMPLETED;
  facts: Facts = {};
  readonly chunks: Chunks = { arrival_ns: [], size_bytes: [], kind: [], tokens: [], error_ns: [], beyond: null };
  private first_token_ns: number | null = null;
  private first_output_ns: number | null = null;
  private last_token_ns: number | null = null;
  private over_ns: number | null = null;

  constructor(readonly trace_id: string, readonly started_at: number, private readonly error_ns: number) {}

  add(at: number, kind: ChunkKind, size: number): void {
    const before = this.last_token_ns;
    if (carriesTokens(kind)) {
      this.first_token_ns ??= at;
      this.last_token_ns = at;
      this.over_ns = null;
      if (kind !== "reasoning") this.first_output_ns ??= at;
    } else if (OVER.has(kind)) this.over_ns ??= at;
    if (this.chunks.arrival_ns.length >= MOST_CHUNKS) return this.sum(at, kind, size, before);
    this.chunks.arrival_ns.push(at);
    this.chunks.size_bytes.push(size);
    this.chunks.kind.push(kind);
    this.chunks.tokens.push(null);
    this.chunks.error_ns.push(this.error_ns);
  }

  private sum(at: number, kind: ChunkKind, size: number, lastToken: number | null): void {
    const sums: Beyond = (this.chunks.beyond ??= { count: 0, size_bytes: 0, kinds: {}, last_ns: at, max_gap_ns: 0 });
    sums.count += 1;
    sums.size_bytes += size;
    sums.kinds[kind] = (sums.kinds[kind] ?? 0) + 1;
    sums.last_ns = at;
    if (!carriesTokens(kind)) return;
    if (lastToken !== null) sums.max_gap_ns = Math.max(sums.max_gap_ns, at - lastToken);
    sums.last_token_ns = at;
    sums.first_token_ns ??= at;
    if (kind !== "reasoning") sums.first_output_ns ??= at;
  }

  /** The exchange as far as it has come; `now_ns` ends it while it runs. */
  exchange(now_ns: number): Exchange {
    const timeline = this.timeline(now_ns);
    const rows: Row[] = [];
    const bars: Bar[] = [];
    for (const span of timeline.spans) {
      if (span.end_ns <= span.start_ns) continue;
      let n = rows.findIndex((row) => row.phase === span.phase);
      if (n < 0) n = rows.push({ phase: span.phase, hop: "page", source: "measured", duration_ns: 0, attempt: 0, won: true }) - 1;
      rows[n]!.duration_ns += span.end_ns - span.start_ns;
      bars.push({ start_ns: span.start_ns, end_ns: span.end_ns, row: n });
    }
    return { id: this.facts.request_id ?? "", timeline, rows, bars, metrics: this.metrics(timeline.end_ns) };
  }

  /** The record that the console's API takes: stamps, counts and names; no text of question or answer. */
  timeline(now_ns: number): Timeline {
    const end = this.end_ns ?? now_ns;
    const painted = this.painted_ns ?? end;
    const spans = this.spans(end);
    if (painted > end) spans.push(span("render", end, painted));
    return {
      trace_id: this.trace_id, party: "page", started_at: this.started_at, end_ns: Math.max(end, painted), spans, chunks: this.chunks,
      facts: this.facts, outcome: this.outcome, clock: { id: `page:${this.trace_id}` },
    };
  }

  /** Spans from the call to the end: they touch, in order, and cover all of it. */
  private spans(end: number): Span[] {
    const { first_token_ns: first, browser } = this;
    const sent = Math.min(end, browser?.request_ns ?? 0);
    const cuts: [Phase, number][] = [];
    if (browser) cuts.push(...before(browser));
    cuts.push(["wait", sent]);
    const byte = browser?.first_byte_ns ?? this.headers_ns;
    const cutOff = this.end_ns === null || this.outcome.end !== "completed";
    if (byte !== null) cuts.push(["wait", Math.min(byte, first ?? byte)]);
    if (first !== null) cuts.push(["thinking", first]);
    if (this.first_output_ns !== null) cuts.push(["decode", this.first_output_ns]);
    const over = this.over_ns ?? (cutOff ? null : (this.last_token_ns ?? byte));
    if (over !== null) cuts.push(["drain", over]);
    return cut(cuts, end);
  }

  private metrics(total: number): Metrics {
    const widths = gaps(this.chunks).map((gap) => gap.end_ns - gap.start_ns);
    const n = this.usage?.completion_tokens ?? null;
    const decode = this.first_token_ns !== null && this.last_token_ns !== null ? this.last_token_ns - this.first_token_ns : null;
    const per = decode !== null && decode > 0 && n !== null && n > 1 ? decode / (n - 1) : null;
    return {
      e2e_ns: total, ttfb_ns: this.browser?.first_byte_ns ?? this.headers_ns, ttfe_ns: this.chunks.arrival_ns[0] ?? null, ttft_ns: this.first_token_ns, ttfot_ns: this.first_output_ns,
      icl_p50_ns: quantile(widths, 0.5), icl_p95_ns: quantile(widths, 0.95), icl_max_ns: widths.length ? widths.reduce((a, b) => Math.max(a, b), 0) : null,
      tpot_ns: per, tpot_star_ns: null, completion_tokens: n, ttft_error_ns: this.error_ns,
    };
  }
}

/** What the browser did before the request went out: its own work (a preflight, too) is `caller`. */
function before({ dns_ns, connect_ns, tls_ns, request_ns }: BrowserStamps): [Phase, number][] {
  const tls: [Phase, number][] = tls_ns === null ? [] : [["tls", tls_ns]];
  return [["caller", 0], ["dns", dns_ns[0]], ["caller", dns_ns[1]], ["connect", connect_ns[0]], ...tls, ["caller", connect_ns[1]], ["send", request_ns]];
}

const span = (phase: Phase, start_ns: number, end_ns: number): Span => ({ phase, hop: "page", start_ns, end_ns });

/** Phases and when each starts, each lasting until the next one; none before the one it follows, none after `end`.
 * A `send` stands without length: it is the moment from which the answer is waited for. */
function cut(cuts: [Phase, number][], end: number): Span[] {
  const spans: Span[] = [];
  let start = 0;
  cuts.forEach(([phase], n) => {
    const next = Math.max(start, Math.min(end, cuts[n + 1]?.[1] ?? end));
    if (next > start || phase === "send") spans.push(span(phase, start, next));
    start = next;
  });
  return spans;
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

/** The gateway's ledger laid over what the page saw, until the console's server has joined both records: centred
 * between the request's last byte and the end of the stream, as `core.timeline.join` does. `error_ns` is how far off
 * that can be. What the gateway does not cover stays the page's. Rows sum to the page's total to the nanosecond. */
export function overlaid(page: Exchange, inner: Inner, sent_ns: number, net_end_ns: number): { exchange: Exchange; error_ns: number } {
  const slack = net_end_ns - sent_ns - inner.end_ns;
  const shift = sent_ns + Math.floor(Math.max(0, slack) / 2);
  const pieces: [Row, number, number][] = [];
  for (const bar of inner.bars) {
    const row = inner.rows[bar.row];
    const start = Math.max(0, bar.start_ns + shift);
    const end = Math.min(net_end_ns, bar.end_ns + shift);
    if (row?.phase && end > start) pieces.push([row, start, end]);
  }
  pieces.sort((a, b) => a[1] - b[1]);
  const covered = pieces.map(([, start, end]): [number, number] => [start, end]);
  for (const bar of page.bars) for (const [start, end] of minus(bar.start_ns, bar.end_ns, covered)) pieces.push([page.rows[bar.row]!, start, end]);
  return { exchange: { ...page, ...gathered(pieces) }, error_ns: slack < 0 ? -slack : slack - Math.floor(slack / 2) };
}

function* minus(start: number, end: number, holes: [number, number][]): Generator<[number, number]> {
  for (const [a, b] of holes) {
    if (b <= start) continue;
    if (a >= end) break;
    if (a > start) yield [start, a];
    start = b;
  }
  if (start < end) yield [start, end];
}

function gathered(pieces: [Row, number, number][]): { rows: Row[]; bars: Bar[] } {
  const sums = new Map<Row, number>();
  for (const [row, start, end] of pieces) sums.set(row, (sums.get(row) ?? 0) + end - start);
  const place = (row: Row) => 2 * PHASES.indexOf(row.phase ?? "render") + (row.hop === "page" ? 0 : 1);
  const kept = [...sums.keys()].sort((a, b) => place(a) - place(b));
  const rows = kept.map((row) => ({ ...row, duration_ns: sums.get(row) ?? 0 }));
  return { rows, bars: pieces.map(([row, start_ns, end_ns]) => ({ start_ns, end_ns, row: kept.indexOf(row) })) };
}

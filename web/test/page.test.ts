import { expect, test } from "vitest";
import { PageRecord, joined, laidOut, type Inner } from "../src/core/page.js";
import type { Exchange, Row } from "../src/core/record.js";

const MS = 1_000_000;
const row = (phase: Row["phase"], ms: number): Row => ({ phase, hop: "gateway", source: "measured", duration_ns: ms * MS, attempt: 0, won: true });
const sum = (exchange: Exchange) => exchange.rows.reduce((ns, one) => ns + one.duration_ns, 0);

function finished(): PageRecord {
  const record = new PageRecord(0, 100_000);
  record.headers_ns = 20 * MS;
  record.add(21 * MS, "role", 10);
  record.add(100 * MS, "reasoning", 10);
  record.add(150 * MS, "content", 10);
  record.add(160 * MS, "content", 10);
  record.add(161 * MS, "usage", 10);
  record.usage = { completion_tokens: 3 };
  record.end_ns = 165 * MS;
  record.painted_ns = 170 * MS;
  return record;
}

test("rows of what the page saw sum to its time", () => {
  const shown = finished().exchange(0);
  expect(shown.rows.map((one) => one.phase)).toEqual(["wait", "thinking", "decode", "drain", "render"]);
  expect(sum(shown)).toBe(shown.timeline.end_ns);
  expect(shown.metrics.ttft_ns).toBe(100 * MS);
  expect(shown.metrics.ttfot_ns).toBe(150 * MS);
  expect(shown.metrics.tpot_ns).toBe(30 * MS);
});

test("while it runs, its rows sum to now", () => {
  const record = new PageRecord(0, 0);
  expect(sum(record.exchange(7 * MS))).toBe(7 * MS);
  record.headers_ns = 5 * MS;
  expect(sum(record.exchange(7 * MS))).toBe(7 * MS);
  record.add(9 * MS, "content", 1);
  expect(sum(record.exchange(11 * MS))).toBe(11 * MS);
});

test("joined with the gateway's ledger, rows and bars still sum to the page's time", () => {
  const page = finished().exchange(0);
  const rows = [row("connect", 5), row("wait", 85), row("decode", 60), row(null, 3)];
  const inner: Inner = { end_ns: 153 * MS, rows, bars: laidOut(rows) };
  const { exchange, error_ns } = joined(page, inner, 165 * MS);
  expect(exchange.rows.map((one) => one.phase)).toEqual(["network", "connect", "wait", "decode", null, "render"]);
  expect(exchange.rows[0]).toMatchObject({ duration_ns: 12 * MS, source: "inferred" });
  expect(error_ns).toBe(6 * MS);
  expect(sum(exchange)).toBe(170 * MS);
  exchange.rows.forEach((one, n) => {
    const bars = exchange.bars.filter((bar) => bar.row === n);
    expect(bars.reduce((ns, bar) => ns + bar.end_ns - bar.start_ns, 0)).toBe(one.duration_ns);
  });
});

test("a gateway whose record ends after the page's is cut, never negative", () => {
  const page = finished().exchange(0);
  const rows = [row("wait", 100), row("drain", 100)];
  const { exchange, error_ns } = joined(page, { end_ns: 200 * MS, rows, bars: laidOut(rows) }, 165 * MS);
  expect(error_ns).toBe(0);
  expect(exchange.rows.every((one) => one.duration_ns >= 0)).toBe(true);
  expect(sum(exchange)).toBe(170 * MS);
});

test("only a bounded number of events is kept", () => {
  const record = new PageRecord(0, 0);
  for (let n = 0; n < 10_000; n++) record.add(n * MS, "content", 1);
  expect(record.chunks.arrival_ns.length).toBe(4096);
  expect(record.chunks.beyond).toMatchObject({ count: 10_000 - 4096, max_gap_ns: MS });
});

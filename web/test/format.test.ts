import { expect, test } from "vitest";
import { bytes, duration, exact, rate, share, tickLabel, tickStep } from "../src/core/format.js";

test.each([
  [0, "0 ns"], [999, "999 ns"], [1_000, "1.00 µs"], [12_345_000, "12.3 ms"], [999_600_000, "1.00 s"], [1_840_000_000, "1.84 s"],
  [59_990_000_000, "1 min 0 s"], [61_000_000_000, "1 min 1 s"], [3_660_000_000_000, "1 h 1 min"], [-5_000_000, "−5.00 ms"],
])("%d ns reads %s", (ns, shown) => expect(duration(ns)).toBe(shown));

test("exact values keep every digit", () => {
  expect(exact(1_234_567)).toBe("1.234567 ms");
  expect(exact(2_000_000)).toBe("2.000 ms");
});

test("a share is never 0% for something", () => {
  expect(share(1, 1_000_000)).toBe("<0.1%");
  expect(share(0, 10)).toBe("0%");
  expect(share(10, 10)).toBe("100%");
  expect(share(1, 0)).toBe("0%");
});

test("rates and sizes", () => {
  expect(rate(null)).toBe("–");
  expect(rate(3.456)).toBe("3.46 tok/s");
  expect(rate(1234.5)).toBe("1,235 tok/s");
  expect(bytes(18231)).toBe("18.2 kB");
});

test("ticks are round, few enough and told apart", () => {
  for (let span = 30_000; span < 1e12; span *= 3.7) {
    const step = tickStep(span, 8);
    expect(span / step).toBeLessThanOrEqual(8);
    expect(span / step).toBeGreaterThan(2);
    const labels = [0, 1, 2, 3].map((n) => tickLabel(n * step, step));
    expect(new Set(labels).size).toBe(4);
  }
});

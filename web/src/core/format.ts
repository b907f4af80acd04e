// Numbers as people read them; the same rules as `unslow.show.report.words`, so every surface prints one value one way.

function three(value: number): string {
  return value < 9.995 ? value.toFixed(2) : value < 99.95 ? value.toFixed(1) : value.toFixed(0);
}

/** Three significant digits in the unit that fits: `412 µs`, `12.3 ms`, `1.84 s`. */
export function duration(ns: number): string {
  if (ns < 0) return "−" + duration(-ns);
  if (ns < 1000) return `${Math.trunc(ns)} ns`;
  for (const [unit, size] of [["µs", 1e3], ["ms", 1e6]] as const) {
    const shown = three(ns / size);
    if (Number(shown) < 1000) return `${shown} ${unit}`;
  }
  const seconds = ns / 1e9;
  if (Number(three(seconds)) < 60) return `${three(seconds)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

export const maybe = (ns: number | null | undefined): string => (ns === null || ns === undefined ? "–" : duration(ns));

/** All digits, in milliseconds: what a tooltip and a table show. */
export function exact(ns: number, digits = digitsOf([ns])): string {
  return `${(ns / 1e6).toFixed(digits)} ms`;
}

/** How many digits a column of times needs, so that its points stand in one line. */
export const digitsOf = (column: number[]): number => (column.every((ns) => ns % 1000 === 0) ? 3 : 6);

export function share(part: number, whole: number): string {
  if (whole <= 0 || part <= 0) return "0%";
  const percent = (100 * part) / whole;
  if (percent < 0.1) return "<0.1%";
  return percent >= 99.95 ? "100%" : `${percent.toFixed(1)}%`;
}

export const rate = (perSecond: number | null): string =>
  perSecond === null ? "–" : `${perSecond >= 10 ? Math.round(perSecond).toLocaleString("en") : three(perSecond)} tok/s`;

export function bytes(count: number): string {
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]] as const) {
    if (count >= size) return `${three(count / size)} ${unit}`;
  }
  return `${count} B`;
}

/** The distance of ticks that gives about `most` of them: 1, 2 or 5 times a power of ten. */
export function tickStep(span_ns: number, most: number): number {
  const rough = Math.max(1, span_ns / Math.max(1, most));
  const power = 10 ** Math.floor(Math.log10(rough));
  const steps = [0.5, 1, 2, 5, 10].map((factor) => factor * power);
  const n = steps.findIndex((step) => step >= rough);
  const fits = steps[n] ?? 10 * power;
  return n > 0 && fits > 0.75 * span_ns ? (steps[n - 1] ?? fits) : fits; // one tick besides 0, at the least
}

/** A tick's label, in the unit and with the digits that its step needs. */
export function tickLabel(ns: number, step_ns: number): string {
  if (ns === 0) return "0";
  const [unit, size] = ns >= 1e9 && step_ns >= 1e7 ? (["s", 1e9] as const) : ns >= 1e6 && step_ns >= 1e4 ? (["ms", 1e6] as const) : (["µs", 1e3] as const);
  const digits = Math.max(0, -Math.floor(Math.log10(step_ns / size) + 1e-9));
  return `${(ns / size).toFixed(digits)} ${unit}`;
}

import { expect, test } from "vitest";
import { readDelta } from "../src/core/delta.js";
import { gaps, nearest, quantile } from "../src/core/gaps.js";
import { readExchange } from "../src/core/record.js";

const event = (delta: object, rest: object = {}) => JSON.stringify({ choices: [{ delta }], ...rest });

test.each([
  [event({ role: "assistant", content: "" }), "role"], [event({ content: "Hi" }), "content"], [event({ reasoning_content: "hm" }), "reasoning"],
  [event({ reasoning: "hm" }), "reasoning"], [event({ tool_calls: [{ index: 0 }] }), "tool"], [JSON.stringify({ choices: [], usage: { completion_tokens: 3 } }), "usage"],
  ["[DONE]", "done"], [JSON.stringify({ error: { message: "no" } }), "error"],
])("%s is %s", (data, kind) => expect(readDelta(data)?.kind).toBe(kind));

test("what is no JSON object is nothing", () => {
  for (const data of ["", "nonsense", "3", "[]", "null"]) expect(readDelta(data)).toBeNull();
});

test("quantiles take a measured value, like the terminal's", () => {
  expect(quantile([], 0.5)).toBeNull();
  expect(quantile([4, 1, 3, 2], 0.5)).toBe(2);
  expect(quantile([4, 1, 3, 2], 0.95)).toBe(4);
});

test("gaps are between tokens only", () => {
  const chunks = { arrival_ns: [1, 5, 9, 20], size_bytes: [], kind: ["role", "content", "content", "done"] as const, tokens: [], error_ns: [], beyond: null };
  expect(gaps({ ...chunks, kind: [...chunks.kind] })).toEqual([{ start_ns: 5, end_ns: 9 }]);
});

test("the nearest stamp is found", () => {
  expect([0, 14, 16, 99].map((at) => nearest([10, 20, 30], at))).toEqual([0, 0, 1, 2]);
  expect(nearest([], 5)).toBe(-1);
});

test("fields that were left out at their default come back; garbage does not break the page", () => {
  const shown = readExchange({ id: "a", timeline: { end_ns: 5 }, rows: [{ phase: "wait", duration_ns: 5 }], metrics: { e2e_ns: 5 } });
  expect(shown.rows[0]).toMatchObject({ won: true, attempt: 0 });
  expect(shown.timeline.outcome.end).toBe("completed");
  expect(shown.metrics.ttft_ns).toBeNull();
  expect(readExchange(null).rows).toEqual([]);
});

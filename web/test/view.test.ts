import { expect, test } from "vitest";
import { View, viewKey } from "../src/core/view.js";

function seen(total: number): View {
  const view = new View();
  view.grow(total);
  return view;
}

test("zoom keeps the moment under the pointer, and never leaves the whole", () => {
  const view = seen(1e9);
  view.zoom(0.5, 8e8);
  expect((8e8 - view.start) / view.span).toBeCloseTo(0.8);
  for (let n = 0; n < 60; n++) view.zoom(0.5, 8e8);
  expect(view.span).toBe(20_000);
  for (let n = 0; n < 60; n++) view.zoom(2);
  expect([view.start, view.end]).toEqual([0, 1e9]);
});

test("keys zoom, move and show all; others are left alone", () => {
  const view = seen(1e9);
  expect(viewKey(view, "ArrowLeft")).toBe(false);
  expect(viewKey(view, "+")).toBe(true);
  expect(viewKey(view, "ArrowRight")).toBe(true);
  expect(view.start).toBeGreaterThan(2.5e8);
  expect(viewKey(view, "0")).toBe(true);
  expect(view.zoomed).toBe(false);
  expect(viewKey(view, "a")).toBe(false);
});

test("a growing exchange is followed until somebody zooms", () => {
  const view = seen(1e6);
  view.grow(2e6);
  expect(view.end).toBe(2e6);
  view.show(5e5, 1e6);
  view.grow(4e6);
  expect([view.start, view.end]).toEqual([5e5, 1e6]);
});

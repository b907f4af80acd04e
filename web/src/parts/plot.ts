// What both plots share: an SVG as wide as its place, a time axis, zoom by pointer, wheel and keys, and one tooltip.
import { h, icon, s } from "../core/dom.js";
import { tickLabel, tickStep } from "../core/format.js";
import { View, viewKey } from "../core/view.js";

let serial = 0;

export class Plot {
  readonly svg = s("svg", { class: "plot-svg", "aria-hidden": "true" });
  readonly box = h("div", { class: "plot" }, this.svg);
  readonly tip = h("div", { class: "tip", role: "status", popover: "manual", hidden: true });
  readonly id = `plot${++serial}`;
  width = 600;
  private band: SVGRectElement | null = null;
  private readonly resizer = new ResizeObserver(([entry]) => {
    const width = Math.max(80, Math.floor(entry?.contentRect.width ?? 0));
    if (width !== this.width) {
      this.width = width;
      this.draw();
    }
  });

  constructor(readonly view: View, private readonly draw: () => void) {
    this.wheel();
    this.pointer();
  }

  connect(): void {
    this.resizer.observe(this.box);
    this.view.addEventListener("change", this.draw);
  }

  disconnect(): void {
    this.resizer.disconnect();
    this.view.removeEventListener("change", this.draw);
  }

  x(ns: number): number {
    return ((ns - this.view.start) / this.view.span) * this.width;
  }

  at(x: number): number {
    return this.view.start + (x / this.width) * this.view.span;
  }

  /** Empty the SVG and set its height. */
  fresh(height: number): void {
    this.svg.replaceChildren();
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${height}`);
    this.svg.setAttribute("width", String(this.width));
    this.svg.setAttribute("height", String(height));
  }

  axis(top: number, bottom: number): void {
    const step = tickStep(this.view.span, this.width / 60);
    const lines = s("g", { class: "axis" });
    for (let ns = Math.ceil(this.view.start / step) * step; ns <= this.view.end; ns += step) {
      const x = Math.round(this.x(ns)) + 0.5;
      lines.append(s("path", { d: `M${x} ${top}V${bottom}` }));
      const last = x > this.width - 26;
      const anchor = last ? "end" : x < 14 ? "start" : "middle";
      lines.append(s("text", { x: last ? this.width : x < 14 ? 0 : x, y: top - 5, "text-anchor": anchor }, tickLabel(Math.round(ns), step)));
    }
    this.svg.append(lines);
  }

  key(event: KeyboardEvent): boolean {
    if (event.ctrlKey || event.metaKey || event.altKey) return false;
    if (!viewKey(this.view, event.key)) return false;
    event.preventDefault();
    return true;
  }

  /** Show the tooltip near a point of the viewport. */
  tell(lines: [string, string][], title: string, clientX: number, clientY: number, note = ""): void {
    const list = h("dl");
    for (const [name, value] of lines) if (value) list.append(h("dt", {}, name), h("dd", {}, value));
    this.tip.replaceChildren(h("strong", {}, title), list, note ? h("p", {}, note) : "");
    if (this.tip.hidden) {
      this.tip.hidden = false;
      this.tip.showPopover?.(); // the top layer: nothing clips it, and fixed means the viewport
    }
    const { width, height } = this.tip.getBoundingClientRect();
    const left = Math.min(Math.max(8, clientX + 14), innerWidth - width - 8);
    const below = clientY + 18;
    this.tip.style.left = `${left}px`;
    this.tip.style.top = `${below + height > innerHeight - 8 ? Math.max(8, clientY - height - 12) : below}px`;
  }

  hush(): void {
    if (this.tip.hidden) return;
    this.tip.hidePopover?.();
    this.tip.hidden = true;
  }

  private wheel(): void {
    this.box.addEventListener(
      "wheel",
      (event) => {
        const rect = this.box.getBoundingClientRect();
        if (event.ctrlKey || event.metaKey) {
          this.view.zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 120)) * 0.35), this.at(event.clientX - rect.left));
        } else if (this.view.zoomed && (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey)) {
          this.view.pan((event.deltaX || event.deltaY) / this.width);
        } else return;
        event.preventDefault();
      },
      { passive: false },
    );
  }

  private pointer(): void {
    const down = new Map<number, number>();
    let from: number | null = null;
    let pinch: [number, number] | null = null;
    const place = (event: PointerEvent) => event.clientX - this.box.getBoundingClientRect().left;
    this.box.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      down.set(event.pointerId, place(event));
      this.box.setPointerCapture(event.pointerId);
      const [a, b] = [...down.values()];
      if (a !== undefined && b !== undefined) {
        pinch = [this.at(Math.min(a, b)), this.at(Math.max(a, b))];
        this.unband();
        from = null;
      } else from = place(event);
    });
    this.box.addEventListener("pointermove", (event) => {
      if (!down.has(event.pointerId)) return;
      const before = down.get(event.pointerId)!;
      down.set(event.pointerId, place(event));
      if (pinch && down.size === 2) return this.pinched(pinch, [...down.values()]);
      if (from === null) return;
      if (event.pointerType === "touch") this.view.pan((before - place(event)) / this.width);
      else if (Math.abs(place(event) - from) > 4) this.drawBand(from, place(event));
    });
    const up = (event: PointerEvent) => {
      if (!down.delete(event.pointerId)) return;
      const banded = this.band !== null;
      this.unband();
      if (event.type === "pointerup" && from !== null && banded) {
        const to = Math.min(this.width, Math.max(0, place(event)));
        this.view.show(this.at(Math.min(from, to)), this.at(Math.max(from, to)));
      }
      from = null;
      if (down.size < 2) pinch = null;
    };
    this.box.addEventListener("pointerup", up);
    this.box.addEventListener("pointercancel", up);
    this.box.addEventListener("dblclick", () => this.view.reset());
  }

  private pinched([a, b]: [number, number], places: number[]): void {
    const left = Math.min(...places);
    const right = Math.max(left + 8, Math.max(...places));
    const perPixel = (b - a) / (right - left);
    this.view.show(a - left * perPixel, a + (this.width - left) * perPixel);
  }

  private drawBand(from: number, to: number): void {
    this.hush();
    this.band ??= s("rect", { class: "band", y: 0, height: "100%" });
    if (!this.band.isConnected) this.svg.append(this.band);
    this.band.setAttribute("x", String(Math.min(from, to)));
    this.band.setAttribute("width", String(Math.abs(to - from)));
  }

  private unband(): void {
    this.band?.remove();
    this.band = null;
  }
}

/** Buttons for who has neither wheel nor keys. */
export function zoomButtons(view: View): HTMLElement {
  const button = (label: "w.zoomin" | "w.zoomout" | "w.zoomall", sign: "plus" | "minus" | "all", act: () => void) =>
    h("button", { type: "button", class: "tiny", "t-aria-label": label, "t-title": label, onclick: act }, icon(sign));
  return h("div", { class: "zoom" }, button("w.zoomin", "plus", () => view.zoom(0.5)), button("w.zoomout", "minus", () => view.zoom(2)),
    button("w.zoomall", "all", () => view.reset()));
}

/** The pattern that marks what was not measured, once a plot. */
export function hatch(id: string): SVGElement {
  const stripes = s("path", { d: "M-2 2L2 -2M0 8L8 0M6 10L10 6", class: "stripes" });
  return s("defs", {}, s("pattern", { id, width: 8, height: 8, patternUnits: "userSpaceOnUse" }, stripes));
}

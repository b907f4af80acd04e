// The stretch of time on show, shared by every plot of one exchange: zoom one and the others follow.

const MIN_SPAN_NS = 20_000;

export class View extends EventTarget {
  start = 0;
  end = 1;
  total = 1;
  /** While an exchange grows, the view follows its end unless somebody zoomed. */
  private touched = false;

  get span(): number {
    return this.end - this.start;
  }
  get zoomed(): boolean {
    return this.start > 0 || this.end < this.total;
  }

  grow(total_ns: number): void {
    this.total = Math.max(1, total_ns);
    if (!this.touched || this.end > this.total) {
      this.start = this.touched ? Math.min(this.start, this.total) : 0;
      this.end = this.total;
      if (this.span <= 0) this.start = 0;
    }
    this.changed();
  }

  show(start: number, end: number): void {
    const span = Math.min(this.total, Math.max(Math.min(MIN_SPAN_NS, this.total), end - start));
    const from = Math.min(Math.max(0, start), this.total - span);
    this.start = from;
    this.end = from + span;
    this.touched = this.zoomed;
    this.changed();
  }

  /** Zoom by `factor` (< 1 is in) so that the moment `at` stays where it is. */
  zoom(factor: number, at = (this.start + this.end) / 2): void {
    const span = Math.max(MIN_SPAN_NS, this.span * factor);
    const left = (at - this.start) / this.span;
    this.show(at - left * span, at + (1 - left) * span);
  }

  pan(share: number): void {
    this.show(this.start + share * this.span, this.end + share * this.span);
  }

  reset(): void {
    this.show(0, this.total);
  }

  private changed(): void {
    this.dispatchEvent(new Event("change"));
  }
}

/** Keys of every plot: + and - zoom, arrows move, 0 shows all. True when the key was one of ours. */
export function viewKey(view: View, key: string): boolean {
  if (key === "+" || key === "=") view.zoom(0.5);
  else if (key === "-" || key === "_") view.zoom(2);
  else if (key === "ArrowLeft" && view.zoomed) view.pan(-0.2);
  else if (key === "ArrowRight" && view.zoomed) view.pan(0.2);
  else if (key === "0" || key === "Home") view.reset();
  else return false;
  return true;
}

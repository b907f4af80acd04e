// <unslow-report>: the one-file HTML report, mounted from the JSON in the page.
import { h, mark } from "./core/dom.js";
import { duration, maybe, rate } from "./core/format.js";
import { changes, language, t } from "./core/i18n.js";
import { languageButton, startLanguage } from "./core/languages.js";
import { readReport, tokensPerSecond, type Exchange, type Report } from "./core/record.js";
import { applyTheme, themeButton } from "./core/theme.js";
import "./parts/exchange.js";
import type { ExchangeView } from "./parts/exchange.js";

class ReportView extends HTMLElement {
  private report: Report | null = null;
  private picked = 0;
  private readonly redraw = () => this.fill();

  connectedCallback(): void {
    this.report ??= this.read();
    changes.addEventListener("change", this.redraw);
    this.fill();
  }

  disconnectedCallback(): void {
    changes.removeEventListener("change", this.redraw);
  }

  private read(): Report | null {
    try {
      return readReport(JSON.parse(document.getElementById("report")?.textContent ?? ""));
    } catch {
      return null;
    }
  }

  private fill(): void {
    const { report } = this;
    const main = h("main", { id: "main" });
    if (!report) main.append(h("p", { class: "notice bad", t: "r.broken" }));
    else {
      main.append(this.head(report));
      if (!report.exchanges.length) main.append(h("p", { class: "notice", t: "r.empty" }));
      if (report.exchanges.length > 1) main.append(this.picker(report.exchanges));
      main.append(h("div", { class: "one" }));
    }
    this.replaceChildren(
      h("header", { class: "bar-top" }, h("span", { class: "brand" }, mark(), "unslow"), h("span", { class: "spring" }), languageButton(), themeButton()), main);
    this.pick(this.picked);
  }

  private head(report: Report): HTMLElement {
    const { url, model, dialect } = report.target;
    const when = new Date(report.created_at * 1000).toLocaleString(language() === "zh" ? "zh-CN" : "en-GB", { dateStyle: "medium", timeStyle: "medium" });
    return h("div", { class: "report-head" }, h("h1", { t: "r.title" }),
      h("p", { class: "target" }, h("code", {}, url), model && h("span", { class: "chip" }, model), dialect && h("span", { class: "chip" }, dialect)),
      h("p", { class: "hint" }, t("r.made", { when, version: report.unslow_version })));
  }

  private picker(exchanges: Exchange[]): HTMLElement {
    const head = h("tr", {}, ...(["r.nr", "m.ttft", "m.tpot", "m.rate", "m.total", "f.outcome"] as const).map((key) => h("th", { scope: "col", t: key })));
    const rows = exchanges.map((one, n) => {
      const m = one.metrics;
      const end = one.timeline.outcome.end;
      return h("tr", { "data-n": n, onclick: () => this.pick(n) },
        h("th", { scope: "row" }, h("button", { type: "button", class: "link" }, String(n + 1))),
        ...[maybe(m.ttft_ns), maybe(m.tpot_star_ns ?? m.tpot_ns), rate(tokensPerSecond(m)), duration(m.e2e_ns)].map((value) => h("td", { class: "num" }, value)),
        h("td", {}, h("span", { class: `badge end-${end}`, t: `f.${end}` })));
    });
    return h("section", { class: "panel picker" }, h("div", { class: "part-head" }, h("h2", { t: "r.exchanges" })),
      h("div", { class: "scroll" }, h("table", {}, h("thead", {}, head), h("tbody", {}, ...rows))));
  }

  private pick(n: number): void {
    const one = this.report?.exchanges[n];
    if (!one) return;
    this.picked = n;
    for (const row of this.querySelectorAll("[data-n]")) row.toggleAttribute("data-on", row.getAttribute("data-n") === String(n));
    const view = document.createElement("unslow-exchange") as ExchangeView;
    view.data = one;
    this.querySelector(".one")?.replaceChildren(view);
  }
}

applyTheme();
startLanguage();
customElements.define("unslow-report", ReportView);
if (!document.querySelector("unslow-report")) document.body.append(document.createElement("unslow-report"));

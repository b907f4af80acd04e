// The Connect page: how to point a client at the gateway, and what is configured.
import { h } from "../core/dom.js";
import { changes, t } from "../core/i18n.js";
import { copyButton } from "../core/markdown.js";
import { flatFacts } from "../parts/exchange.js";
import { getConfig, type Config } from "./api.js";
import { snippets } from "./snippets.js";

export class ConnectPage extends HTMLElement {
  private config: Config | null = null;
  private why = "";
  private picked = 0;

  connectedCallback(): void {
    if (this.firstChild) return;
    changes.addEventListener("change", () => this.fill());
    void this.load();
  }

  async load(): Promise<void> {
    try {
      this.config = await getConfig();
      this.why = "";
    } catch (error) {
      this.why = (error as Error).message;
    }
    this.fill();
  }

  private fill(): void {
    const { config } = this;
    const head = h("div", { class: "page-head" }, h("h1", { t: "x.title" }));
    if (!config) {
      const retry = h("button", { type: "button", class: "link", t: "e.retry", onclick: () => void this.load() });
      this.replaceChildren(head, this.why ? h("p", { class: "notice bad", role: "alert" }, this.why, " ", retry) : h("p", { class: "notice", t: "q.loading" }));
      return;
    }
    const base = `${config.gateway_url}/v1`;
    const address = h("div", { class: "address" }, h("code", {}, base), copy(() => base));
    this.replaceChildren(head,
      h("p", { class: "lead", t: "x.lead" }),
      h("section", { class: "panel" }, h("h2", { t: "x.address" }), address, this.uses(base, config.models[0] ?? "MODEL"), h("p", { class: "hint", t: "x.keynote" })),
      h("section", { class: "panel" }, h("h2", { t: "x.config" }), configured(config)));
  }

  private uses(base: string, model: string): HTMLElement {
    const all = snippets(base, model, t("x.env"));
    const code = h("code");
    const panel = h("figure", { class: "code", role: "tabpanel", id: "snippet" });
    const tabs = all.map((one, n) => h("button", { type: "button", role: "tab", "aria-controls": "snippet", onclick: () => pick(n),
      onkeydown: (event: KeyboardEvent) => {
        const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
        if (by) pick((n + by + all.length) % all.length, true);
      } }, one.name));
    const pick = (n: number, focus = false) => {
      this.picked = n;
      code.textContent = all[n]?.text ?? "";
      tabs.forEach((tab, index) => {
        tab.setAttribute("aria-selected", String(index === n));
        tab.tabIndex = index === n ? 0 : -1;
        if (focus && index === n) tab.focus();
      });
    };
    panel.append(h("div", { class: "code-head" }, h("span"), copy(() => code.textContent ?? "")), h("pre", { tabindex: 0 }, code));
    pick(this.picked);
    return h("div", { class: "uses" }, h("div", { class: "tabs", role: "tablist", "t-aria-label": "x.how" }, ...tabs), panel);
  }
}

const copy = (text: () => string): HTMLElement => copyButton(text, { idle: t("x.copy"), done: t("x.copied") });

function configured(config: Config): HTMLElement {
  const chips = (names: string[], none: string) => (names.length ? h("dd", { class: "chips" }, ...names.map((name) => h("span", { class: "chip" }, name))) : h("dd", {}, none));
  const pairs = (value: Record<string, unknown> | null) => {
    const flat = value ? flatFacts(value) : [];
    if (!flat.length) return h("dd", {}, t("x.off"));
    return h("dd", {}, h("dl", { class: "facts" }, ...flat.map(([name, shown]) => h("div", {}, h("dt", {}, name), h("dd", {}, shown)))));
  };
  const upstreams = h("dd", {}, ...config.upstreams.map((one) => h("div", { class: "upstream" }, h("b", {}, one.name), h("code", {}, one.url),
    h("span", { class: "chip", t: one.has_key ? "x.haskey" : "x.nokey" }))));
  if (!config.upstreams.length) upstreams.append(t("x.none"));
  const list = h("dl", { class: "configured" });
  const add = (key: "x.upstreams" | "x.models" | "x.engine" | "x.history" | "x.settings" | "x.version", value: HTMLElement) =>
    list.append(h("dt", { t: key }), value);
  add("x.upstreams", upstreams);
  add("x.models", chips(config.models, t("x.nomodels")));
  add("x.engine", pairs(config.engine));
  add("x.history", pairs(config.history));
  if (Object.keys(config.settings).length) add("x.settings", pairs(config.settings));
  add("x.version", h("dd", {}, config.version));
  return list;
}

customElements.define("unslow-connect", ConnectPage);

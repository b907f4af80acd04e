// The Connect page: how to point a client at the gateway, and what is configured.
import { h } from "../core/dom.js";
import { changes, t } from "../core/i18n.js";
import { copyButton } from "../core/markdown.js";
import { named, settings } from "../parts/facts.js";
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
    const address = h("div", { class: "address" }, h("code", {}, base), copyButton(() => base));
    const set = Object.keys(config.settings).length;
    this.replaceChildren(head, h("p", { class: "lead", t: "x.lead" }), h("div", { class: "connect-cols" },
      h("section", { class: "panel" }, h("h2", { t: "x.address" }), address, h("h2", { t: "x.how" }), this.uses(base, config.models[0] ?? "MODEL"), h("p", { class: "hint", t: "x.keynote" })),
      h("section", { class: "panel" }, h("h2", { t: "x.config" }), configured(config),
        set > 0 && h("details", { class: "set" }, h("summary", { t: "x.settings" }), settings(config.settings)))));
  }

  private uses(base: string, model: string): HTMLElement {
    const all = snippets(base, model, t("x.env"));
    const code = h("code");
    const panel = h("figure", { class: "code", id: "snippet" });
    const tabs = all.map((one, n) => h("button", { type: "button", role: "tab", "aria-controls": "snippet-text", onclick: () => pick(n),
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
    panel.append(h("div", { class: "code-head" }, h("div", { class: "tabs", role: "tablist", "t-aria-label": "x.how" }, ...tabs), copyButton(() => code.textContent ?? "")),
      h("pre", { tabindex: 0, role: "tabpanel", id: "snippet-text" }, code));
    pick(this.picked);
    return panel;
  }
}

function configured(config: Config): HTMLElement {
  const list = h("dl", { class: "configured" });
  const add = (key: "x.upstreams" | "x.models" | "x.engine" | "x.history" | "x.version", ...value: (Node | string)[]) =>
    list.append(h("dt", { t: key }), h("dd", {}, ...value));
  const chips = config.models.map((name) => h("span", { class: "chip" }, name));
  add("x.upstreams", ...(config.upstreams.length ? config.upstreams.map(upstream) : [t("x.none")]));
  add("x.models", chips.length ? h("div", { class: "chips" }, ...chips) : t("x.nomodels"));
  add("x.engine", config.engine ? named(config.engine) : t("x.off"));
  add("x.history", config.history ? named(config.history) : t("x.off"));
  add("x.version", config.version);
  return list;
}

/** An upstream; one that is no address, such as the embedded engine, has no key to speak of. */
function upstream(one: Config["upstreams"][number]): HTMLElement {
  const far = /^https?:/.test(one.url);
  return h("div", { class: "upstream" }, h("b", {}, one.name), far ? h("code", {}, one.url) : h("span", { class: "hint", t: "x.embedded" }),
    (far || one.has_key) && h("span", { class: "chip", t: one.has_key ? "x.haskey" : "x.nokey" }));
}

customElements.define("unslow-connect", ConnectPage);

// The console: three pages, chosen by the hash.
import { h, mark } from "../core/dom.js";
import type { Key } from "../core/i18n.js";
import { changes, t } from "../core/i18n.js";
import { languageButton, startLanguage } from "../core/languages.js";
import { applyTheme, themeButton } from "../core/theme.js";
import "./chat.js";
import type { ChatPage } from "./chat.js";
import "./connect.js";
import type { ConnectPage } from "./connect.js";
import { ApiError, getConfig } from "./api.js";
import "./locked.js";
import "./requests.js";
import type { RequestsPage } from "./requests.js";

const PAGES = ["chat", "requests", "connect"] as const;
type Page = (typeof PAGES)[number];

applyTheme();
startLanguage();
const pages: { chat: ChatPage; requests: RequestsPage; connect: ConnectPage } = {
  chat: document.createElement("unslow-chat") as ChatPage,
  requests: document.createElement("unslow-requests") as RequestsPage,
  connect: document.createElement("unslow-connect") as ConnectPage,
};
const links = new Map<Page, HTMLAnchorElement>(PAGES.map((page) => [page, h("a", { href: `#/${page}`, t: `nav.${page}` as Key })]));

function route(): void {
  const [, name, id] = /^#\/(\w+)(?:\/(.+))?$/.exec(location.hash) ?? [];
  const page: Page = PAGES.find((one) => one === name) ?? "chat";
  for (const one of PAGES) {
    pages[one].hidden = one !== page;
    if (one === page) links.get(one)?.setAttribute("aria-current", "page");
    else links.get(one)?.removeAttribute("aria-current");
  }
  pages.requests.active = page === "requests";
  pages.requests.show(page === "requests" && id ? decodeURIComponent(id) : null);
  if (page === "connect") void pages.connect.load();
  title(page);
  if (page !== "chat") scrollTo({ top: 0 });
}

function title(page: Page): void {
  document.title = `${t(`nav.${page}` as Key)} · unslow`;
}

const main = h("main", { id: "main", tabindex: -1 });
const nav = h("nav", { "t-aria-label": "nav.main" }, ...links.values());
const skip = h("a", { class: "skip", href: "#main", t: "nav.skip", onclick: (event: Event) => {
  event.preventDefault();
  main.focus();
} });
document.body.replaceChildren(skip,
  h("header", { class: "bar-top" }, h("a", { class: "brand", href: "#/chat", "aria-label": "unslow" }, mark(), h("span", {}, "unslow")), nav, h("span", { class: "spring" }), languageButton(), themeButton()), main);

function start(): void {
  main.replaceChildren(pages.chat, pages.requests, pages.connect);
  addEventListener("hashchange", route);
  changes.addEventListener("change", () => title(PAGES.find((page) => !pages[page].hidden) ?? "chat"));
  route();
}

/** Without a key of this run there is nothing to show; whatever else is wrong, each page says itself. */
getConfig().then(start, (error: unknown) => {
  if (!(error instanceof ApiError) || error.status !== 401) return start();
  nav.hidden = true;
  document.title = `${t("l.title")} · unslow`;
  main.replaceChildren(document.createElement("unslow-locked"));
});

// Nodes without innerHTML: text is always text, links have an allow-listed scheme.
import { t, type Key } from "./i18n.js";

type Child = Node | string | null | false | undefined;
type Props = Record<string, unknown>;
const SVG = "http://www.w3.org/2000/svg";

function fill(node: Element, props: Props, children: Child[]): void {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on") && typeof value === "function") {
      node.addEventListener(name.slice(2), value as EventListener);
    } else if (name === "t") {
      say(node, value as Key);
    } else if (name.startsWith("t-")) {
      node.setAttribute(`data-${name}`, String(value));
      node.setAttribute(name.slice(2), t(value as Key));
    } else {
      node.setAttribute(name, value === true ? "" : String(value));
    }
  }
  node.append(...children.filter((c): c is Node | string => c !== null && c !== undefined && c !== false));
}

export function h<K extends keyof HTMLElementTagNameMap>(tag: K, props: Props = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const node = document.createElement(tag);
  fill(node, props, children);
  return node;
}

export function s<K extends keyof SVGElementTagNameMap>(tag: K, props: Props = {}, ...children: Child[]): SVGElementTagNameMap[K] {
  const node = document.createElementNS(SVG, tag);
  fill(node, props, children);
  return node;
}

/** Give a node a translated text that follows the language. */
export function say(node: Element, key: Key): void {
  node.setAttribute("data-t", key);
  node.textContent = t(key);
}

/** Put every `say`-ed text and translated attribute under `root` into the current language. */
export function retranslate(root: ParentNode): void {
  for (const node of root.querySelectorAll("[data-t]")) node.textContent = t(node.getAttribute("data-t") as Key);
  for (const name of ["placeholder", "aria-label", "title"]) {
    for (const node of root.querySelectorAll(`[data-t-${name}]`)) node.setAttribute(name, t(node.getAttribute(`data-t-${name}`) as Key));
  }
}

const SAFE_SCHEMES = new Set(["http:", "https:", "mailto:"]);

/** The address if its scheme is allowed, else null (`javascript:`, `data:`, relative ones and garbage). */
export function safeUrl(address: string): string | null {
  try {
    const url = new URL(address);
    return SAFE_SCHEMES.has(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

const DRAWINGS = {
  copy: ["M8 8h10v12H8z", "M15 8V4H4v12h4"],
  check: ["M4 12.5l5 5L20 6.5"],
  send: ["M12 20V5", "M5.5 11.5L12 5l6.5 6.5"],
  stop: ["M7 7h10v10H7z"],
  next: ["M5 12h14", "M13 6l6 6-6 6"],
  plus: ["M12 5v14", "M5 12h14"],
  minus: ["M5 12h14"],
  all: ["M9 4H4v5", "M15 4h5v5", "M9 20H4v-5", "M15 20h5v-5"],
  back: ["M19 12H5", "M11 6l-6 6 6 6"],
  trash: ["M4 7h16", "M9 7V4h6v3", "M6.5 7l1 13h9l1-13"],
  theme: ["M12 4a8 8 0 1 0 0 16z", "M12 4a8 8 0 0 1 0 16"],
  key: ["M3 12a4 4 0 1 0 8 0a4 4 0 1 0-8 0", "M11 12h10v4", "M17 12v3"],
} as const;

export function icon(name: keyof typeof DRAWINGS): SVGElement {
  const paths = DRAWINGS[name].map((d) => s("path", { d }));
  return s("svg", { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true" }, ...paths);
}

/** The mark: a waterfall of three bars, the last one cut short. */
export function mark(): SVGElement {
  return s(
    "svg",
    { class: "mark", viewBox: "0 0 32 32", "aria-hidden": "true" },
    s("rect", { x: 4, y: 6, width: 11, height: 5, rx: 1.5, class: "mark-a" }),
    s("rect", { x: 11, y: 13.5, width: 17, height: 5, rx: 1.5, class: "mark-b" }),
    s("rect", { x: 21, y: 21, width: 4, height: 5, rx: 1.5, class: "mark-c" }),
    s("rect", { x: 26.5, y: 21, width: 1.5, height: 5, rx: 0.75, class: "mark-c" }),
  );
}

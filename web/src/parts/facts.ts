// What an exchange negotiated and said, in words and in groups; and settings as flat pairs.
import { h } from "../core/dom.js";
import { bytes, duration } from "../core/format.js";
import { t, type Key } from "../core/i18n.js";
import type { Exchange } from "../core/record.js";
import { EN } from "../core/texts.en.js";
import { ending } from "../core/words.js";

/** Facts by path, in the order shown. What stands in no group goes to the last one. */
const GROUPS: readonly (readonly [Key, readonly string[]])[] = [
  ["f.answer", ["status", "model", "model_answered", "finish_reason", "usage.prompt_tokens", "usage.cached_tokens", "usage.completion_tokens", "usage.reasoning_tokens",
    "usage.source", "stream", "response_bytes", "content_type", "content_encoding"]],
  ["f.connection", ["url", "method", "request_bytes", "upstream", "dialect", "http_version", "alpn", "tls_version", "tls_cipher", "tls_resumed", "tls_issuer", "reused", "proxy",
    "remote_address", "local_address", "addresses", "resolver", "retries", "redirects", "tcp."]],
  ["f.server", ["server."]],
  ["f.headers", ["headers."]],
  ["f.record", ["request_id", "stamps", "notes"]],
];

interface Fact {
  path: string;
  shown: string;
}

/** Leaves of a record as text; what is unknown is left out. */
function leaves(value: Record<string, unknown>, prefix = ""): Fact[] {
  return Object.entries(value).flatMap(([name, found]): Fact[] => {
    if (found === null || found === undefined) return [];
    const path = prefix + name;
    if (Array.isArray(found)) return found.length ? [{ path, shown: found.map(String).join(name === "notes" ? "\n" : ", ") }] : [];
    if (typeof found === "object") return leaves(found as Record<string, unknown>, `${path}.`);
    return [{ path, shown: shownValue(name, found) }];
  });
}

function shownValue(name: string, value: unknown): string {
  if (typeof value === "boolean") return t(value ? "f.yes" : "f.no");
  if (name === "where" && (value === "file" || value === "memory")) return t(`f.${value}`);
  if (typeof value !== "number") return String(value);
  if (name.endsWith("_ns")) return duration(value);
  if (name.endsWith("_bytes")) return bytes(value);
  if (name.endsWith("_s")) return `${value} s`;
  return name === "status" || name.endsWith("port") ? String(value) : value.toLocaleString("en");
}

/** The fact's name in the page's language; a header or a fact of a later version goes by its own. */
function label(path: string): string {
  const key = `fact.${path}`;
  if (key in EN) return t(key as Key);
  return path.startsWith("headers.") ? path.slice(8) : path.replace(/_(ns|bytes)$/, "").replaceAll("_", " ").replaceAll(".", " · ");
}

const pair = (name: string, value: string, cls = ""): HTMLElement => h("div", {}, h("dt", {}, name), h("dd", { class: cls }, ...breakable(value)));

/** An address breaks after its slashes before it breaks anywhere. */
function breakable(value: string): (Node | string)[] {
  return value.split(/(?<=\/)(?!\/)/).flatMap((part, n) => (n ? [h("wbr"), part] : [part]));
}

export function facts(shown: Exchange): HTMLElement {
  const known = leaves(shown.timeline.facts);
  const same = shown.timeline.facts["model_answered"] === shown.timeline.facts.model;
  const left = new Set(known.filter(({ path }) => !(same && path === "model_answered")));
  const { end } = shown.timeline.outcome;
  const groups = GROUPS.map(([key, paths]) => {
    const found = paths.flatMap((wanted) => [...left].filter(({ path }) => (wanted.endsWith(".") ? path.startsWith(wanted) : path === wanted)));
    if (key === "f.record") found.push(...[...left].filter((fact) => !GROUPS.some(([, all]) => all.some((one) => fact.path === one || (one.endsWith(".") && fact.path.startsWith(one))))));
    const rows = found.map(({ path, shown: value }) => pair(label(path), value));
    if (key === "f.answer") rows.unshift(pair(t("f.outcome"), end === "completed" ? t("f.completed") : ending(shown), `end-${end}`));
    return rows.length ? h("section", { class: "fact-group" }, h("h4", { t: key }), h("dl", { class: "facts" }, ...rows)) : null;
  });
  return h("div", {}, h("div", { class: "part-head" }, h("h3", { t: "f.title" })), h("div", { class: "fact-groups" }, ...groups));
}

/** Named values with translated labels, such as the history's or the engine's state. */
export function named(value: Record<string, unknown>): HTMLElement {
  return h("dl", { class: "facts" }, ...leaves(value).map(({ path, shown }) => pair(label(path), path === "threads" && shown === "0" ? t("f.auto") : shown)));
}

/** Settings by their own keys, as `unslow.toml` spells them. */
export function settings(value: Record<string, unknown>): HTMLElement {
  return h("dl", { class: "facts keys" }, ...leaves(value).map(({ path, shown }) => h("div", {}, h("dt", {}, h("code", {}, path)), h("dd", {}, shown))));
}

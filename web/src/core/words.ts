// Sentences and labels about an exchange; the same words as the terminal's (`unslow.show.report.words`).
import { duration, rate } from "./format.js";
import { t, type Key } from "./i18n.js";
import { tokensPerSecond, type Exchange, type Row, type Phase } from "./record.js";

export const phaseWord = (phase: Phase | null): string => t(`phase.${phase ?? "unexplained"}` as Key);
/** What a row's time was; a page's own waiting is the way to the gateway, once the gateway has told its part. */
export function phaseAbout(row: Row): string {
  if (row.hop === "page" && (row.phase === "caller" || row.phase === "wait")) return t(`about.page.${row.phase}`);
  return t(`about.${row.phase ?? "unexplained"}` as Key);
}
export const hopWord = (row: Row): string => (row.hop ? t(`hop.${row.hop}` as Key) : "");
export const sourceWord = (row: Row): string => (row.source ? t(`source.${row.source}` as Key) : "");
/** The class that colours a phase. */
export const phaseClass = (phase: Phase | null): string => `ph-${phase ?? "unexplained"}`;

export function rowWord(row: Row): string {
  const word = phaseWord(row.phase);
  return row.won ? word : `${word} (${t("lost", { n: row.attempt + 1 })})`;
}

/** One sentence: how it ended, how long it took, and what took most of it. */
export function headline(shown: Exchange): string {
  const total = t("h.total", { time: duration(shown.timeline.end_ns) });
  const parts = biggest(shown);
  const said = parts.length ? total + t("h.colon") + parts.join(t("h.comma")) : total;
  const ended = ending(shown);
  return ended ? t("h.ended", { ended, said }) : said;
}

export function ending(shown: Exchange): string {
  const { end, phase, kind, detail } = shown.timeline.outcome;
  if (end === "completed") return "";
  const where = phase ? ` ${t("f.in", { phase: phaseWord(phase) })}` : "";
  const why = [kind, detail].filter(Boolean).join(": ");
  const text = t(end === "failed" ? "f.failed" : "f.aborted") + where + (why ? t("h.colon") + why : "");
  return /[.!?…。]$/.test(text) ? text : text + t("h.stop");
}

function biggest(shown: Exchange): string[] {
  const total = shown.timeline.end_ns;
  const sum = (...phases: (Phase | null)[]): number =>
    shown.rows.reduce((ns, row) => (row.won && phases.includes(row.phase) ? ns + row.duration_ns : ns), 0);
  const n = shown.metrics.completion_tokens;
  const per = tokensPerSecond(shown.metrics);
  const decoded = n === null ? "" : ` ${t("h.tokens", { n: n.toLocaleString("en") })}${per ? ` (${rate(per)})` : ""}`;
  const parts: [number, string][] = [
    [sum("dns", "connect", "proxy", "tls"), t("h.connecting")],
    [sum("wait", "queue", "prefill"), t(shown.metrics.ttft_ns === null ? "h.waiting" : "h.first")],
    [sum("thinking"), t("h.thinking")],
    [sum("decode"), t("h.decoding") + decoded],
    [sum("drain"), t("h.drain")],
    [sum("caller"), t("h.caller")],
    [sum("send"), t("h.send")],
    [sum("render"), t("h.render")],
    [shown.rows.reduce((ns, row) => (row.won ? ns : ns + row.duration_ns), 0), t("h.lost")],
    [sum(null), t("h.unexplained")],
  ];
  return parts
    .filter(([ns]) => ns > 0 && ns * 20 >= total)
    .sort((a, b) => b[0] - a[0])
    .slice(0, 3)
    .map(([ns, word]) => `${duration(ns)} ${word}`);
}

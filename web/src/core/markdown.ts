// A small, safe subset of Markdown, built from nodes while the text streams in.
//
// Theory of operation. Text goes to a queue; `pump` takes whole lines from it until its deadline. A finished block is
// never touched again, so the cost of a token does not grow with the answer. The line that is still coming is shown as
// soon as its kind is certain (`- ` may become a list, "```" a code block). A paragraph past MOST_INLINE characters
// goes on as plain text. Untrusted: nodes only, links only to allow-listed schemes, no images, nothing is fetched.
import { h, icon, safeUrl, say } from "./dom.js";

const MOST_INLINE = 4096;
const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^\s`]*)/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*)$/;
const RULE = /^ {0,3}(?:(?:-\s*){3,}|(?:\*\s*){3,}|(?:_\s*){3,})$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
/** A row of a table, and the line of dashes under its head (GFM, 4.10). */
const PIPE = /^ {0,3}\|/;
const RULED = /^ {0,3}\|(?:\s*:?-+:?\s*\|)+\s*$/;
const QUOTE = /^ {0,3}>\s?(.*)$/;
/** The beginning of a line whose kind is not certain yet. */
const UNSURE = /^\s*(?:[-*+_=\s]*|\d{1,9}[.)]?|#{1,6}|`{1,2}|~{1,2}|>)\s*$/;
const INLINE = new RegExp(
  [
    "(?<tick>`+)(?<code>[^`]|[^`][\\s\\S]{0,800}?[^`])\\k<tick>(?!`)",
    "\\*\\*(?=\\S)(?<bold>[\\s\\S]{1,800}?)(?<=\\S)\\*\\*(?!\\*)",
    "(?<![\\w*])\\*(?=[^\\s*])(?<em>[^*]{1,800}?)(?<=\\S)\\*(?![\\w*])",
    "(?<![\\w_])_(?=[^\\s_])(?<em2>[^_]{1,800}?)(?<=\\S)_(?![\\w_])",
    "\\[(?<label>[^\\]\\n]{1,400})\\]\\(\\s*<?(?<url>[^\\s()<>]{1,2000}(?:\\([^\\s()<>]{0,200}\\)[^\\s()<>]{0,200})?)>?(?:\\s+\"[^\"\\n]{0,200}\")?\\s*\\)",
    "(?<bare>https?:\\/\\/[^\\s<>()\\[\\]`\"']{1,2000}[^\\s<>()\\[\\]`\"'.,;:!?])",
  ].join("|"),
  "g",
);

export function inline(text: string, depth = 0): (Node | string)[] {
  const out: (Node | string)[] = [];
  let from = 0;
  for (const match of text.matchAll(INLINE)) {
    if (match.index > from) out.push(text.slice(from, match.index));
    out.push(element(match.groups ?? {}, match[0], depth));
    from = match.index + match[0].length;
  }
  if (from < text.length) out.push(text.slice(from));
  return out;
}

function element(found: Record<string, string | undefined>, whole: string, depth: number): Node | string {
  const inner = (text: string) => (depth < 3 ? inline(text, depth + 1) : [text]);
  if (found["code"] !== undefined) return h("code", {}, found["code"]);
  if (found["bold"] !== undefined) return h("strong", {}, ...inner(found["bold"]));
  const em = found["em"] ?? found["em2"];
  if (em !== undefined) return h("em", {}, ...inner(em));
  const href = safeUrl(found["url"] ?? found["bare"] ?? "");
  if (href === null) return whole;
  const label = found["label"] === undefined ? [whole] : inner(found["label"]);
  return h("a", { href, target: "_blank", rel: "noopener noreferrer nofollow", referrerpolicy: "no-referrer" }, ...label);
}

interface Open {
  place: HTMLElement;
  node: HTMLElement;
  source: string;
  line: string;
  dirty: boolean;
  /** Characters already shown as plain text, once the block is too long to be parsed again and again. */
  plain: number;
}

export class MarkdownSink {
  private queue = "";
  private ended = false;
  private open: Open | null = null;
  private code: { text: Text; fence: string } | null = null;
  private table: { body: HTMLElement; columns: number } | null = null;
  private lists: { indent: number; node: HTMLElement }[] = [];
  /** The line in progress already opened its block. */
  private begun = false;
  /** Characters of the code line in progress that are on the page. */
  private shown = 0;

  constructor(private readonly root: HTMLElement, private readonly copy?: (text: () => string) => HTMLElement) {}

  push(text: string): void {
    this.queue += text;
  }

  end(): void {
    this.ended = true;
  }

  /** Put text on the page until `deadline` (a reading of performance.now); true when all that came is shown. */
  pump(deadline: number): boolean {
    let from = 0;
    let count = 0;
    for (let at = this.queue.indexOf("\n"); at >= 0; at = this.queue.indexOf("\n", from)) {
      this.take(this.queue.slice(from, at).replace(/\r$/, ""), true);
      from = at + 1;
      if ((++count & 15) === 0 && performance.now() > deadline) break;
    }
    if (from) {
      this.queue = this.queue.slice(from);
      this.shown = 0;
    }
    const late = this.queue.includes("\n");
    if (!late && this.queue) {
      this.take(this.queue, this.ended);
      if (this.ended) this.queue = "";
    }
    this.paint();
    return !late;
  }

  private take(line: string, whole: boolean): void {
    if (this.code) this.takeCode(line, whole);
    else if (this.begun && this.open) this.extend(line, whole);
    else this.takeText(line, whole);
    if (whole) {
      this.begun = false;
      this.shown = 0;
    }
  }

  private takeCode(line: string, whole: boolean): void {
    const { text, fence } = this.code!;
    const mark = line.trimStart();
    if (mark.startsWith(fence[0] ?? "`") && this.shown === 0) {
      if (whole && mark.startsWith(fence) && mark.replaceAll(fence[0] ?? "`", "").trim() === "") {
        this.code = null;
        return;
      }
      if (!whole) return;
    }
    text.appendData(line.slice(this.shown) + (whole ? "\n" : ""));
    this.shown = line.length;
  }

  private takeText(line: string, whole: boolean): void {
    if (line.trim() === "") {
      if (whole) this.close();
      return;
    }
    if (this.tabled(line, whole)) return;
    const fence = FENCE.exec(line);
    if (!whole && (fence || UNSURE.test(line) || RULE.test(line))) return;
    if (fence) return this.openCode(fence[1] ?? "```", fence[2] ?? "");
    if (RULE.test(line)) {
      this.leave();
      this.root.append(h("hr"));
      return;
    }
    if (this.open?.node.tagName === "P" && PIPE.test(lastLine(this.open.source)) && PIPE.test(line)) {
      if (!whole) return; // it may be the line of dashes
      if (this.headed(line)) return;
    }
    this.begun = true;
    this.begin(line);
    this.extend(line, whole);
  }

  /** Put a row into the open table; false for a line that ends it. */
  private tabled(line: string, whole: boolean): boolean {
    const { table } = this;
    if (!table || !PIPE.test(line)) {
      this.table = null;
      return false;
    }
    if (whole) table.body.append(row(line, "td", table.columns));
    return true;
  }

  /** The last line of a paragraph becomes a table's head when a line of dashes follows. */
  private headed(line: string): boolean {
    const open = this.open!;
    const head = lastLine(open.source);
    const columns = cells(head).length;
    if (!RULED.test(line) || columns !== cells(line).length) return false;
    const body = h("tbody");
    const table = h("div", { class: "scroll", tabindex: 0 }, h("table", {}, h("thead", {}, row(head, "th", columns)), body));
    open.source = open.source.slice(0, -head.length).trimEnd();
    open.dirty = true;
    open.plain = 0;
    this.paint();
    open.place.append(table);
    if (!open.source) open.node.remove();
    this.open = null;
    this.table = { body, columns };
    return true;
  }

  private begin(line: string): void {
    const heading = HEADING.exec(line);
    const item = ITEM.exec(line);
    if (heading) {
      this.leave();
      this.start(this.root, h(`h${Math.min(6, (heading[1]?.length ?? 1) + 2)}` as "h3"));
    } else if (item) this.item(item[1]?.length ?? 0, item[2] ?? "-");
    else if (QUOTE.test(line) && this.open?.node.tagName !== "BLOCKQUOTE") {
      this.leave();
      this.start(this.root, h("blockquote"));
    } else if (!this.open && /^\s{2,}/.test(line) && this.lists.length) {
      const last = this.lists[this.lists.length - 1]!.node.lastElementChild as HTMLElement;
      this.start(last, h("p"));
    } else if (!this.open || /^H\d$/.test(this.open.node.tagName)) {
      this.leave();
      this.start(this.root, h("p"));
    }
  }

  private start(place: HTMLElement, node: HTMLElement): void {
    this.close();
    place.append(node);
    this.open = { place, node, source: "", line: "", dirty: true, plain: 0 };
  }

  private item(indent: number, mark: string): void {
    this.close();
    while (this.lists.length && indent < this.lists[this.lists.length - 1]!.indent) this.lists.pop();
    let top = this.lists[this.lists.length - 1];
    const ordered = /\d/.test(mark);
    if (!top || (indent >= top.indent + 2 && this.lists.length < 6)) {
      const node = ordered ? h("ol", { start: Number.parseInt(mark, 10) }) : h("ul");
      (top?.node.lastElementChild ?? this.root).append(node);
      top = { indent, node };
      this.lists.push(top);
    } else if (this.lists.length === 1 && (top.node.tagName === "OL") !== ordered) {
      const node = ordered ? h("ol", { start: Number.parseInt(mark, 10) }) : h("ul");
      this.root.append(node);
      top.node = node;
    }
    const li = h("li");
    top.node.append(li);
    this.start(li, h("span"));
  }

  /** Put the line, or what came of it, into the block that it belongs to. */
  private extend(line: string, whole: boolean): void {
    const open = this.open!;
    const content = HEADING.exec(line)?.[2] ?? (open.node.tagName === "SPAN" ? ITEM.exec(line)?.[3] : undefined) ?? QUOTE.exec(line)?.[1] ?? line;
    open.line = /^H\d$/.test(open.node.tagName) ? content.replace(/\s+#+\s*$/, "") : content.trimStart();
    open.dirty = true;
    if (!whole) return;
    open.source += (open.source ? "\n" : "") + open.line;
    open.line = "";
    if (/^H\d$/.test(open.node.tagName)) this.close();
  }

  private openCode(fence: string, name: string): void {
    this.leave();
    const text = document.createTextNode("");
    const head = h("div", { class: "code-head" }, h("span", {}, name.slice(0, 40)), this.copy?.(() => text.data) ?? "");
    this.root.append(h("figure", { class: "code" }, head, h("pre", { tabindex: 0 }, h("code", {}, text))));
    this.code = { text, fence };
  }

  private close(): void {
    this.paint();
    this.open = this.table = null;
  }

  private leave(): void {
    this.close();
    this.lists = [];
  }

  private paint(): void {
    const open = this.open;
    if (!open?.dirty) return;
    open.dirty = false;
    const text = open.line ? open.source + (open.source ? "\n" : "") + open.line : open.source;
    if (open.plain) {
      if (text.length > open.plain) open.node.append(text.slice(open.plain));
    } else open.node.replaceChildren(...inline(text));
    if (text.length > MOST_INLINE) open.plain = text.length;
  }
}

const lastLine = (text: string): string => text.slice(text.lastIndexOf("\n") + 1);
const MOST_COLUMNS = 40;

/** The cells of a row; a pipe after a backslash is text. */
function cells(line: string): string[] {
  const inner = line.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "");
  return inner.split(/(?<!\\)\|/, MOST_COLUMNS).map((cell) => cell.replaceAll("\\|", "|").trim());
}

function row(line: string, tag: "th" | "td", columns: number): HTMLElement {
  const found = cells(line);
  return h("tr", {}, ...Array.from({ length: columns }, (_, n) => h(tag, tag === "th" ? { scope: "col" } : {}, ...inline(found[n] ?? ""))));
}

const DONE_MS = 1600;

export function copyButton(text: () => string): HTMLElement {
  const word = h("span", { t: "x.copy" });
  const button = h("button", { type: "button", class: "copy" }, icon("copy"), word);
  button.addEventListener("click", async () => {
    await copied(text());
    say(word, "x.copied");
    button.firstElementChild?.replaceWith(icon("check"));
    setTimeout(() => {
      say(word, "x.copy");
      button.firstElementChild?.replaceWith(icon("copy"));
    }, DONE_MS);
  });
  return button;
}

/** Put a text into the clipboard, also where the page came over plain HTTP from another machine (no Clipboard API). */
async function copied(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = h("textarea", { class: "unseen", readonly: true });
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

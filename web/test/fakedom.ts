// As much of a document as MarkdownSink needs, so that its blocks can be compared as text.
class Piece {
  children: (Piece | FakeText)[] = [];
  attributes = new Map<string, string>();
  textOnly = "";
  private parent: Piece | null = null;
  constructor(readonly tagName: string) {}
  setAttribute(name: string, value: string): void {
    this.attributes.set(name, value);
  }
  addEventListener(): void {}
  append(...nodes: (Piece | FakeText | string)[]): void {
    for (const node of nodes) {
      if (node instanceof Piece) node.parent = this;
      this.children.push(typeof node === "string" ? new FakeText(node) : node);
    }
  }
  remove(): void {
    if (this.parent) this.parent.children = this.parent.children.filter((child) => child !== this);
  }
  replaceChildren(...nodes: (Piece | FakeText | string)[]): void {
    this.children = [];
    this.append(...nodes);
  }
  get lastElementChild(): Piece | null {
    return this.children.filter((child): child is Piece => child instanceof Piece).pop() ?? null;
  }
}

class FakeText {
  constructor(public data: string) {}
  appendData(text: string): void {
    this.data += text;
  }
}

export function install(): void {
  const create = (tag: string) => new Piece(tag.toUpperCase());
  Object.assign(globalThis, { document: { createElement: create, createElementNS: (_: string, tag: string) => create(tag), createTextNode: (text: string) => new FakeText(text) } });
}

export const root = (): HTMLElement => new Piece("ROOT") as unknown as HTMLElement;

/** The tree as text: `p(Hello strong(world))`. Neighbouring texts are one. */
export function tree(node: unknown): string {
  if (node instanceof FakeText) return node.data;
  if (!(node instanceof Piece)) return String(node);
  const href = node.attributes.get("href");
  return `${node.tagName.toLowerCase()}${href ? `[${href}]` : ""}(${node.children.map(tree).join("")})`;
}

// This machine's apt sources, as far as they serve one Debian suite.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

export interface Sources {
  /** One-line entries ("deb …"), or "". */
  readonly list: string;
  /** deb822 stanzas, or "". */
  readonly deb822: string;
}

/**
 * Reads `etc/apt/sources.list` and `sources.list.d` below `root`. Entries of `hostSuite` (with -updates and -security)
 * and the component main are kept and turned to `suite`; where none matches, all are kept as they are.
 */
export function readSources(root: string, hostSuite: string, suite: string): Sources {
  const files = [join(root, "etc/apt/sources.list"), ...parts(join(root, "etc/apt/sources.list.d"))].filter(existsSync);
  const texts = files.map((file) => ({ file, text: readFileSync(file, "utf8") }));
  const lines = texts
    .filter(({ file }) => file.endsWith(".list"))
    .flatMap(({ text }) => text.split("\n").map(parseLine));
  const stanzas = texts.filter(({ file }) => file.endsWith(".sources")).flatMap(({ text }) => parseStanzas(text));
  const all = [...lines.filter((line) => line !== undefined), ...stanzas];
  const fitting = all.flatMap((entry) => turned(entry, hostSuite, suite) ?? []);
  const chosen = fitting.length > 0 ? fitting : all;
  return {
    list: chosen.map((entry) => (entry.kind === "line" ? `${lineText(entry)}\n` : "")).join(""),
    deb822: chosen.flatMap((entry) => (entry.kind === "stanza" ? [stanzaText(entry)] : [])).join("\n"),
  };
}

interface Line {
  readonly kind: "line";
  /** "[signed-by=… arch=…]" or "". */
  readonly options: string;
  readonly uri: string;
  readonly suites: readonly string[];
  readonly components: readonly string[];
}

interface Stanza {
  readonly kind: "stanza";
  readonly fields: ReadonlyMap<string, string>;
  readonly suites: readonly string[];
  readonly components: readonly string[];
}

function parts(dir: string): string[] {
  if (!existsSync(dir)) return [];
  // apt takes only these endings.
  const names = readdirSync(dir).filter((name) => /^[\w.-]+\.(list|sources)$/.test(name));
  return names.sort().map((name) => join(dir, name));
}

function parseLine(text: string): Line | undefined {
  const match = /^\s*deb\s+(\[[^\]]*\]\s+)?(\S+)\s+(\S+)\s*([^#]*)/.exec(text);
  if (!match) return undefined;
  const [, options = "", uri = "", suite = "", components = ""] = match;
  if (uri.startsWith("cdrom:")) return undefined;
  return { kind: "line", options: options.trim(), uri, suites: [suite], components: words(components) };
}

function parseStanzas(text: string): Stanza[] {
  const stanzas: Stanza[] = [];
  const bare = text
    .split("\n")
    .filter((line) => !line.startsWith("#"))
    .join("\n");
  for (const block of bare.split(/\n\s*\n/)) {
    const fields = new Map<string, string>();
    // A line that begins with a space goes on with the field above it.
    for (const [, name = "", value = ""] of block.matchAll(/^([\w-]+):((?:.*)(?:\n[ \t].*)*)/gm)) {
      fields.set(name.toLowerCase(), value.replace(/^[ \t]+/, "").trimEnd());
    }
    const types = words(fields.get("types") ?? "");
    if (!types.includes("deb") || /^(no|false|off|0)$/i.test(fields.get("enabled") ?? "")) continue;
    fields.set("types", "deb");
    const suites = words(fields.get("suites") ?? "");
    stanzas.push({ kind: "stanza", fields, suites, components: words(fields.get("components") ?? "") });
  }
  return stanzas;
}

function turned<T extends Line | Stanza>(entry: T, hostSuite: string, suite: string): T | undefined {
  if (!entry.components.includes("main")) return undefined;
  const fitting = ["", "-updates", "-security", "/updates"].map((end) => hostSuite + end);
  const suites = entry.suites.filter((name) => fitting.includes(name));
  if (suites.length === 0) return undefined;
  return { ...entry, suites: suites.map((name) => suite + name.slice(hostSuite.length)) };
}

function lineText(line: Line): string {
  return ["deb", line.options, line.uri, line.suites[0], ...line.components].filter(Boolean).join(" ");
}

function stanzaText(stanza: Stanza): string {
  const fields = new Map(stanza.fields).set("suites", stanza.suites.join(" "));
  return [...fields].map(([name, value]) => `${name}: ${value}\n`).join("");
}

function words(text: string): string[] {
  return text.split(/\s+/).filter(Boolean);
}

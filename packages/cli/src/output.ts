// What commands print: tables at a terminal, tab-separated rows in a pipe, JSON where asked.

/** Text from a sandbox or a server without anything that a terminal would obey. */
export function safe(text: string): string {
  return text.replace(/[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g, (character) => {
    if (character === "\n") return "\\n";
    if (character === "\t") return "\\t";
    const code = character.charCodeAt(0);
    return code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
  });
}

export interface Column<T> {
  title: string;
  of: (item: T) => string | number | null | undefined;
}

export interface PrintOptions {
  json?: boolean | undefined;
}

/** A list: with --json an array of objects, each with `name`. */
export function printList<T extends object>(
  items: T[],
  nameOf: (item: T) => string,
  columns: Column<T>[],
  options: PrintOptions,
): void {
  if (options.json) {
    printJson(items.map((item) => ({ name: nameOf(item), ...item })));
    return;
  }
  const rows = items.map((item) => columns.map((column) => safe(String(column.of(item) ?? ""))));
  if (!process.stdout.isTTY) {
    process.stdout.write(rows.map((row) => `${row.join("\t")}\n`).join(""));
    return;
  }
  const titles = columns.map((column) => column.title);
  const widths = titles.map((title, i) => Math.max(title.length, ...rows.map((row) => (row[i] ?? "").length)));
  for (const row of [titles, ...rows])
    console.log(
      row
        .map((cell, i) => cell.padEnd(widths[i] ?? 0))
        .join("  ")
        .trimEnd(),
    );
}

/** One thing: "key: value" lines, or JSON. */
export function printOne(item: object, options: PrintOptions): void {
  if (options.json) {
    printJson(item);
    return;
  }
  const entries = Object.entries(item).filter(
    ([, value]) => value !== null && value !== "" && !(Array.isArray(value) && value.length === 0),
  );
  const width = Math.max(0, ...entries.map(([key]) => key.length));
  for (const [key, value] of entries) console.log(`${key.padEnd(width)}  ${safe(plain(value))}`);
}

export function printJson(value: unknown): void {
  console.log(JSON.stringify(value, (_, inner) => (typeof inner === "bigint" ? Number(inner) : inner), 2));
}

/** For people at a terminal alone. */
export function note(text: string): void {
  if (process.stderr.isTTY) process.stderr.write(`dsec: ${safe(text)}\n`);
}

function plain(value: unknown): string {
  if (value instanceof Date) return value.toISOString();
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

export function bytes(count: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = count;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${unit === 0 ? value : value.toFixed(1)} ${units[unit]}`;
}

export function age(date: Date | null): string {
  if (!date) return "";
  const seconds = Math.max(0, Math.round((Date.now() - date.getTime()) / 1000));
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)}m`;
  return seconds < 172_800 ? `${Math.floor(seconds / 3600)}h` : `${Math.floor(seconds / 86_400)}d`;
}

// A local tree as a tar stream (ustar, pax where a name, link or size does not fit). Names are bytes throughout.
import {
  closeSync,
  constants,
  type Dirent,
  fstatSync,
  lstatSync,
  openSync,
  readdirSync,
  readlinkSync,
  readSync,
  type Stats,
} from "node:fs";

const block = 512;
const pieceBytes = 1 << 20;
const slash = Buffer.from("/");

/** Archive of what is below `root`; names are relative to it. Sockets, pipes and devices are left out, and told. */
export async function* tarOf(
  root: string | Buffer,
  onLeftOut: (name: string, why: string) => void = () => {},
): AsyncGenerator<Buffer, void, void> {
  const batch = new Batch(onLeftOut);
  yield* walk(Buffer.from(root as string), Buffer.alloc(0), batch);
  batch.add(Buffer.alloc(2 * block));
  yield batch.take();
}

/** Small entries travel together. */
class Batch {
  size = 0;
  readonly leaveOut: (name: string, why: string) => void;
  #parts: Buffer[] = [];
  constructor(leaveOut: (name: string, why: string) => void) {
    this.leaveOut = leaveOut;
  }
  add(part: Buffer): void {
    this.#parts.push(part);
    this.size += part.length;
  }
  take(): Buffer {
    const all = Buffer.concat(this.#parts, this.size);
    this.#parts = [];
    this.size = 0;
    return all;
  }
}

async function* walk(directory: Buffer, prefix: Buffer, batch: Batch): AsyncGenerator<Buffer, void, void> {
  const entries = readdirSync(directory, { withFileTypes: true, encoding: "buffer" }) as Dirent<Buffer>[];
  entries.sort((a, b) => Buffer.compare(a.name, b.name));
  for (const entry of entries) {
    const path = Buffer.concat([directory, slash, entry.name]);
    const name = prefix.length > 0 ? Buffer.concat([prefix, slash, entry.name]) : entry.name;
    const stats = lstatSync(path);
    if (stats.isDirectory()) {
      addHeaders(batch, Buffer.concat([name, slash]), stats, "5", 0);
      yield* walk(path, name, batch);
    } else if (stats.isSymbolicLink()) {
      addHeaders(batch, name, stats, "2", 0, readlinkSync(path, { encoding: "buffer" }));
    } else if (stats.isFile()) {
      yield* file(path, name, batch);
    } else {
      batch.leaveOut(name.toString("utf8"), "it is a socket, a pipe or a device");
    }
    if (batch.size >= pieceBytes / 4) yield batch.take();
  }
}

/** A file that shrinks or grows while it is read keeps the size that its header says. */
async function* file(path: Buffer, name: Buffer, batch: Batch): AsyncGenerator<Buffer, void, void> {
  const fd = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW);
  try {
    const stats = fstatSync(fd);
    addHeaders(batch, name, stats, "0", stats.size);
    for (let at = 0; at < stats.size; ) {
      const piece = Buffer.alloc(Math.min(pieceBytes, stats.size - at));
      readSync(fd, piece, 0, piece.length, at);
      batch.add(piece);
      at += piece.length;
      if (batch.size >= pieceBytes) yield batch.take();
    }
    const rest = stats.size % block;
    if (rest > 0) batch.add(Buffer.alloc(block - rest));
  } finally {
    closeSync(fd);
  }
}

function addHeaders(
  batch: Batch,
  name: Buffer,
  stats: Stats,
  type: string,
  size: number,
  link: Buffer = Buffer.alloc(0),
): void {
  const records: Buffer[] = [];
  if (name.length > 100) records.push(record("path", name));
  if (link.length > 100) records.push(record("linkpath", link));
  if (size >= 8 ** 11) records.push(record("size", Buffer.from(String(size))));
  if (records.length > 0) {
    const body = Buffer.concat(records);
    batch.add(header(Buffer.from("PaxHeader"), 0o644, body.length, 0, "x"));
    batch.add(body);
    if (body.length % block > 0) batch.add(Buffer.alloc(block - (body.length % block)));
  }
  batch.add(header(name, stats.mode & 0o7777, size, Math.max(0, Math.floor(stats.mtimeMs / 1000)), type, link));
}

/** "LENGTH key=value\n", where LENGTH counts itself. */
function record(key: string, value: Buffer): Buffer {
  const rest = Buffer.concat([Buffer.from(` ${key}=`), value, Buffer.from("\n")]);
  let length = rest.length;
  while (String(length).length + rest.length !== length) length = String(length).length + rest.length;
  return Buffer.concat([Buffer.from(String(length)), rest]);
}

function header(
  name: Buffer,
  mode: number,
  size: number,
  mtime: number,
  type: string,
  link: Buffer = Buffer.alloc(0),
): Buffer {
  const head = Buffer.alloc(block);
  name.copy(head, 0, 0, 100);
  head.write(octal(mode, 7), 100, "latin1");
  head.write(octal(0, 7), 108, "latin1");
  head.write(octal(0, 7), 116, "latin1");
  head.write(octal(size < 8 ** 11 ? size : 0, 11), 124, "latin1");
  head.write(octal(mtime, 11), 136, "latin1");
  head.write("        ", 148, "latin1");
  head.write(type, 156, "latin1");
  link.copy(head, 157, 0, 100);
  head.write("ustar\x0000", 257, "latin1");
  let sum = 0;
  for (const byte of head) sum += byte;
  head.write(`${octal(sum, 6)}\0 `, 148, "latin1");
  return head;
}

function octal(value: number, width: number): string {
  return value.toString(8).padStart(width, "0");
}

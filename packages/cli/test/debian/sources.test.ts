// Which of a machine's apt sources serve a suite.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { readSources } from "../../src/debian/sources.ts";

let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "dsec-sources-"));
  mkdirSync(join(root, "etc/apt/sources.list.d"), { recursive: true });
});
afterEach(() => rmSync(root, { recursive: true }));

const put = (name: string, text: string) => writeFileSync(join(root, "etc/apt", name), text);

test("one-line entries of the suite, with options, keys and security; nothing else", () => {
  put(
    "sources.list",
    `# a comment
deb [arch=amd64 signed-by=/keys/a.gpg] http://mirror.test/debian bookworm main contrib # main
deb-src http://mirror.test/debian bookworm main
deb http://mirror.test/security bookworm-security main
deb http://mirror.test/debian bookworm-backports main
deb cdrom:[x]/ bookworm main
`,
  );
  put("sources.list.d/other.list", "deb https://other.test/apt bookworm stable\n");
  put("sources.list.d/ignored.list.disabled", "deb http://ignored.test/ bookworm main\n");
  expect(readSources(root, "bookworm", "bookworm")).toEqual({
    list: `deb [arch=amd64 signed-by=/keys/a.gpg] http://mirror.test/debian bookworm main contrib
deb http://mirror.test/security bookworm-security main
`,
    deb822: "",
  });
});

test("deb822 stanzas, with a key in them, turned to another suite", () => {
  put(
    "sources.list.d/debian.sources",
    `Types: deb deb-src
# a comment
URIs: http://mirror.test/debian
Suites: bookworm bookworm-updates bookworm-backports
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc

Enabled: no
Types: deb
URIs: http://disabled.test/
Suites: bookworm
Components: main
`,
  );
  expect(readSources(root, "bookworm", "trixie").deb822).toBe(`types: deb
uris: http://mirror.test/debian
suites: trixie trixie-updates
components: main
signed-by: 
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc
`);
});

test("where no entry names the suite, all are taken as they are", () => {
  put("sources.list", "deb http://mirror.test/debian stable main\n");
  expect(readSources(root, "bookworm", "bookworm").list).toBe("deb http://mirror.test/debian stable main\n");
});

test("a machine without sources has none", () => {
  expect(readSources(root, "bookworm", "bookworm")).toEqual({ list: "", deb822: "" });
});

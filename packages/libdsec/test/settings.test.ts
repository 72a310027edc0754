import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { configFile, loadSettings } from "../src/index.ts";

let home: string;
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), "dsec-settings-"));
});
afterEach(() => rmSync(home, { recursive: true }));

function write(text: string) {
  mkdirSync(join(home, "dsec"));
  writeFileSync(join(home, "dsec/config.json"), text);
}
const env = (more: Record<string, string> = {}) => ({ XDG_CONFIG_HOME: home, ...more });

test("without anything the error says what to do", () => {
  expect(() => loadSettings({}, env())).toThrow(
    expect.objectContaining({ reason: "NOT_CONFIGURED", next: expect.stringContaining("dsec up") }),
  );
});

test("the file is used, and the environment wins over it", () => {
  write('{"endpoint":"http://127.0.0.1:7878","apiKey":"dsec_file"}');
  expect(loadSettings({}, env())).toEqual({ endpoint: "http://127.0.0.1:7878", apiKey: "dsec_file" });
  expect(loadSettings({}, env({ DSEC_ENDPOINT: "http://h:1/", DSEC_API_KEY: "k" }))).toEqual({
    endpoint: "http://h:1",
    apiKey: "k",
  });
  expect(loadSettings({ apiKey: "own" }, env())).toEqual({ endpoint: "http://127.0.0.1:7878", apiKey: "own" });
});

test("the file's key is not sent to another endpoint", () => {
  write('{"endpoint":"http://127.0.0.1:7878","apiKey":"dsec_file"}');
  expect(() => loadSettings({}, env({ DSEC_ENDPOINT: "http://elsewhere" }))).toThrow(
    expect.objectContaining({ reason: "NOT_CONFIGURED" }),
  );
});

test("a damaged file and a wrong URL are named", () => {
  write("{");
  expect(() => loadSettings({}, env())).toThrow(
    expect.objectContaining({ reason: "INVALID_ARGUMENT", message: expect.stringContaining("config.json") }),
  );
  expect(() => loadSettings({ endpoint: "ftp://x", apiKey: "k" }, env())).toThrow(/not an http/);
});

test("the file lies in ~/.config where XDG_CONFIG_HOME is not set", () => {
  expect(configFile({ HOME: "/home/a" })).toBe("/home/a/.config/dsec/config.json");
  expect(configFile({ HOME: "/home/a", XDG_CONFIG_HOME: "" })).toBe("/home/a/.config/dsec/config.json");
});

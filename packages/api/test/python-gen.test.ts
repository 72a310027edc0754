import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { pythonFiles } from "../src/python-gen.ts";

test.for([...pythonFiles()])(
  "the Python library's file is as proto/ and the table of errors make it",
  ([file, text]) => {
    expect(readFileSync(file, "utf8")).toBe(text);
  },
);

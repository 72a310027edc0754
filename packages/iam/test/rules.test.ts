import { Role } from "@dsec/api";
import fc from "fast-check";
import { expect, test } from "vitest";
import { parseLayerName } from "../src/layer-names.ts";
import { checkProjectPath, isAtOrBelow, selfAndAncestors } from "../src/paths.ts";
import { actsIn, authorise, type Method, minimumRole, type RoleName, roleFromProto } from "../src/roles.ts";

const part = fc.stringMatching(/^[a-z0-9][a-z0-9-]{0,10}$/);
const path = fc.array(part, { minLength: 1, maxLength: 5 }).map((parts) => parts.join("/"));

test("a path is at or below exactly itself and those above it", () => {
  fc.assert(
    fc.property(path, path, (a, b) => {
      expect(() => checkProjectPath(a)).not.toThrow();
      for (const above of selfAndAncestors(a)) expect(isAtOrBelow(a, above)).toBe(true);
      expect(isAtOrBelow(a, b)).toBe(selfAndAncestors(a).includes(b));
    }),
  );
  expect(isAtOrBelow("main-x", "main")).toBe(false);
  for (const bad of [
    "",
    "/",
    "a//b",
    "a/",
    "-a",
    "A",
    "a\u0000",
    "a\nb",
    "a/../b",
    "é",
    "x".repeat(40),
    `a/${"b/".repeat(300)}c`,
  ]) {
    expect(() => checkProjectPath(bad)).toThrow("project path");
  }
});

test("each role may do what the lower ones may", () => {
  const roles: RoleName[] = ["viewer", "developer", "builder", "admin"];
  for (const [method, least] of Object.entries(minimumRole)) {
    for (const role of roles) {
      const call = () => authorise({ keyId: "k", project: "main", role }, method as Method);
      if (roles.indexOf(role) >= roles.indexOf(least)) expect(call).not.toThrow();
      else expect(call).toThrow(`needs the role ${least}`);
    }
  }
  expect(() => roleFromProto(Role.UNSPECIFIED)).toThrow("role is missing");
  expect(() => roleFromProto(99 as Role)).toThrow();
});

test("public is the root's alone", () => {
  const at = (project: string) => ({ keyId: "k", project, role: "admin" }) as const;
  expect(actsIn(at("main"), "public")).toBe(true);
  expect(actsIn(at("main/a"), "public")).toBe(false);
  expect(actsIn(at("main/a"), "main")).toBe(false);
  expect(actsIn(at("main"), "main/a/b")).toBe(true);
});

test("names of layers", () => {
  expect(parseLayerName("python:3.12@v7")).toEqual({ project: undefined, name: "python:3.12", version: 7 });
  expect(parseLayerName("main/a/b")).toEqual({ project: "main/a", name: "b", version: undefined });
  for (const bad of ["a@", "a@v", "a@v01", "@v1", "a@v1@v2", "a/", "/a", "sha256:abc", "a b", "a\u0000"]) {
    expect(() => parseLayerName(bad), bad).toThrow();
  }
});

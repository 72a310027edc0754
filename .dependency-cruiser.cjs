// The walls between the parts: who may import whom. Kept honest by packages/cli/test/launcher/walls.test.ts.

/** What a package may import of ours, besides itself. */
const mayImport = {
  api: [],
  rpc: ["api"],
  libdsec: ["api"],
  iam: ["api"],
  placement: ["api"],
  watcher: ["api"],
  apiserver: ["api", "rpc", "iam", "placement", "watcher"],
  edge: ["api", "rpc"],
  cli: ["api", "libdsec"],
};
const all = Object.keys(mayImport);

/** @type {import("dependency-cruiser").IConfiguration} */
module.exports = {
  forbidden: [
    ...all.map((name) => {
      const others = all.filter((other) => other !== name && !mayImport[name].includes(other));
      return {
        name: `wall-of-${name}`,
        comment: `${name} may import ${mayImport[name].join(", ") || "nothing of ours"}`,
        severity: "error",
        from: { path: `^packages/${name}/src/` },
        // Sources that were found, and package names where they were not.
        to: {
          path: [
            `^packages/(${others.join("|")})/`,
            `^@dsec/(${others.join("|")})(/|$)`,
            `^node_modules/@dsec/(${others.join("|")})(/|$)`,
          ],
        },
      };
    }),
    {
      name: "no-bench-in-packages",
      severity: "error",
      from: { path: "^packages/[^/]+/src/" },
      to: { path: "^bench/" },
    },
    {
      name: "no-tests-in-sources",
      severity: "error",
      from: { path: "^packages/[^/]+/src/" },
      to: { path: "^packages/[^/]+/test/" },
    },
    {
      name: "bench-as-a-caller",
      comment: "benches drive the platform as callers do",
      severity: "error",
      from: { path: "^bench/" },
      to: {
        path: [
          "^packages/(apiserver|edge|iam|placement|rpc|watcher)/",
          "^@dsec/(apiserver|edge|iam|placement|rpc|watcher)(/|$)",
        ],
      },
    },
    {
      name: "no-circles",
      severity: "error",
      from: { pathNot: "^packages/api/src/gen/" },
      to: { circular: true, viaOnly: { dependencyTypesNot: ["type-only"] } },
    },
    { name: "no-unknown", severity: "error", from: {}, to: { couldNotResolve: true } },
  ],
  options: {
    doNotFollow: { path: "node_modules" },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: "tsconfig.json" },
    enhancedResolveOptions: {
      exportsFields: ["exports"],
      conditionNames: ["import", "node", "default", "types"],
      extensions: [".ts", ".js", ".mjs", ".cjs", ".d.ts"],
    },
  },
};

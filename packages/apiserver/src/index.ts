export * from "./apiserver.ts";
export * from "./settings.ts";

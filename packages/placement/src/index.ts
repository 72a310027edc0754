export * from "./placement.ts";
export * from "./recent-placements.ts";

export { Edge, type EdgeOptions } from "./edge.ts";
export { parseSettings, type Settings } from "./settings.ts";

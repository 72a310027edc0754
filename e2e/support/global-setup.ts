export { makeBaseTar as setup } from "./environment.ts";

// Loaded before dependency-cruiser: it does not know TypeScript 7 yet, so its `typescript` is version 6 here.
import { registerHooks } from "node:module";

registerHooks({
  resolve: (specifier, context, next) =>
    next(specifier.replace(/^typescript(?=$|\/)/, "@typescript/typescript6"), context),
});

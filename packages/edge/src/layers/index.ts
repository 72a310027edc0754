// Layers of a node: made from archives, kept by digest under DATA/layers, shared by the edges of the machine.
//
//   const store = await LayerStore.open({ dataDir, edge, mklayer, log });
//   const result = await store.import({ format, body, kind, limits, signal, onProgress });
//     result: { digests (lowest first), config: ImageConfig, metadataBytes, dataBytes, entries, existed }
//   store.has(digest)            true when the whole layer is there
//   await store.info(digest)     LayerInfo, or LAYER_NOT_FOUND
//   await store.list()           LayerInfo[], by digest
//   await store.remove(digest)   true when it was there; the caller makes sure that nobody uses it (hostd's DropLayer first)
//   isImportFormat(text)         "tar" | "oci-archive" | "docker-archive"
//
// A digest is "sha256:" and 64 hex digits; its files are in store.path(digest): meta.erofs, data, layer.json.
// `kind` "base" drops whiteouts that hide nothing; other kinds keep all, since they stand above a base. A plain tar has no
// whiteouts: `.wh.` names in it are ordinary.
// On an error the body may be left partly read: answer, then close the connection.
// Errors: ARCHIVE_INVALID, ARCHIVE_LIMIT, PATH_LEAVES_ROOT, CAPACITY_FULL (no space on the node), CANCELLED (signal),
// LAYER_NOT_FOUND, INVALID_ARGUMENT (a digest of the wrong form), INTERNAL.

export { defaultLimits } from "./limits.ts";
export { type ImportOptions, isImportFormat, LayerStore } from "./store.ts";

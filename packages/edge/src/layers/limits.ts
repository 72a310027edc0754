// What an import may cost.
export interface ImportLimits {
  /** Of the upload, as it is sent. */
  readonly uploadBytes: number;
  /** Unpacked, all layers together. */
  readonly maxBytes: number;
  readonly maxEntries: number;
  /** Unpacked bytes for one compressed byte, beyond the first 64 MiB. */
  readonly maxRatio: number;
  readonly maxDepth: number;
  readonly maxSeconds: number;
  /** Files in an image's archive, and layers of an image. */
  readonly maxBlobs: number;
  readonly maxLayers: number;
  /** Data of layers that are collapsed to one. */
  readonly collapseBytes: number;
}

export const defaultLimits: ImportLimits = {
  uploadBytes: 64 * 2 ** 30,
  maxBytes: 64 * 2 ** 30,
  maxEntries: 4_000_000,
  maxRatio: 250,
  maxDepth: 256,
  maxSeconds: 3600,
  maxBlobs: 4096,
  maxLayers: 500,
  collapseBytes: 3e9,
};

/** A manifest, index or configuration. */
export const maxJsonBytes = 8 * 2 ** 20;

import { EndReason } from "@dsec/api";

const names = new Map<number, string>(Object.entries(EndReason).map(([name, value]) => [value, name]));

/** "TTL"; "UNSPECIFIED" for numbers that are not known here. */
export function endReasonName(reason: number): string {
  return names.get(reason) ?? "UNSPECIFIED";
}

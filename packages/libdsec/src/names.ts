// Names of states on the wire as strings; one that this library does not know keeps its number.
import type { DescEnum } from "@bufbuild/protobuf";
import {
  CommandStateSchema,
  EndReasonSchema,
  FileEventTypeSchema,
  FileTypeSchema,
  LayerKindSchema,
  LimitHitSchema,
  RoleSchema,
  SandboxStateSchema,
} from "@dsec/api";

const namer =
  (schema: DescEnum) =>
  (value: number): string => {
    const name = schema.value[value]?.name;
    if (name === undefined) return String(value);
    const short = schema.sharedPrefix ? name.slice(schema.sharedPrefix.length) : name;
    return short === "UNSPECIFIED" ? "" : short;
  };

/** The number of a name, in any case. */
const number =
  (schema: DescEnum) =>
  (name: string): number | undefined => {
    const upper = name.toUpperCase();
    const prefix = schema.sharedPrefix ?? "";
    return schema.values.find((value) => value.name === prefix.toUpperCase() + upper)?.number;
  };

export const stateName = namer(SandboxStateSchema);
export const stateNumber = number(SandboxStateSchema);
export const endReasonName = namer(EndReasonSchema);
export const limitName = (value: number): string => namer(LimitHitSchema)(value).toLowerCase();
export const fileTypeName = (value: number): string => namer(FileTypeSchema)(value).toLowerCase();
export const fileEventName = (value: number): string => namer(FileEventTypeSchema)(value).toLowerCase();
export const kindName = (value: number): string => namer(LayerKindSchema)(value).toLowerCase();
export const kindNumber = number(LayerKindSchema);
export const roleName = (value: number): string => namer(RoleSchema)(value).toLowerCase();
export const roleNumber = number(RoleSchema);
export const commandStateName = (value: number): string => namer(CommandStateSchema)(value).toLowerCase();

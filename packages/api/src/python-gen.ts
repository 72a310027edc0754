// Writes the Python library's messages and table of errors: `node packages/api/src/python-gen.ts`. Its result is committed.
import { writeFileSync } from "node:fs";
import type { DescEnum, DescField, DescMessage, DescService } from "@bufbuild/protobuf";
import { ScalarType } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { type ErrorKind, errorTable } from "./errors.ts";
import { CommandService } from "./gen/dsec/v1/command_pb.ts";
import { NodeService } from "./gen/dsec/v1/edge_pb.ts";
import { ErrorInfoSchema } from "./gen/dsec/v1/error_pb.ts";
import { FileService } from "./gen/dsec/v1/file_pb.ts";
import { IamService } from "./gen/dsec/v1/iam_pb.ts";
import { ImportLayerResponseSchema, LayerService } from "./gen/dsec/v1/layer_pb.ts";
import { SandboxService } from "./gen/dsec/v1/sandbox_pb.ts";
import { SessionService } from "./gen/dsec/v1/session_pb.ts";

const services: DescService[] = [
  SandboxService,
  CommandService,
  SessionService,
  FileService,
  LayerService,
  IamService,
  NodeService,
];

const folder = new URL("../../../python/libdsec/src/libdsec/_wire/", import.meta.url);

/** File name → content, of all that is made. */
export function pythonFiles(): Map<URL, string> {
  return new Map([
    [new URL("messages.py", folder), messagesFile()],
    [new URL("error_table.py", folder), errorsFile()],
  ]);
}

const header = "# Made by `node packages/api/src/python-gen.ts`; do not edit.\n";

function messagesFile(): string {
  const messages = new Map<string, DescMessage>();
  const enums = new Map<string, DescEnum>();
  const visit = (message: DescMessage) => {
    if (messages.has(message.typeName)) return;
    messages.set(message.typeName, message);
    for (const field of message.fields) {
      if (field.message) visit(field.message);
      if (field.enum) enums.set(field.enum.typeName, field.enum);
      if (field.fieldKind === "list" && field.listKind === "enum") enums.set(field.enum.typeName, field.enum);
    }
  };
  for (const service of services)
    for (const { input, output } of service.methods) for (const m of [input, output]) visit(m);
  for (const message of [ErrorInfoSchema, ImportLayerResponseSchema]) visit(message);
  const all = [...messages.values()];
  return [
    `"""Messages of proto/dsec/v1 as the client sends and reads them."""\n`,
    header,
    "from __future__ import annotations\n",
    "from dataclasses import dataclass\nfrom dataclasses import field as default\n",
    "from .codec import Field, Message, Method, define\n",
    ...[...enums.values()].map(enumTable),
    ...all.map(classOf),
    "",
    ...all.map(fieldsOf),
    "",
    ...services.flatMap((service) =>
      service.methods.map(
        (method) =>
          `${snake(method.name).toUpperCase()} = Method("/${service.typeName}/${method.name}", ${method.input.name}, ${method.output.name})`,
      ),
    ),
    "",
  ].join("\n");
}

function enumTable(desc: DescEnum): string {
  const prefix = desc.sharedPrefix ?? "";
  const rows = desc.values.map((value) => {
    const name = value.name.slice(prefix.length);
    return `    ${value.number}: "${name === "UNSPECIFIED" ? "" : name}",`;
  });
  return `${snake(desc.name).toUpperCase()}: dict[int, str] = {\n${rows.join("\n")}\n}\n`;
}

function classOf(message: DescMessage): string {
  const fields = message.fields.map((field) => `    ${field.name}: ${typeOf(field)}`);
  return `
@dataclass(slots=True)
class ${message.name}(Message):
${fields.length > 0 ? fields.join("\n") : "    pass"}
`;
}

/** A member of a oneof, and what is marked optional, is told from its default by None. */
const optional = (field: DescField) =>
  field.oneof !== undefined || (field.fieldKind === "scalar" && field.proto.proto3Optional);

function typeOf(field: DescField): string {
  switch (field.fieldKind) {
    case "map":
      return `dict[str, ${field.scalar === ScalarType.BOOL ? "bool" : "str"}] = default(default_factory=dict)`;
    case "list":
      return `list[${field.listKind === "message" ? field.message.name : field.listKind === "enum" ? "int" : scalar(field.scalar)[1]}] = default(default_factory=list)`;
    case "message":
      return `${field.message.name} | None = None`;
    case "enum":
      return "int = 0";
    default: {
      const [, type, zero] = scalar(field.scalar);
      return optional(field) ? `${type} | None = None` : `${type} = ${zero}`;
    }
  }
}

/** The codec's word, Python's type and its default. */
function scalar(type: ScalarType): [string, string, string] {
  switch (type) {
    case ScalarType.STRING:
      return ["string", "str", '""'];
    case ScalarType.BYTES:
      return ["bytes", "bytes", 'b""'];
    case ScalarType.BOOL:
      return ["bool", "bool", "False"];
    case ScalarType.DOUBLE:
      return ["double", "float", "0.0"];
    case ScalarType.UINT32:
    case ScalarType.UINT64:
      return ["uint", "int", "0"];
    case ScalarType.INT32:
    case ScalarType.INT64:
      return ["int", "int", "0"];
    default:
      throw new Error(`no Python for the scalar type ${ScalarType[type]}`);
  }
}

function fieldsOf(message: DescMessage): string {
  const rows = message.fields.map((field) => {
    const shape =
      field.fieldKind === "list" ? "list" : field.fieldKind === "map" ? "map" : optional(field) ? "optional" : "single";
    const kind =
      field.fieldKind === "map"
        ? scalar(field.scalar as ScalarType)[0]
        : field.message
          ? "message"
          : field.enum
            ? "enum"
            : scalar(field.scalar as ScalarType)[0];
    const more = field.message
      ? `, ${field.message.name}`
      : field.enum
        ? `, names=${snake(field.enum.name).toUpperCase()}`
        : "";
    const prefix = field.enum ? `, prefix="${(field.enum.sharedPrefix ?? "").toUpperCase()}"` : "";
    return `    Field(${field.number}, "${field.name}", "${field.jsonName}", "${shape}", "${kind}"${more}${prefix}),`;
  });
  return rows.length > 0 ? `define(\n    ${message.name},\n${rows.join("\n")}\n)` : `define(${message.name})`;
}

function errorsFile(): string {
  const rows = Object.entries<ErrorKind>(errorTable).map(
    ([reason, kind]) =>
      `    "${reason}": ("${snake(Code[kind.code])}", ${kind.retryable ? "True" : "False"}, ${JSON.stringify(kind.meaning)}, ${JSON.stringify(kind.next)}),`,
  );
  return `"""The one table of errors: reason → code, retryable, meaning, next step."""\n\n${header}\nERROR_TABLE: dict[str, tuple[str, bool, str, str]] = {\n${rows.join("\n")}\n}\n`;
}

function snake(name: string): string {
  return name.replace(/(?<=[a-z0-9])[A-Z]/g, (letter) => `_${letter}`).toLowerCase();
}

if (import.meta.main) for (const [file, text] of pythonFiles()) writeFileSync(file, text);

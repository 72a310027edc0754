// ExecResponse and WaitResponse by hand, around the pieces of the output: field 1 of both is the CommandResult.
import { toBinary } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { CommandOutcomeSchema } from "@dsec/api";
import { EncodedReply } from "@dsec/rpc";
import type { Collected, Kept } from "./collect.ts";

/** Up to this many bytes one piece is cheaper than several. */
const smallBytes = 16 * 1024;

export function resultReply({ commandId, outcome, stdout, stderr }: Collected): EncodedReply {
  const head = new BinaryWriter()
    .tag(1, WireType.LengthDelimited)
    .string(commandId)
    .tag(2, WireType.LengthDelimited)
    .bytes(toBinary(CommandOutcomeSchema, outcome))
    .finish();
  const pieces = nested(1, [head, ...nested(3, output(stdout)), ...nested(4, output(stderr))]);
  return sizeOf(pieces) <= smallBytes ? new EncodedReply(Buffer.concat(pieces)) : new EncodedReply(...pieces);
}

/** A CollectedOutput. */
function output({ parts, droppedBytes, gapAt }: Kept): Uint8Array[] {
  const numbers = new BinaryWriter();
  if (droppedBytes > 0) numbers.tag(2, WireType.Varint).uint64(droppedBytes);
  if (gapAt > 0) numbers.tag(3, WireType.Varint).uint64(gapAt);
  return [...nested(1, parts), numbers.finish()];
}

/** A field of bytes or of a message, whose content is in pieces. */
function nested(field: number, pieces: readonly Uint8Array[]): Uint8Array[] {
  const start = new BinaryWriter().tag(field, WireType.LengthDelimited).uint32(sizeOf(pieces)).finish();
  return [start, ...pieces];
}

function sizeOf(pieces: readonly Uint8Array[]): number {
  return pieces.reduce((sum, piece) => sum + piece.length, 0);
}

// A retry of a create: every edge is asked for the key first, and asking marks it there, so that whatever arrives late is
// refused. `attempt` orders retries: an edge keeps the highest it was asked with, and takes a create with that number alone.
import { randomInt } from "node:crypto";
import { toBinary } from "@bufbuild/protobuf";
import {
  type AskCreateKeyResponse,
  CreateSandboxResponseSchema,
  DsecError,
  EdgeService,
  type Sandbox,
  SandboxService,
  SandboxState,
} from "@dsec/api";
import { EncodedReply } from "@dsec/rpc";
import type { Call } from "../call.ts";
import { callEdge, isAnswered } from "../edges/edge-calls.ts";
import type { Edges } from "../edges/edges.ts";

const askTimeoutMs = 5_000;
const maxRounds = 4;

export interface KeyQuestion {
  readonly project: string;
  readonly createKey: string;
  readonly digest: string;
  /** Unix milliseconds. */
  readonly deadlineMs: number;
}

/** How many numbers there are for one millisecond; a number stays below 2^53. */
const perMs = 4_096;

/** Higher than any before it on this clock; two at the same moment differ. */
function newAttempt(): bigint {
  return BigInt(Date.now() * perMs + randomInt(perMs));
}

/** The sandbox of an earlier attempt, or the number to create with. Throws UNAVAILABLE, IDEMPOTENCY_MISMATCH. */
export async function askForKey(
  edges: Edges,
  question: KeyQuestion,
  call: Call,
): Promise<{ found: EncodedReply; attempt?: never } | { found?: never; attempt: bigint }> {
  let attempt = newAttempt();
  for (let round = 1; round <= maxRounds; round++) {
    const answers = await Promise.all(edges.all.map(({ edge }) => askOne(edges, edge, question, attempt, call)));
    const holder = answers.find(({ answer }) => answer.sandboxId !== "");
    if (holder?.answer.argumentsDiffer || answers.some(({ answer }) => answer.argumentsDiffer)) {
      throw new DsecError("IDEMPOTENCY_MISMATCH", "this create_key was used before with other arguments");
    }
    if (holder !== undefined) return { found: await whenReady(edges, holder.answer.sandboxId, question, call) };
    let highest = 0n;
    for (const { answer } of answers) if (answer.supersededBy > highest) highest = answer.supersededBy;
    if (highest < attempt) return { attempt };
    // Another apiserver, with a clock ahead of ours, asked too.
    attempt = highest + 1n + BigInt(randomInt(perMs));
  }
  throw new DsecError("UNAVAILABLE", "other retries of the same create are under way", {
    outcomeUnknown: true,
    retryAfterMs: 1_000,
  });
}

async function askOne(
  edges: Edges,
  edge: string,
  question: KeyQuestion,
  attempt: bigint,
  call: Call,
): Promise<{ edge: string; answer: AskCreateKeyResponse }> {
  const { project, createKey, digest } = question;
  const timeoutMs = Math.min(askTimeoutMs, question.deadlineMs - Date.now());
  try {
    const answer = await callEdge(
      edges.get(edge),
      EdgeService.method.askCreateKey,
      { project, createKey, argumentsDigest: digest, attempt },
      { token: call.token, requestId: call.requestId, timeoutMs },
    );
    return { edge, answer };
  } catch (error) {
    if (isAnswered(error) && error instanceof DsecError && error.reason === "IDEMPOTENCY_MISMATCH") throw error;
    throw new DsecError("UNAVAILABLE", `the node ${edge} cannot be asked whether an earlier attempt made the sandbox`, {
      outcomeUnknown: true,
      retryAfterMs: 1_000,
      metadata: { edge },
      cause: error,
    });
  }
}

/** The first attempt's sandbox, once it is ready. */
async function whenReady(edges: Edges, sandboxId: string, question: KeyQuestion, call: Call): Promise<EncodedReply> {
  for (let waitMs = 5; ; waitMs = Math.min(waitMs * 2, 200)) {
    const sandbox = await getSandbox(edges, sandboxId, question, call);
    if (sandbox.state !== SandboxState.CREATING) {
      return new EncodedReply(
        toBinary(CreateSandboxResponseSchema, { $typeName: "dsec.v1.CreateSandboxResponse", sandbox }),
      );
    }
    if (Date.now() + waitMs >= question.deadlineMs) {
      throw new DsecError("DEADLINE_EXCEEDED", `sandbox ${sandboxId} is still being created`, {
        outcomeUnknown: true,
        metadata: { sandbox_id: sandboxId },
      });
    }
    await new Promise((resolve) => setTimeout(resolve, waitMs));
  }
}

async function getSandbox(edges: Edges, sandboxId: string, question: KeyQuestion, call: Call): Promise<Sandbox> {
  const { sandbox } = await callEdge(
    edges.ofSandbox(sandboxId),
    SandboxService.method.getSandbox,
    { sandboxId },
    { token: call.token, requestId: call.requestId, timeoutMs: question.deadlineMs - Date.now() },
  );
  if (sandbox === undefined) throw new DsecError("INTERNAL", `the edge answered nothing about ${sandboxId}`);
  return sandbox;
}

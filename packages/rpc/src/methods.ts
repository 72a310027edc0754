// The table of the methods that a server answers itself.
import type {
  DescMessage,
  DescMethodServerStreaming,
  DescMethodUnary,
  DescService,
  MessageInitShape,
  MessageShape,
} from "@bufbuild/protobuf";
import type { EncodedReply } from "./unary.ts";

/** What a server knows of one call; handlers get their server's own kind of it. */
export interface RpcContext {
  readonly requestId: string;
  /** The answer is wanted within so many milliseconds from now; undefined: the caller set no limit. */
  limitTo(timeoutMs: number | undefined): void;
  /** The work's result, or DEADLINE_EXCEEDED once the time is over. */
  untilDeadline<T>(work: Promise<T>): Promise<T>;
}

export interface OwnMethod<C> {
  readonly method: DescMethodUnary;
  readonly run: (request: never, context: C) => unknown;
}

export interface OwnStream<C> {
  readonly method: DescMethodServerStreaming;
  readonly run: (request: never, context: C) => AsyncIterable<unknown>;
}

type Reply<O extends DescMessage> = MessageInitShape<O> | EncodedReply;

type Handler<M, C> =
  M extends DescMethodUnary<infer I, infer O>
    ? (request: MessageShape<I>, context: C) => Promise<Reply<O>> | Reply<O>
    : M extends DescMethodServerStreaming<infer I, infer O>
      ? (request: MessageShape<I>, context: C) => AsyncIterable<MessageInitShape<O>>
      : never;

export type Handlers<S extends DescService, C> = { [K in keyof S["method"]]?: Handler<S["method"][K], C> };

/** Enters the handlers under "package.Service/Method". */
export function addService<S extends DescService, C>(
  table: Map<string, OwnMethod<C> | OwnStream<C>>,
  service: S,
  handlers: Handlers<S, C>,
): void {
  for (const [localName, run] of Object.entries(handlers)) {
    const method = service.method[localName];
    if (method) table.set(`${service.typeName}/${method.name}`, { method, run } as OwnMethod<C> | OwnStream<C>);
  }
}

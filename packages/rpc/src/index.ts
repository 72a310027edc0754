export { drain } from "./drain.ts";
export { encodeEnd, envelope, openEnvelope } from "./envelope.ts";
export { asCallerError, isStreaming, rawError, sendError } from "./errors.ts";
export { addService, type Handlers, type OwnMethod, type OwnStream, type RpcContext } from "./methods.ts";
export { contentTypeOf, readBody, requestIdOf } from "./request.ts";
export { serveStream } from "./stream.ts";
export { EncodedReply, serveUnary } from "./unary.ts";

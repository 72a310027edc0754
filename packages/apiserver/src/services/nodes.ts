import { create } from "@bufbuild/protobuf";
import { type NodeService, NodeStatusSchema } from "@dsec/api";
import { actsIn } from "@dsec/iam";
import type { Handlers } from "@dsec/rpc";
import type { Watcher } from "@dsec/watcher";
import type { Call } from "../call.ts";

export function nodeHandlers(watcher: Watcher): Handlers<typeof NodeService, Call> {
  return {
    async listNodes(_, call) {
      const nodes = watcher.nodes().map(({ edge, status, reachable }) => {
        if (status === undefined)
          return create(NodeStatusSchema, { edge, healthy: false, notAcceptingReason: "it has not answered yet" });
        return {
          ...status,
          healthy: status.healthy && reachable,
          // Use of other projects is theirs.
          projects: status.projects.filter((use) => actsIn(call.principal, use.project)),
        };
      });
      return { nodes };
    },
  };
}

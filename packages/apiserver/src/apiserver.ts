// Puts the parts together and runs them.
import { EdgeService, IamService, LayerService, NodeService, SandboxService } from "@dsec/api";
import {
  Authenticator,
  firstStart,
  KeyStore,
  LayerResolver,
  LayerStore,
  openDatabase,
  type Principal,
  ProjectStore,
  QuotaLedger,
  rootProject,
} from "@dsec/iam";
import { RecentPlacements } from "@dsec/placement";
import { addService, type OwnMethod } from "@dsec/rpc";
import { Watcher } from "@dsec/watcher";
import type { Logger } from "pino";
import type { Call } from "./call.ts";
import { callEdge } from "./edges/edge-calls.ts";
import { Edges } from "./edges/edges.ts";
import { importLayer } from "./layers/import.ts";
import { PrincipalTokens } from "./principal-tokens.ts";
import { Creator } from "./sandboxes/create.ts";
import { listSandboxes } from "./sandboxes/list.ts";
import { Front } from "./server.ts";
import { iamHandlers } from "./services/iam.ts";
import { layerHandlers } from "./services/layers.ts";
import { nodeHandlers } from "./services/nodes.ts";
import type { Settings } from "./settings.ts";

/** A key that was revoked elsewhere ends within this and one query. */
const revalidateMs = 1_500;
const drainMs = 10_000;
/** Who the apiserver is when it asks for itself: polls, and who uses a layer. */
const platform: Principal = { keyId: "apiserver", project: rootProject, role: "admin" };

export interface Apiserver {
  readonly port: number;
  /** Takes no new calls, lets those under way end for ten seconds, closes the database. */
  stop(): Promise<void>;
}

export async function startApiserver(settings: Settings, log: Logger): Promise<Apiserver> {
  const tokens = await PrincipalTokens.load(settings.principalPrivateKeyFile);
  const database = await openDatabase(settings.database);
  if (await firstStart(database, settings.firstKeyFile))
    log.info({ file: settings.firstKeyFile }, "made the first key");
  const edges = new Edges(settings.edges);
  const keys = new KeyStore(database);
  const projects = new ProjectStore(database);
  const layers = new LayerStore(database);
  const resolver = new LayerResolver(layers);
  const authenticator = new Authenticator(keys);
  const ledger = new QuotaLedger();
  const recent = new RecentPlacements();
  const watcher = new Watcher({
    edges: edges.all.map((edge) => edge.edge),
    intervalMs: settings.pollMs,
    poll: async (edge, signal) => {
      const options = { token: await tokens.token(platform), requestId: `poll-${edge}`, timeoutMs: 10_000, signal };
      const { status } = await callEdge(edges.get(edge), EdgeService.method.snapshot, {}, options);
      if (status === undefined || status.edge !== edge)
        throw new Error(`${edge} answered a snapshot that is not its own`);
      return status;
    },
    onSnapshot: (status, askedAt) => {
      ledger.take(status, askedAt);
      recent.take(status, askedAt);
    },
  });
  const creator = new Creator({
    edges,
    projects,
    resolver,
    ledger,
    recent,
    watcher,
    sample: settings.placementSample,
    random: Math.random,
  });

  const own = new Map<string, OwnMethod<Call>>();
  const front = new Front({
    authenticator,
    tokens,
    edges,
    own,
    log,
    importLayer: (request, response, call) =>
      importLayer({ layers, resolver, edges, watcher }, request, response, call),
  });
  const revalidate = async (): Promise<void> => {
    for (const secret of front.open.secrets()) authenticator.touch(secret);
    for (const keyId of await authenticator.revalidate()) front.open.cut(keyId);
  };
  addService(
    own,
    IamService,
    iamHandlers({
      keys,
      projects,
      ledger,
      watcher,
      quotasChanged: () => creator.forgetQuotas(),
      keysChanged: revalidate,
    }),
  );
  addService(
    own,
    LayerService,
    layerHandlers({ layers, resolver, edges, platformToken: () => tokens.token(platform) }),
  );
  addService(own, NodeService, nodeHandlers(watcher));
  addService(own, SandboxService, {
    createSandbox: (request, call) => creator.create(request, call),
    listSandboxes: (request, call) => listSandboxes(edges, request, call),
  });

  await watcher.start();
  const timer = setInterval(
    () => void revalidate().catch((error) => log.error({ err: error }, "keys were not checked")),
    revalidateMs,
  );
  await new Promise<void>((resolve, reject) => {
    front.server.once("error", reject);
    front.server.listen(settings.port, settings.host, 1_024, resolve);
  });
  const address = front.server.address();
  const port = typeof address === "object" && address !== null ? address.port : settings.port;
  return {
    port,
    async stop() {
      clearInterval(timer);
      watcher.stop();
      await close(front);
      await database.destroy();
    },
  };
}

async function close(front: Front): Promise<void> {
  const closed = new Promise<void>((resolve) => front.server.close(() => resolve()));
  front.server.closeIdleConnections();
  const late = setTimeout(() => front.server.closeAllConnections(), drainMs);
  await closed;
  clearTimeout(late);
}

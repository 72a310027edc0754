// The entrance: creates and finds sandboxes, and holds the catalogue, projects, keys and nodes.
import { DsecError, edgeOfSandboxId, SandboxService, type SandboxState } from "@dsec/api";
import { createSandbox } from "./create.ts";
import { type CreateManyOptions, type CreateManyResult, createMany } from "./create-many.ts";
import { Keys, Projects } from "./iam.ts";
import { Layers } from "./layers.ts";
import { stateNumber } from "./names.ts";
import { Nodes } from "./nodes.ts";
import type { ContainerRunArgs, CreateOptions } from "./run-args.ts";
import { Sandbox } from "./sandbox.ts";
import { type SandboxInfo, sandboxInfoOf } from "./sandbox-info.ts";
import { loadSettings } from "./settings.ts";
import { Calls } from "./transport/calls.ts";
import { HttpTransport } from "./transport/http.ts";

export interface ClientOptions {
  /** "http://host:port". Default: DSEC_ENDPOINT, else the configuration file. */
  endpoint?: string | undefined;
  /** Default: DSEC_API_KEY, else the configuration file. */
  apiKey?: string | undefined;
  /** Milliseconds for one call, and within which an interrupted one is taken up again. Default 60,000. */
  requestTimeoutMs?: number | undefined;
}

export interface ListOptions {
  /** All must match. */
  labels?: Record<string, string> | undefined;
  job?: string | undefined;
  project?: string | undefined;
  /** "RUNNING", … Default: those that live. */
  states?: readonly string[] | undefined;
  /** Also projects below. */
  recursive?: boolean | undefined;
  /** At most 1000. Default 500. */
  pageSize?: number | undefined;
  /** Told the edges that did not answer: their sandboxes are missing in the list. */
  onUnreachable?: ((edges: string[]) => void) | undefined;
}

export class DSecClient implements AsyncDisposable {
  readonly layers: Layers;
  readonly projects: Projects;
  readonly keys: Keys;
  readonly nodes: Nodes;
  readonly endpoint: string;
  readonly #calls: Calls;

  /** Connects with the first call. @throws DsecError NOT_CONFIGURED, INVALID_ARGUMENT */
  constructor(options: ClientOptions = {}) {
    const settings = loadSettings(options);
    const requestMs = options.requestTimeoutMs ?? 60_000;
    if (!(requestMs > 0))
      throw new DsecError("INVALID_ARGUMENT", `requestTimeoutMs is ${requestMs}; it must be above 0`);
    this.endpoint = settings.endpoint;
    this.#calls = new Calls(new HttpTransport(settings), requestMs);
    this.layers = new Layers(this.#calls);
    this.projects = new Projects(this.#calls);
    this.keys = new Keys(this.#calls);
    this.nodes = new Nodes(this.#calls);
  }

  /**
   * Creates a container sandbox and returns when a command has been answered in it. A full platform is waited for until
   * `timeoutMs` is over.
   * @throws DsecError CAPACITY_FULL, QUOTA_EXCEEDED, NEVER_FITS, LAYER_NOT_FOUND, INVALID_LIMIT, …
   */
  async runContainer(args: ContainerRunArgs & CreateOptions): Promise<Sandbox> {
    const { timeoutMs, signal, createKey, waitForQuota, ...container } = args;
    return this.#create(container, { timeoutMs, signal, createKey, waitForQuota });
  }

  /** Creates `count` of them; yields each, or its error, as it becomes ready. Leaving the loop early stops the rest. */
  runContainers(args: ContainerRunArgs & CreateManyOptions): AsyncGenerator<CreateManyResult, void, void> {
    const { count, concurrency, timeoutMs, signal, waitForQuota, ...container } = args;
    return createMany((one, options) => this.#create(one, options), container, {
      count,
      concurrency,
      timeoutMs,
      signal,
      waitForQuota,
    });
  }

  async #create(args: ContainerRunArgs, options: CreateOptions): Promise<Sandbox> {
    const made = await createSandbox(this.#calls, args, options);
    return new Sandbox(this.#calls, made.sandboxId, made);
  }

  /** A handle of a sandbox that exists. @throws DsecError SANDBOX_NOT_FOUND, SANDBOX_ENDED, SANDBOX_LOST */
  async connect(id: string): Promise<Sandbox> {
    const sandbox = this.sandbox(id);
    await sandbox.info();
    return sandbox;
  }

  /** The same without asking the server: the first call tells whether it is there. */
  sandbox(id: string): Sandbox {
    edgeOfSandboxId(id);
    return new Sandbox(this.#calls, id);
  }

  /** Sandboxes that match, page by page. */
  async *list(options: ListOptions = {}): AsyncGenerator<SandboxInfo, void, void> {
    const states = (options.states ?? []).map((state) => {
      const value = stateNumber(state);
      if (value === undefined)
        throw new DsecError("INVALID_ARGUMENT", `${JSON.stringify(state)} is no state of a sandbox`);
      return value as SandboxState;
    });
    let pageToken = "";
    do {
      const page = await this.#calls.call(SandboxService.method.listSandboxes, {
        project: options.project ?? "",
        labels: options.labels ?? {},
        job: options.job ?? "",
        states,
        recursive: options.recursive ?? false,
        pageSize: options.pageSize ?? 500,
        pageToken,
      });
      if (page.unreachableEdges.length > 0) options.onUnreachable?.(page.unreachableEdges);
      for (const sandbox of page.sandboxes) yield sandboxInfoOf(sandbox);
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
  }

  /** Ends open calls with CANCELLED and lets the process end. Sandboxes go on. */
  close(): void {
    this.#calls.http.close();
  }

  /** As `close`, after what was given up with a signal has been put away (at most some seconds). */
  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#calls.afterwards);
    this.close();
  }
}

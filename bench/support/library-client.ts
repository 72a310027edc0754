// One measurement with the TypeScript library, in a process of its own: see library_client.py, which does the same.
import { DSecClient, type Sandbox } from "@dsec/libdsec";
import { environment } from "./platform.ts";
import { inFlight } from "./run.ts";

const flight = 64;

/** Prints the seconds that were measured, as a JSON list. */
export async function libraryClient(what: string, count: number, source: string, back: string): Promise<void> {
  await using client = new DSecClient();
  let times: number[];
  if (what === "create") times = await create(client, count);
  else {
    await using sandbox = await client.runContainer(environment);
    times = what === "exec" ? await roundTrips(sandbox, count) : await transfer(sandbox, source, back);
  }
  console.log(JSON.stringify(times));
}

async function create(client: DSecClient, count: number): Promise<number[]> {
  const made: Sandbox[] = [];
  const { seconds } = await inFlight(flight, { count }, async () => {
    const sandbox = await client.runContainer(environment);
    if (!(await sandbox.exec(["/bin/true"])).ok) throw new Error("/bin/true failed");
    made.push(sandbox);
  });
  await Promise.all(made.map((sandbox) => sandbox.stop()));
  return [seconds];
}

async function roundTrips(sandbox: Sandbox, count: number): Promise<number[]> {
  const times: number[] = [];
  for (let i = 0; i < count + 50; i++) {
    const start = performance.now();
    if (!(await sandbox.exec(["/bin/true"])).ok) throw new Error("/bin/true failed");
    times.push((performance.now() - start) / 1000);
  }
  return times.slice(50);
}

async function transfer(sandbox: Sandbox, source: string, back: string): Promise<number[]> {
  const start = performance.now();
  await sandbox.files.upload(source, "/tmp/transfer");
  const middle = performance.now();
  await sandbox.files.download("/tmp/transfer", back);
  return [(middle - start) / 1000, (performance.now() - middle) / 1000];
}

// Log lines are JSON on stderr. Text from inside a sandbox goes through printable(); secrets never get here.
import { type Logger, pino } from "pino";

export type { Logger };

export function makeLogger(edge: string, level: string): Logger {
  return pino({ level, base: { part: "edge", edge } }, pino.destination({ dest: 2, sync: false }));
}

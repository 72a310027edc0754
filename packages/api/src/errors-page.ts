// Writes docs/errors.md from the table: `node packages/api/src/errors-page.ts`. Its result is committed.
import { writeFileSync } from "node:fs";
import { Code } from "@connectrpc/connect";
import { type ErrorKind, errorTable } from "./errors.ts";
import { pythonFiles } from "./python-gen.ts";

/** The page as Markdown; one row a reason, in the order of the table. */
export function errorsPage(): string {
  const rows = Object.entries<ErrorKind>(errorTable).map(([reason, kind]) =>
    row([`\`${reason}\``, codeName(kind.code), kind.retryable ? "yes" : "", kind.meaning, kind.next]),
  );
  return `${introduction}\n${row(["reason", "code", "retry", "meaning", "what to do"])}\n|---|---|---|---|---|\n${rows.join("\n")}\n`;
}

const introduction = `# Errors

<!-- Made from packages/api/src/errors.ts by \`node packages/api/src/errors-page.ts\`; do not edit. -->

An error says that the platform did not do what was asked. A command that ran is never an error, whatever it returned:
exit code, signal, timeout, out of memory are in its result. So a trainer drops a sample that ended with an error, and
scores one that ended with a result.

Each error has a \`reason\` from this table, which never changes its meaning, and a message for people, which may. Over
HTTP the reason is in the detail \`dsec.v1.ErrorInfo\` of a Connect error; plain bodies under \`/v1/\` answer with the same
JSON. Clients accept reasons that they do not know.

- **code**: the Connect code, for generic clients.
- **retry**: the same call may succeed later without a change. \`retryAfterMs\` says when, where that is known.
- \`outcome: "unknown"\` on an error says that something may have happened. Repeating the call with the same key or
  command ID is safe: nothing is run twice.
- \`metadata\` has facts for programs, such as the nodes that refused.
`;

function row(cells: readonly string[]): string {
  return `| ${cells.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`;
}

/** As on the wire: `failed_precondition`. */
function codeName(code: Code): string {
  return Code[code].replace(/(?<=[a-z])[A-Z]/g, (letter) => `_${letter}`).toLowerCase();
}

if (import.meta.main) {
  writeFileSync(new URL("../../../docs/errors.md", import.meta.url), errorsPage());
  // The Python library has the table too.
  for (const [file, text] of pythonFiles()) writeFileSync(file, text);
}

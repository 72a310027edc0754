// Our stdout is gone: whoever read it has seen enough (a pipe that closed), or it cannot be written (a full disk).

/** As the shell says it of a program that SIGPIPE ended. */
const pipeCode = 141;
let failed = false;
let putAway: ((code: number) => void) | undefined;

/** What is under way is ended first; without this the program ends at once. */
export function whenOutputIsLost(run: (code: number) => void): void {
  putAway = run;
}

/** Output was lost that somebody waits for: whatever the command said, this run of ours failed. */
export function outputFailed(): boolean {
  return failed;
}

export function watchOutput(): void {
  process.stdout.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code === "EPIPE") {
      if (putAway) putAway(pipeCode);
      // `dsec ls | head` is no failure.
      else process.exit(process.exitCode ?? 0);
      return;
    }
    process.stderr.write(`dsec: stdout cannot be written: ${error.message}\n  next: Look at where the output goes.\n`);
    failed = true;
    process.exitCode = 1;
    putAway?.(1);
  });
}

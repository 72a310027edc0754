// What apt must know to reach this machine's mirrors: proxies, certificates, credentials.
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";

const wanted =
  /^Acquire::(http|https|ftp|Retries|ForceIPv[46]|Check-Valid-Until|Check-Date|Max-ValidTime|Min-ValidTime|By-Hash|AllowInsecureRepositories|AllowWeakRepositories|AllowDowngradeToInsecureRepositories|Queue-Mode)\b/;

/** Lines of an apt.conf, from `apt-config dump`. */
export function aptOptions(dump: string): string[] {
  return dump.split("\n").filter((line) => wanted.test(line) && / ".+";$/.test(line));
}

export function dumpOfThisMachine(): string {
  return execFileSync("apt-config", ["dump"], { encoding: "utf8" });
}

/** Files that the options and apt's own places name and apt needs inside the new system as well. */
export function aptFiles(options: readonly string[]): string[] {
  const named = options.flatMap((line) => {
    const [, name = "", value = ""] = /^(\S+) "(.*)";$/.exec(line) ?? [];
    return /::(CaInfo|SslCert|SslKey|CAPath|CrlFile|Proxy-Auto-Detect|ProxyAutoDetect)$/i.test(name) ? [value] : [];
  });
  const own = ["/etc/apt/auth.conf", "/etc/apt/auth.conf.d", "/etc/apt/mirrors", "/etc/ssl/certs/ca-certificates.crt"];
  return [...new Set([...named, ...own])].filter((file) => file.startsWith("/") && existsSync(file));
}

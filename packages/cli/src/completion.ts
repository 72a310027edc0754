// Completion scripts, made from the tree of commands, so that they need no dsec to run while typing.
import type { Command } from "commander";

interface Node {
  /** "" for the program, "layer import" for a command of a command. */
  path: string;
  commands: { name: string; description: string }[];
  options: { flags: string[]; description: string; value: boolean; choices: string[] }[];
}

export function completionScript(program: Command, shell: string): string | undefined {
  const nodes = collect(program, "");
  if (shell === "bash") return bash(nodes);
  if (shell === "zsh") return zsh(nodes);
  return shell === "fish" ? fish(nodes) : undefined;
}

function collect(command: Command, path: string): Node[] {
  const node: Node = {
    path,
    commands: command.commands.map((child) => ({ name: child.name(), description: child.description() })),
    options: command.options
      .filter((option) => !option.hidden)
      .map((option) => ({
        flags: [option.short, option.long].filter((flag): flag is string => flag !== undefined),
        description: option.description,
        value: option.required || option.optional,
        choices: option.argChoices ?? [],
      })),
  };
  node.options.push({ flags: ["-h", "--help"], description: "help", value: false, choices: [] });
  return [
    node,
    ...command.commands.flatMap((child) => collect(child, path === "" ? child.name() : `${path} ${child.name()}`)),
  ];
}

const words = (node: Node) =>
  [...node.commands.map(({ name }) => name), ...node.options.flatMap(({ flags }) => flags)].join(" ");
const quote = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;

function bash(nodes: Node[]): string {
  const cases = nodes.map(
    (node) =>
      `    ${quote(node.path)}) words=${quote(words(node))}; commands=${quote(` ${node.commands.map(({ name }) => name).join(" ")} `)} ;;`,
  );
  const choices = nodes.flatMap((node) =>
    node.options
      .filter((option) => option.choices.length > 0)
      .map(
        (option) =>
          `    ${option.flags.map((flag) => quote(`${node.path}:${flag}`)).join("|")}) COMPREPLY=($(compgen -W ${quote(option.choices.join(" "))} -- "$current")); return ;;`,
      ),
  );
  return `# bash completion of dsec
_dsec_words() {
  case "$1" in
${cases.join("\n")}
    *) words=; commands=' ' ;;
  esac
}
_dsec() {
  local current="\${COMP_WORDS[COMP_CWORD]}" previous="\${COMP_WORDS[COMP_CWORD-1]}" path= words= commands= word i
  _dsec_words ''
  for ((i = 1; i < COMP_CWORD; i++)); do
    word="\${COMP_WORDS[i]}"
    [ "$word" = -- ] && return
    case "$commands" in
      *" $word "*) path="\${path:+$path }$word"; _dsec_words "$path" ;;
    esac
  done
  case "$path:$previous" in
${choices.join("\n")}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _dsec dsec ./dsec
`;
}

function zsh(nodes: Node[]): string {
  const described = (name: string, description: string) =>
    quote(`${name.replaceAll(":", "\\:")}:${description.replaceAll(":", "\\:")}`);
  const cases = nodes.map((node) => {
    const entries = [
      ...node.commands.map(({ name, description }) => described(name, description)),
      ...node.options.flatMap(({ flags, description }) => flags.map((flag) => described(flag, description))),
    ];
    return `    ${quote(node.path)}) entries=(${entries.join(" ")}); commands=(${node.commands.map(({ name }) => name).join(" ")}) ;;`;
  });
  return `#compdef dsec
# zsh completion of dsec
_dsec_entries() {
  case "$1" in
${cases.join("\n")}
    *) entries=(); commands=() ;;
  esac
}
_dsec() {
  local path_= word
  local -a entries commands
  _dsec_entries ''
  for word in "\${(@)words[2,CURRENT-1]}"; do
    [[ $word == -- ]] && { _default; return }
    if (( \${commands[(Ie)$word]} )); then path_="\${path_:+$path_ }$word"; _dsec_entries "$path_"; fi
  done
  _describe -t commands dsec entries || _default
}
compdef _dsec dsec
`;
}

function fish(nodes: Node[]): string {
  const lines = ["# fish completion of dsec", "complete -c dsec -f"];
  for (const node of nodes) {
    const parts = node.path === "" ? [] : node.path.split(" ");
    const seen = parts.map((part) => `__fish_seen_subcommand_from ${part}`);
    const children = node.commands.map(({ name }) => name).join(" ");
    const here = [
      ...(parts.length === 0 ? ["__fish_use_subcommand"] : seen),
      ...(parts.length > 0 && children ? [`not __fish_seen_subcommand_from ${children}`] : []),
    ].join("; and ");
    for (const { name, description } of node.commands)
      lines.push(`complete -c dsec -n ${quote(here)} -a ${name} -d ${quote(description)}`);
    for (const { flags, description, value, choices } of node.options) {
      const names = flags
        .map((flag) => (flag.startsWith("--") ? `-l ${flag.slice(2)}` : `-s ${flag.slice(1)}`))
        .join(" ");
      lines.push(
        `complete -c dsec -n ${quote(here)} ${names}${value ? " -r" : ""}${choices.length > 0 ? ` -a ${quote(choices.join(" "))}` : ""} -d ${quote(description)}`,
      );
    }
  }
  return `${lines.join("\n")}\n`;
}

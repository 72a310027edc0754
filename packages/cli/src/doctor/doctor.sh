#!/bin/sh
# Says what this machine can and cannot do for the platform: one line a subject. Installs nothing, changes nothing;
# with --try it tries what only trying tells, and cleans up. Plain sh, since Node may be missing.
set -u

json=no
try=no
for argument in "$@"; do
  case $argument in
    --json) json=yes ;;
    --try) try=yes ;;
    *)
      printf 'dsec: doctor knows --json and --try, not "%s"\n' "$argument" >&2
      exit 2
      ;;
  esac
done

root=$(CDPATH= cd -- "$(dirname -- "$0")/../../../.." && pwd -P)
failed=0
separator=''

# STATE is ok, lost (works, with something missing), missing (the platform cannot run here) or untried.
tell() { # NAME STATE WHAT [WHAT-IS-LOST [HOW-TO-GET-IT]]
  [ "$2" != missing ] || failed=1
  if [ "$json" = yes ]; then
    printf '%s\n  {"name": "%s", "state": "%s", "what": "%s", "lost": "%s", "get": "%s"}' \
      "$separator" "$1" "$2" "$(escape "$3")" "$(escape "${4:-}")" "$(escape "${5:-}")"
    separator=,
    return
  fi
  case $2 in
    ok) mark='ok     ' ;;
    lost) mark='lost   ' ;;
    missing) mark='MISSING' ;;
    *) mark='untried' ;;
  esac
  line="$mark  $1: $3"
  [ -z "${4:-}" ] || line="$line; $4"
  [ -z "${5:-}" ] || line="$line ($5)"
  printf '%s\n' "$line"
}

escape() { printf '%s' "$1" | tr -d '\000-\037' | sed 's/[\\"]/\\&/g'; }

kernel=$(uname -r)
major=${kernel%%.*}
minor=${kernel#*.}
minor=${minor%%[!0-9]*}
kernel_has() { # MAJOR MINOR
  [ "$major" -gt "$1" ] || { [ "$major" -eq "$1" ] && [ "$minor" -ge "$2" ]; }
}

has_filesystem() { grep -qw "$1" /proc/filesystems 2>/dev/null; }

module_is_there() { # a module that the kernel can load
  grep -qs "/$1\.ko" "/lib/modules/$kernel/modules.dep" || grep -qs "/$1\.ko" "/lib/modules/$kernel/modules.builtin"
}

has_capability() { # BIT
  effective=$(sed -n 's/^CapEff:[[:space:]]*//p' /proc/self/status 2>/dev/null)
  [ -n "$effective" ] && [ $(((0x$effective >> $1) & 1)) -eq 1 ]
}

program() { command -v "$1" 2>/dev/null; }

check_root() {
  if [ "$(id -u)" = 0 ]; then
    tell root ok "this is root"
  else
    tell root missing "this is user $(id -u)" "only the client commands work; no platform can be started" "use sudo ./dsec …"
  fi
}

check_system() {
  name=unknown
  codename=
  if [ -r /etc/os-release ]; then
    name=$(. /etc/os-release && printf '%s' "${PRETTY_NAME:-$ID}")
    codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
  fi
  case $codename in
    bookworm | trixie) tell system ok "$name" ;;
    *) tell system lost "$name" "only Debian 12 and 13 are tested; missing packages may not be installed by themselves" "install by hand what ./dsec names" ;;
  esac
}

check_kernel() {
  if ! kernel_has 6 1; then
    tell kernel missing "Linux $kernel" "the platform needs 6.1 or newer" "use Debian 12's or 13's kernel"
  elif ! kernel_has 6 12; then
    tell kernel lost "Linux $kernel" "no EROFS from files (6.12: a loop device for each layer instead), no pre-content events (6.14: whole layers are fetched first)" "use a newer kernel, for example from backports"
  elif ! kernel_has 6 14; then
    tell kernel lost "Linux $kernel" "no pre-content events (6.14): layers cannot be read on demand, they are fetched whole first" "use a newer kernel, for example from backports"
  else
    tell kernel ok "Linux $kernel (EROFS from files, pre-content events)"
  fi
}

check_mounts() {
  if [ "$(id -u)" != 0 ]; then
    tell mounts untried "not tried: not root"
  elif has_capability 21; then
    tell mounts ok "CAP_SYS_ADMIN is there; whether mounts are allowed is tried by doctor --try"
  else
    tell mounts missing "no CAP_SYS_ADMIN: this looks like a container without mounts" "no sandbox can be started" "run the container privileged, or use a virtual machine"
  fi
}

check_namespaces() {
  lacking=
  for kind in user pid mnt net ipc uts cgroup; do
    [ -e "/proc/self/ns/$kind" ] || lacking="$lacking $kind"
  done
  limit=$(cat /proc/sys/user/max_user_namespaces 2>/dev/null || echo 1)
  if [ -n "$lacking" ]; then
    tell namespaces missing "this kernel lacks:$lacking" "no sandbox can be started" "use Debian's kernel"
  elif [ "$limit" = 0 ]; then
    tell namespaces missing "user.max_user_namespaces is 0" "no sandbox can be started" "sysctl user.max_user_namespaces=100000"
  elif [ "$limit" -lt 3300 ]; then
    tell namespaces lost "at most $limit user namespaces" "at most as many sandboxes" "sysctl user.max_user_namespaces=100000"
  else
    tell namespaces ok "user, pid, mnt, net, ipc, uts, cgroup"
  fi
}

check_loops() {
  if [ -c /dev/loop-control ]; then
    tell 'loop devices' ok "/dev/loop-control is there"
  elif module_is_there loop; then
    tell 'loop devices' ok "the kernel can load them"
  else
    tell 'loop devices' lost "none" "no disk limit for sandboxes unless the data directory is on btrfs$(kernel_has 6 12 || printf '; and no layers on this kernel')" "start the machine or container with /dev/loop-control"
  fi
}

check_cgroups() {
  need='memory cpu pids'
  if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
    there=$(cat /sys/fs/cgroup/cgroup.controllers)
    kind=v2
  else
    there=$(awk 'NR > 1 && $4 == 1 { print $1 }' /proc/cgroups 2>/dev/null | tr '\n' ' ')
    if [ -d /sys/fs/cgroup/unified ]; then kind='hybrid (controllers in v1)'; else kind=v1; fi
    mounted=
    for controller in $there; do
      ! grep -q " cgroup .*[ ,]$controller\(,\|\$\| \)" /proc/mounts 2>/dev/null || mounted="$mounted $controller"
    done
    there=$mounted
  fi
  lacking=
  for controller in $need; do
    case " $there " in *" $controller "*) ;; *) lacking="$lacking $controller" ;; esac
  done
  if [ ! -d /sys/fs/cgroup ] || [ -z "$there" ]; then
    tell cgroups missing "none are mounted at /sys/fs/cgroup" "no limits and no clean end of sandboxes" "in a chroot: mount --rbind /sys ROOT/sys"
  elif [ -n "$lacking" ]; then
    tell cgroups lost "$kind, without:$lacking" "no limits of these kinds" "boot with cgroup_enable=memory, or delegate these controllers"
  else
    tell cgroups ok "$kind"
  fi
}

check_filesystem() { # NAME LOST STATE-WHEN-MISSING
  if has_filesystem "$1"; then
    tell "$1" ok "in the kernel"
  elif module_is_there "$1"; then
    tell "$1" ok "the kernel can load it"
  else
    tell "$1" "$3" "not in this kernel" "$2" "use Debian's kernel"
  fi
}

check_size() {
  memory=$(awk '/^MemTotal:/ { print int($2 / 1024) }' /proc/meminfo)
  cpus=$(grep -c '^processor' /proc/cpuinfo)
  if [ "$memory" -lt 1800 ]; then
    tell 'memory and CPUs' lost "$memory MiB, $cpus CPUs" "few sandboxes fit, and building the platform may fail" "use a machine with 2 GiB or more"
  else
    tell 'memory and CPUs' ok "$memory MiB, $cpus CPUs"
  fi
}

check_disk() {
  dir=/var/lib/dsec
  while [ ! -d "$dir" ]; do dir=$(dirname "$dir"); done
  free=$(df -Pm "$dir" 2>/dev/null | awk 'NR == 2 { print $4 }')
  if [ "${free:-0}" -lt 5000 ]; then
    tell disk lost "${free:-?} MiB free at $dir" "an installation takes about 3,000, an environment some hundreds" "make room, or use up --data-dir"
  else
    tell disk ok "$free MiB free at $dir"
  fi
}

check_pids() {
  most=$(cat /proc/sys/kernel/pid_max 2>/dev/null || echo 32768)
  if [ "$most" -lt 100000 ] && [ ! -w /proc/sys/kernel/pid_max ]; then
    tell processes lost "at most $most" "a few thousand sandboxes need more" "sysctl kernel.pid_max=4194304"
  else
    tell processes ok "at most $most$([ "$most" -ge 100000 ] || printf ' (up raises it)')"
  fi
}

check_node() {
  node=$(cat "$root/.dsec/node-path" 2>/dev/null || program node)
  version=
  [ -z "$node" ] || version=$("$node" --version 2>/dev/null)
  number=${version#v}
  if [ "${number%%.*}" -ge 24 ] 2>/dev/null; then
    tell node ok "$version ($node)"
  else
    tell node untried "${version:-none}; 24 is needed" "" "./dsec installs it for this checkout: by npm, pip or apt"
  fi
}

check_rust() {
  cargo=$(program cargo || { [ ! -x "${HOME:-/root}/.cargo/bin/cargo" ] || printf '%s' "${HOME:-/root}/.cargo/bin/cargo"; })
  if [ -x "$root/native/target/release/hostd" ]; then
    tell rust ok "hostd is built"
  elif [ -n "$cargo" ]; then
    tell rust ok "$("$cargo" --version 2>/dev/null) ($cargo)"
  else
    tell rust untried "none; 1.85 is needed once" "" "./dsec up installs Debian's"
  fi
}

check_runc() {
  runc=$(program runc)
  if [ -n "$runc" ]; then
    tell runc ok "$runc, for sandboxes that ask for it"
  else
    tell runc untried "none; only --runtime runc needs it" "" "./dsec up installs it"
  fi
}

check_registries() {
  tell registries untried "not tried: Debian's mirrors, npm, PyPI and crates.io are asked when something is installed"
}

tries() {
  if [ "$(id -u)" != 0 ]; then
    tell tries untried "not tried: not root"
    return
  fi
  work=$(mktemp -d /tmp/dsec-doctor-XXXXXX)
  trap 'rm -rf "$work"' EXIT
  trap 'exit 130' INT TERM HUP
  cannot=
  if [ -z "$(program mount)" ]; then
    cannot="needs the program mount (apt-get install mount)"
  elif ! unshare -m true 2>/dev/null && unshare -m --propagation unchanged true 2>/dev/null; then
    cannot="/ is no mount here, as in a chroot; hostd makes it one"
  fi
  attempt 'try: mount' "a tmpfs in a mount namespace" "no sandbox can be started" \
    unshare -m sh -c 'mount -t tmpfs none "$1"' sh "$work"
  attempt 'try: namespaces' "all namespaces together" "no sandbox can be started" \
    unshare -Urmpinu --fork --mount-proc true
  mkdir -p "$work/low" "$work/up" "$work/work" "$work/all"
  attempt 'try: overlay' "an overlay" "no sandbox can be started" \
    unshare -m sh -c 'cd "$1" && mount -t tmpfs none up && mkdir up/u up/w && mount -t overlay none -o lowerdir=low,upperdir=up/u,workdir=up/w all && touch all/x' sh "$work"
  if [ -c /dev/loop-control ] && [ -n "$(program mkfs.btrfs)" ]; then
    attempt 'try: quotas' "a btrfs file with a limit on a subvolume" "no disk limit for sandboxes" unshare -m sh -c '
      cd "$1" && truncate -s 200M btrfs && mkfs.btrfs -q btrfs && mkdir b && mount -o loop btrfs b &&
        btrfs quota enable b && btrfs subvolume create b/s && btrfs qgroup limit 5M b/s && sync &&
        ! dd if=/dev/zero of=b/s/f bs=1M count=40 oflag=sync 2>/dev/null' sh "$work"
  else
    tell 'try: quotas' untried "not tried: needs loop devices and btrfs-progs" "" "apt-get install btrfs-progs"
  fi
  hostd=$root/native/target/release/hostd
  if [ -x "$hostd" ]; then
    if out=$(timeout 20 "$hostd" --probe 2>&1); then
      tell 'try: hostd' ok "$(printf '%s' "$out" | tr '\n' ' ' | cut -c1-600)"
    else
      tell 'try: hostd' lost "hostd --probe: $(printf '%s' "$out" | tr '\n' ' ' | cut -c1-600)"
    fi
  else
    tell 'try: events' untried "not tried: pre-content events are tried by hostd, which is not built" "" "./dsec up builds it"
  fi
}

attempt() { # NAME WHAT LOST COMMAND…
  name=$1
  what=$2
  lost=$3
  shift 3
  if [ -n "$cannot" ]; then
    tell "$name" untried "not tried: $cannot"
  elif out=$("$@" 2>&1); then
    tell "$name" ok "$what works"
  else
    tell "$name" lost "$what does not work: $(printf '%s' "$out" | head -n 1 | cut -c1-200)" "$lost"
  fi
}

[ "$json" = no ] || printf '['
check_root
check_system
check_kernel
check_mounts
check_namespaces
check_loops
check_cgroups
check_filesystem overlay "no sandbox can be started" missing
check_filesystem erofs "no layer can be mounted" missing
check_filesystem btrfs "no disk limit for sandboxes" lost
check_size
check_disk
check_pids
check_node
check_rust
check_runc
check_registries
[ "$try" = no ] || tries
[ "$json" = no ] || printf '\n]\n'
exit "$failed"

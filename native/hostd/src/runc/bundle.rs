//! config.json of an OCI bundle (runtime specification 1.0.2).

use super::runner::ROOT;
use crate::config::IDS_PER_SLOT;
use crate::guest::{MASKED, READ_ONLY};

pub struct Bundle<'a> {
    pub root_id: u32,
    /// Of the sandbox, as a path in hostd's /proc.
    pub user_namespace: String,
    /// Letters, digits, dashes and dots: checked.
    pub hostname: &'a str,
    /// Of pid 1; ours alone.
    pub arguments: Vec<String>,
}

/// By number, as far as the fourteen of Docker need it, and what init needs to load filters and make mounts.
const CAPABILITIES: [(u32, &str); 15] = [
    (0, "CAP_CHOWN"),
    (1, "CAP_DAC_OVERRIDE"),
    (3, "CAP_FOWNER"),
    (4, "CAP_FSETID"),
    (5, "CAP_KILL"),
    (6, "CAP_SETGID"),
    (7, "CAP_SETUID"),
    (8, "CAP_SETPCAP"),
    (10, "CAP_NET_BIND_SERVICE"),
    (13, "CAP_NET_RAW"),
    (18, "CAP_SYS_CHROOT"),
    (21, "CAP_SYS_ADMIN"),
    (27, "CAP_MKNOD"),
    (29, "CAP_AUDIT_WRITE"),
    (31, "CAP_SETFCAP"),
];

/// Place, type and options, as native's init mounts them.
const MOUNTS: [(&str, &str, &str); 6] = [
    ("/proc", "proc", "nosuid,nodev,noexec"),
    ("/sys", "sysfs", "ro,nosuid,nodev,noexec"),
    (
        "/dev",
        "tmpfs",
        "nosuid,noexec,mode=755,size=64k,nr_inodes=256",
    ),
    (
        "/dev/pts",
        "devpts",
        "nosuid,noexec,newinstance,ptmxmode=0666,mode=0620,gid=5",
    ),
    (
        "/dev/shm",
        "tmpfs",
        "nosuid,nodev,noexec,mode=1777,size=64m",
    ),
    ("/dev/mqueue", "mqueue", "nosuid,nodev,noexec"),
];

impl Bundle<'_> {
    /// No seccomp and cgroups here: init loads the filter into each command, and joins the groups itself.
    pub fn to_json(&self) -> String {
        let strings = |list: &mut dyn Iterator<Item = String>| {
            let quoted: Vec<String> = list.map(|word| format!("{word:?}")).collect();
            format!("[{}]", quoted.join(","))
        };
        let capabilities = strings(&mut CAPABILITIES.iter().map(|(_, name)| name.to_string()));
        let mounts = MOUNTS.iter().map(|(place, kind, options)| {
            let options = strings(&mut options.split(',').map(String::from));
            format!(r#"{{"destination":"{place}","type":"{kind}","source":"{kind}","options":{options}}}"#)
        });
        let map = format!(
            r#"[{{"containerID":0,"hostID":{},"size":{IDS_PER_SLOT}}}]"#,
            self.root_id
        );
        let paths = |list: &[&str]| strings(&mut list.iter().map(|path| format!("/{path}")));
        format!(
            concat!(
                r#"{{"ociVersion":"1.0.2","hostname":"{hostname}","root":{{"path":"{root}"}},"#,
                r#""process":{{"user":{{"uid":0,"gid":0,"umask":18}},"cwd":"/","args":{args},"noNewPrivileges":false,"#,
                r#""capabilities":{{"bounding":{caps},"effective":{caps},"permitted":{caps}}}}},"#,
                r#""mounts":[{mounts}],"#,
                r#""linux":{{"uidMappings":{map},"gidMappings":{map},"namespaces":[{{"type":"user","path":"{user}"}},"#,
                r#"{{"type":"pid"}},{{"type":"mount"}},{{"type":"ipc"}},{{"type":"uts"}},{{"type":"network"}}],"#,
                r#""maskedPaths":{masked},"readonlyPaths":{read_only}}}}}"#
            ),
            hostname = self.hostname,
            root = ROOT,
            args = strings(&mut self.arguments.iter().cloned()),
            caps = capabilities,
            mounts = mounts.collect::<Vec<_>>().join(","),
            map = map,
            user = self.user_namespace,
            masked = paths(&MASKED),
            read_only = paths(&READ_ONLY),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seccomp::COMMAND_CAPS;

    #[test]
    fn init_has_the_capabilities_of_commands_and_one_more() {
        const SYS_ADMIN: u64 = 1 << 21;
        let mask = CAPABILITIES
            .iter()
            .fold(0, |mask, (bit, _)| mask | 1 << bit);
        assert_eq!(mask, COMMAND_CAPS | SYS_ADMIN);
    }
}

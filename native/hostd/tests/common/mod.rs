//! A hostd of its own for each test: data and run directories, cgroups, one layer from busybox. Used by the churn
//! example too. Everything goes when it is dropped.
#![allow(dead_code)]

use prost::Message;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use wire::frame::{FrameHeader, HEADER_BYTES};
use wire::{aether_reply, aether_request, hostd_reply, hostd_request, *};

static NUMBER: AtomicU32 = AtomicU32::new(0);

pub struct Rig {
    pub edge: String,
    pub run: PathBuf,
    pub data: PathBuf,
    pub layer: String,
    pub slots: u32,
    pub program: PathBuf,
    /// Apart from those of other rigs of few slots.
    pub uid_start: u32,
    /// Fallbacks for older kernels, by name.
    force: &'static str,
    /// Of `start`.
    pub runtime: &'static str,
    child: Child,
    pub wire: Wire,
}

/// Frames over a Unix socket, one call at a time or many in flight.
pub struct Wire {
    stream: UnixStream,
    next: u32,
}

impl Wire {
    pub fn connect(path: &Path) -> std::io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Self { stream, next: 0 })
    }

    fn write(&mut self, payload: &[u8]) {
        let mut bytes = FrameHeader::new(0, payload.len()).encode().to_vec();
        bytes.extend_from_slice(payload);
        self.stream.write_all(&bytes).expect("a frame is written");
    }

    pub fn read(&mut self) -> (u8, Vec<u8>) {
        let mut header = [0; HEADER_BYTES];
        self.stream.read_exact(&mut header).expect("a frame comes");
        let header = FrameHeader::decode(&header).expect("a good frame");
        let mut payload = vec![0; header.payload_bytes];
        self.stream
            .read_exact(&mut payload)
            .expect("its payload comes");
        (header.kind, payload)
    }

    pub fn order(&mut self, call: hostd_request::Call) -> u32 {
        self.next += 1;
        self.write(
            &HostdRequest {
                id: self.next,
                call: Some(call),
            }
            .encode_to_vec(),
        );
        self.next
    }

    pub fn answer(&mut self) -> HostdReply {
        HostdReply::decode(self.read().1.as_slice()).expect("a HostdReply")
    }

    /// The answer to one order; events in between are dropped.
    pub fn ask(&mut self, call: hostd_request::Call) -> Result<hostd_reply::Result, ErrorInfo> {
        let id = self.order(call);
        loop {
            let reply = self.answer();
            if reply.id == id {
                return match reply.result.expect("a result") {
                    hostd_reply::Result::Error(error) => Err(error),
                    other => Ok(other),
                };
            }
        }
    }

    fn aether(&mut self, call: aether_request::Call) -> aether_reply::Result {
        self.next += 1;
        self.write(
            &AetherRequest {
                id: self.next,
                call: Some(call),
            }
            .encode_to_vec(),
        );
        let reply = AetherReply::decode(self.read().1.as_slice()).expect("an AetherReply");
        reply.result.expect("a result")
    }
}

/// What a command left.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

#[allow(unused_imports)]
pub use wire::HostdStart as HostOrder;

pub fn start_order(id: &str, layer: &str) -> HostdStart {
    HostdStart {
        sandbox_id: id.into(),
        layers: vec![layer.into()],
        memory_limit_bytes: 256 << 20,
        disk_limit_bytes: 64 << 20,
        pids_limit: 128,
        cpu_weight: 100,
        hostname: "box".into(),
        ..Default::default()
    }
}

impl Rig {
    pub fn new(slots: u32) -> Self {
        Self::forced(slots, "")
    }

    /// With that in DSEC_HOSTD_FORCE instead of what is there.
    pub fn forced(slots: u32, force: &'static str) -> Self {
        let program = std::env::var_os("HOSTD")
            .map(PathBuf::from)
            .unwrap_or_else(|| {
                let own = std::env::current_exe().expect("an own path");
                own.ancestors().nth(2).expect("target/debug").join("hostd")
            });
        let number = NUMBER.fetch_add(1, Ordering::SeqCst);
        let pid = std::process::id();
        let edge = format!("t{}x{number}", pid % 1_000_000);
        let run = PathBuf::from(format!("/run/dsec-test-h{pid}-{number}"));
        let data = PathBuf::from(format!("/var/tmp/dsec-test-h{pid}-{number}"));
        std::fs::create_dir_all(&data).expect("a data directory");
        let layer = busybox_layer(&data);
        let uid_start = 300_000_000 + (pid * 8 + number) % 1900 * 1_100_000;
        let (child, wire) = spawn(&program, &edge, &run, &data, slots, uid_start, force);
        Self {
            edge,
            run,
            data,
            layer,
            slots,
            program,
            uid_start,
            force,
            runtime: "",
            child,
            wire,
        }
    }

    pub fn hostd_pid(&self) -> u32 {
        self.child.id()
    }

    pub fn stop_hostd(&mut self) {
        let _ = self.child.kill();
        self.child.wait().expect("hostd is reaped");
    }

    /// kill -9, and a new one on the same directories.
    pub fn restart(&mut self) {
        self.stop_hostd();
        let (child, wire) = spawn(
            &self.program,
            &self.edge,
            &self.run,
            &self.data,
            self.slots,
            self.uid_start,
            self.force,
        );
        self.child = child;
        self.wire = wire;
    }

    pub fn start_with(&mut self, order: HostdStart) -> Result<HostdStarted, ErrorInfo> {
        match self.wire.ask(hostd_request::Call::Start(order))? {
            hostd_reply::Result::Started(started) => Ok(started),
            other => panic!("started: {other:?}"),
        }
    }

    pub fn start(&mut self, id: &str) -> HostdStarted {
        let order = HostdStart {
            runtime: self.runtime.into(),
            ..start_order(id, &self.layer)
        };
        self.start_with(order).expect("a sandbox starts")
    }

    pub fn stop(&mut self, id: &str, keep: bool) -> HostdStopped {
        match self.wire.ask(hostd_request::Call::Stop(HostdStop {
            sandbox_id: id.into(),
            keep,
        })) {
            Ok(hostd_reply::Result::Stopped(stopped)) => stopped,
            other => panic!("stopped: {other:?}"),
        }
    }

    pub fn list(&mut self) -> Vec<HostdSandbox> {
        match self.wire.ask(hostd_request::Call::List(HostdList {})) {
            Ok(hostd_reply::Result::Sandboxes(list)) => list.sandboxes,
            other => panic!("sandboxes: {other:?}"),
        }
    }

    pub fn info(&mut self) -> HostdInfoReply {
        match self.wire.ask(hostd_request::Call::Info(HostdInfo {})) {
            Ok(hostd_reply::Result::Info(info)) => info,
            other => panic!("info: {other:?}"),
        }
    }

    /// Until every slot but those of living sandboxes is clean.
    pub fn wait_clean(&mut self) {
        let end = Instant::now() + Duration::from_secs(60);
        while self.info().slots_used as usize > self.list().len() {
            assert!(Instant::now() < end, "slots stay dirty");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn aether(&self, id: &str, slot: u32) -> Wire {
        aether(&self.run, id, slot)
    }

    /// Runs shell text as root in a sandbox and waits for its end.
    pub fn sh(&self, id: &str, slot: u32, text: &str) -> Ran {
        let mut wire = self.aether(id, slot);
        run_in(&mut wire, text)
    }
}

pub fn aether(run: &Path, id: &str, slot: u32) -> Wire {
    let mut wire =
        Wire::connect(&run.join(format!("{slot}/aether.sock"))).expect("aether's socket");
    let hello = AetherHello {
        min_version: 1,
        max_version: 1,
        sandbox_id: id.into(),
    };
    match wire.aether(aether_request::Call::Hello(hello)) {
        aether_reply::Result::Hello(reply) if reply.configured => {}
        aether_reply::Result::Hello(_) => {
            let env = [("PATH".to_string(), "/bin:/sbin:/usr/bin".to_string())].into();
            let configure = AetherConfigure {
                env,
                user: "0".into(),
                cwd: "/".into(),
                ..Default::default()
            };
            match wire.aether(aether_request::Call::Configure(configure)) {
                aether_reply::Result::Done(_) => {}
                other => panic!("configured: {other:?}"),
            }
        }
        other => panic!("hello: {other:?}"),
    }
    wire
}

pub fn run_in(wire: &mut Wire, text: &str) -> Ran {
    static COMMAND: AtomicU32 = AtomicU32::new(0);
    let what = command_spec::What::Shell(text.into());
    let spec = CommandSpec {
        what: Some(what),
        timeout_ms: 30_000,
        ..Default::default()
    };
    let command_id = format!("c{}", COMMAND.fetch_add(1, Ordering::SeqCst));
    let start = AetherStart {
        command_id,
        spec: Some(spec),
        attach: true,
    };
    wire.next += 1;
    wire.write(
        &AetherRequest {
            id: wire.next,
            call: Some(aether_request::Call::Start(start)),
        }
        .encode_to_vec(),
    );
    let mut ran = Ran {
        code: None,
        stdout: String::new(),
        stderr: String::new(),
    };
    loop {
        let (kind, payload) = wire.read();
        match kind {
            1 => ran.stdout += &String::from_utf8_lossy(&payload[16..]),
            2 => ran.stderr += &String::from_utf8_lossy(&payload[16..]),
            _ => match AetherReply::decode(payload.as_slice())
                .expect("a reply")
                .result
                .expect("a result")
            {
                aether_reply::Result::Ended(outcome) => {
                    ran.code = outcome.exit_code;
                    return ran;
                }
                aether_reply::Result::Command(_) => {}
                other => panic!("command: {other:?}"),
            },
        }
    }
}

fn spawn(
    program: &Path,
    edge: &str,
    run: &Path,
    data: &Path,
    slots: u32,
    uid_start: u32,
    force: &str,
) -> (Child, Wire) {
    let mut command = Command::new(program);
    if !force.is_empty() {
        command.env("DSEC_HOSTD_FORCE", force);
    }
    let mut child = command
        .args(["--edge", edge, "--run-dir"])
        .arg(run)
        .arg("--data-dir")
        .arg(data)
        .args(["--edge-uid", "65534", "--bash", "/bin/bash-static"])
        .args([
            "--uid-start",
            &uid_start.to_string(),
            "--slots",
            &slots.to_string(),
        ])
        .stdout(Stdio::piped())
        .spawn()
        .expect("hostd starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("its stdout"))
        .read_line(&mut line)
        .expect("a line");
    assert!(line.contains("ready"), "hostd is ready: {line}");
    (
        child,
        Wire::connect(&run.join("hostd.sock")).expect("hostd's socket"),
    )
}

/// A layer of static busybox and bash, as mklayer would make one.
pub fn busybox_layer(data: &Path) -> String {
    let tree = data.join("tree");
    for dir in ["bin", "etc", "root", "usr/bin", "var/tmp", "etc/sub"] {
        std::fs::create_dir_all(tree.join(dir)).expect("a directory");
    }
    std::fs::copy("/bin/busybox", tree.join("bin/busybox"))
        .expect("busybox (package busybox-static)");
    let list = Command::new("/bin/busybox")
        .arg("--list")
        .output()
        .expect("busybox runs");
    for name in String::from_utf8_lossy(&list.stdout)
        .lines()
        .filter(|name| *name != "busybox")
    {
        let _ = std::os::unix::fs::symlink("busybox", tree.join("bin").join(name));
    }
    std::fs::copy("/bin/busybox", tree.join("bin/suid-id")).expect("a copy");
    let suid = std::fs::Permissions::from_mode(0o4755);
    std::fs::copy("/bin/bash-static", tree.join("bin/bash")).expect("bash-static");
    std::fs::write(
        tree.join("etc/passwd"),
        "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/:/bin/sh\n",
    )
    .expect("passwd");
    std::fs::write(tree.join("etc/group"), "root:x:0:\nuser:x:1000:\n").expect("group");
    std::fs::set_permissions(tree.join("bin/suid-id"), suid).expect("suid");
    let digest = make_layer(data, &tree);
    std::fs::remove_dir_all(&tree).expect("the tree goes");
    digest
}

pub fn make_layer(data: &Path, tree: &Path) -> String {
    let staging = data.join("staging");
    std::fs::create_dir_all(&staging).expect("staging");
    let (meta, blob) = (staging.join("meta.erofs"), staging.join("data"));
    std::fs::write(&blob, b"").expect("an empty data file");
    let made = Command::new("mkfs.erofs")
        .args(["--quiet", "--all-root", "--chunksize=262144"])
        .arg(format!("--blobdev={}", blob.display()))
        .arg(&meta)
        .arg(tree)
        .stdout(Stdio::null())
        .status()
        .expect("mkfs.erofs runs");
    assert!(made.success());
    let sum = |path: &Path| {
        let output = Command::new("sha256sum")
            .arg(path)
            .output()
            .expect("sha256sum runs");
        String::from_utf8_lossy(&output.stdout)[..64].to_string()
    };
    let size = |path: &Path| std::fs::metadata(path).expect("a file").len();
    let manifest = hostd::layers::Manifest {
        meta_sha256: sum(&meta),
        meta_bytes: size(&meta),
        data_sha256: sum(&blob),
        data_bytes: size(&blob),
    };
    let digest = format!("sha256:{}", manifest.digest());
    let json = format!(
        "{{\"version\":1,\"digest\":\"{digest}\",\"meta\":{{\"sha256\":\"{}\",\"bytes\":{}}},\"data\":{{\"sha256\":\"{}\",\"bytes\":{}}},\"entries\":1,\"builder\":\"test\"}}",
        manifest.meta_sha256, manifest.meta_bytes, manifest.data_sha256, manifest.data_bytes
    );
    std::fs::write(staging.join("layer.json"), json).expect("layer.json");
    std::fs::create_dir_all(data.join("layers")).expect("layers");
    std::fs::rename(&staging, data.join("layers").join(manifest.digest()))
        .expect("the layer is put in place");
    digest
}

impl Drop for Rig {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            for sandbox in self.list() {
                self.stop(&sandbox.sandbox_id, false);
            }
            self.wait_clean();
        } else if let Ok(mut wire) = Wire::connect(&self.run.join("hostd.sock")) {
            if let Ok(hostd_reply::Result::Sandboxes(list)) =
                wire.ask(hostd_request::Call::List(HostdList {}))
            {
                for sandbox in list.sandboxes {
                    let stop = HostdStop {
                        sandbox_id: sandbox.sandbox_id,
                        keep: false,
                    };
                    let _ = wire.ask(hostd_request::Call::Stop(stop));
                }
            }
            std::thread::sleep(Duration::from_millis(500));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        for controller in ["memory", "cpu", "cpuacct", "pids", "freezer", "unified", ""] {
            let edge = Path::new("/sys/fs/cgroup")
                .join(controller)
                .join("dsec")
                .join(&self.edge);
            for slot in std::fs::read_dir(&edge).into_iter().flatten().flatten() {
                let _ = std::fs::remove_dir(slot.path());
            }
            let _ = std::fs::remove_dir(&edge);
        }
        let _ = std::fs::remove_dir_all(&self.run);
        let _ = std::fs::remove_dir_all(&self.data);
    }
}

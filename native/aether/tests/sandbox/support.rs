//! A sandbox for a test, and the edge's side of the wire.
#![allow(dead_code)]

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use prost::Message;
use wire::aether_reply::Result as Reply;
use wire::aether_request::Call;
use wire::command_spec::What;
use wire::frame::{FrameHeader, HEADER_BYTES, KIND_MESSAGE};
use wire::*;

static NEXT: AtomicU32 = AtomicU32::new(0);

pub struct TestSandbox {
    pub name: String,
    pub run: PathBuf,
    pub child: Child,
}

impl TestSandbox {
    pub fn new(options: &[&str]) -> TestSandbox {
        let name = format!(
            "dsec-test-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let run = Path::new("/run").join(&name);
        fs::create_dir(&run).expect("tests of aether run as root");
        let program = std::env::current_exe().unwrap();
        let mut dir = program.parent().unwrap();
        if dir.ends_with("deps") {
            dir = dir.parent().unwrap();
        }
        let program = if dir.ends_with("examples") {
            dir.join("sandbox")
        } else {
            dir.join("examples/sandbox")
        };
        // The parent-death signal follows the thread, which lives as long as its test.
        let child = Command::new(program)
            .arg(&name)
            .arg(&run)
            .args(options)
            .spawn()
            .expect("examples are built");
        let sandbox = TestSandbox { name, run, child };
        sandbox.client().call(Call::Ping(AetherPing {})).unwrap();
        sandbox
    }

    pub fn socket(&self) -> PathBuf {
        self.run.join("aether.sock")
    }

    pub fn connect(&self) -> UnixStream {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            match UnixStream::connect(self.socket()) {
                Ok(stream) => {
                    stream
                        .set_read_timeout(Some(Duration::from_secs(60)))
                        .unwrap();
                    return stream;
                }
                Err(error) => {
                    assert!(Instant::now() < end, "no sandbox: {error}");
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        }
    }

    pub fn client(&self) -> Client {
        let mut client = Client {
            stream: self.connect(),
            next: 0,
        };
        let hello = AetherHello {
            min_version: 1,
            max_version: 1,
            sandbox_id: self.name.clone(),
        };
        client.call(Call::Hello(hello)).unwrap();
        client
    }

    pub fn configure(&self, configure: AetherConfigure) {
        self.client().call(Call::Configure(configure)).unwrap();
    }

    pub fn hello(&self) -> AetherHelloReply {
        let mut client = Client {
            stream: self.connect(),
            next: 0,
        };
        let hello = AetherHello {
            min_version: 1,
            max_version: 1,
            sandbox_id: self.name.clone(),
        };
        match client.call(Call::Hello(hello)) {
            Ok(Reply::Hello(reply)) => reply,
            other => panic!("{other:?}"),
        }
    }

    pub fn run(&self, spec: CommandSpec) -> Ran {
        self.run_as(&fresh_id(), spec)
    }

    pub fn run_as(&self, id: &str, spec: CommandSpec) -> Ran {
        self.try_run(id, spec)
            .unwrap_or_else(|error| panic!("{error:?}"))
    }

    pub fn try_run(&self, id: &str, spec: CommandSpec) -> Result<Ran, ErrorInfo> {
        self.client().start(id, spec)?.finish()
    }

    pub fn sh(&self, text: &str) -> Ran {
        self.run(sh(text))
    }
}

impl Drop for TestSandbox {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for controller in ["unified", "memory", "pids"] {
            let path = Path::new("/sys/fs/cgroup")
                .join(controller)
                .join(&self.name);
            let end = Instant::now() + Duration::from_secs(10);
            while path.exists() && Instant::now() < end {
                for entry in fs::read_dir(&path).into_iter().flatten().flatten() {
                    if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                        let _ = fs::remove_dir(entry.path());
                    }
                }
                if fs::remove_dir(&path).is_err() {
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        }
        let _ = fs::remove_dir_all(&self.run);
    }
}

pub fn fresh_id() -> String {
    format!("c{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

pub fn sh(text: &str) -> CommandSpec {
    CommandSpec {
        what: Some(What::Shell(text.into())),
        ..Default::default()
    }
}

pub fn argv(args: &[&str]) -> CommandSpec {
    let args = args.iter().map(|arg| arg.as_bytes().to_vec()).collect();
    CommandSpec {
        what: Some(What::Argv(ArgumentVector { args })),
        ..Default::default()
    }
}

#[derive(Debug, Default)]
pub struct Ran {
    pub info: CommandInfo,
    pub outcome: CommandOutcome,
    pub out: Vec<u8>,
    pub err: Vec<u8>,
    pub dropped: [u64; 2],
}

impl Ran {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }
    pub fn errors(&self) -> String {
        String::from_utf8_lossy(&self.err).into_owned()
    }
    pub fn code(&self) -> i32 {
        self.outcome.exit_code.unwrap_or_else(|| panic!("{self:?}"))
    }
}

pub struct Client {
    pub stream: UnixStream,
    pub next: u32,
}

impl Client {
    pub fn send(&mut self, call: Call) -> u32 {
        self.next += 1;
        let mut frame = Vec::new();
        buffer::push_message(
            &mut frame,
            &AetherRequest {
                id: self.next,
                call: Some(call),
            },
        );
        self.stream.write_all(&frame).unwrap();
        self.next
    }

    pub fn frame(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut head = [0; HEADER_BYTES];
        self.stream.read_exact(&mut head)?;
        let head = FrameHeader::decode(&head).expect("aether keeps to the wire");
        let mut payload = vec![0; head.payload_bytes];
        self.stream.read_exact(&mut payload)?;
        Ok((head.kind, payload))
    }

    pub fn reply(&mut self) -> Result<Reply, ErrorInfo> {
        let (kind, payload) = self.frame().unwrap();
        assert_eq!(kind, KIND_MESSAGE);
        match AetherReply::decode(&payload[..]).unwrap().result.unwrap() {
            Reply::Error(error) => Err(error),
            reply => Ok(reply),
        }
    }

    pub fn call(&mut self, call: Call) -> Result<Reply, ErrorInfo> {
        self.send(call);
        self.reply()
    }

    /// Attached.
    pub fn start(mut self, id: &str, spec: CommandSpec) -> Result<Attached, ErrorInfo> {
        self.send(Call::Start(AetherStart {
            command_id: id.into(),
            spec: Some(spec),
            attach: true,
        }));
        match self.reply()? {
            Reply::Command(info) => Ok(Attached {
                client: self,
                ran: Ran {
                    info,
                    ..Default::default()
                },
                at: [0, 0],
            }),
            other => panic!("{other:?}"),
        }
    }

    pub fn background(&mut self, id: &str, spec: CommandSpec) -> Result<CommandInfo, ErrorInfo> {
        match self.call(Call::Start(AetherStart {
            command_id: id.into(),
            spec: Some(spec),
            attach: false,
        }))? {
            Reply::Command(info) => Ok(info),
            other => panic!("{other:?}"),
        }
    }

    pub fn attach(mut self, id: &str, at: [u64; 2], recorded_only: bool) -> Attached {
        let call = AetherAttach {
            command_id: id.into(),
            stdout_offset: at[0],
            stderr_offset: at[1],
            recorded_only,
        };
        self.send(Call::Attach(call));
        Attached {
            client: self,
            ran: Ran::default(),
            at,
        }
    }

    pub fn get(&mut self, id: &str) -> Result<CommandInfo, ErrorInfo> {
        match self.call(Call::GetCommand(AetherGetCommand {
            command_id: id.into(),
        }))? {
            Reply::Command(info) => Ok(info),
            other => panic!("{other:?}"),
        }
    }

    pub fn input(
        &mut self,
        id: &str,
        offset: u64,
        data: &[u8],
        end_of_file: bool,
    ) -> Result<u64, ErrorInfo> {
        let call = AetherInput {
            command_id: id.into(),
            offset,
            data: data.to_vec(),
            end_of_file,
        };
        match self.call(Call::Input(call))? {
            Reply::Input(reply) => Ok(reply.accepted_bytes),
            other => panic!("{other:?}"),
        }
    }

    pub fn signal(&mut self, id: &str, signal: i32, whole_tree: bool) -> Result<(), ErrorInfo> {
        self.call(Call::Signal(AetherSignal {
            command_id: id.into(),
            signal,
            whole_tree,
        }))
        .map(drop)
    }

    pub fn open_session(&mut self, id: &str) -> Result<SessionInfo, ErrorInfo> {
        match self.call(Call::OpenSession(AetherOpenSession {
            session_id: id.into(),
            ..Default::default()
        }))? {
            Reply::Session(info) => Ok(info),
            other => panic!("{other:?}"),
        }
    }
}

/// A connection that receives a command's output; every offset is checked.
pub struct Attached {
    pub client: Client,
    pub ran: Ran,
    at: [u64; 2],
}

impl Attached {
    /// False at the end.
    pub fn step(&mut self) -> Result<bool, ErrorInfo> {
        let (kind, payload) = self.client.frame().unwrap();
        if kind == KIND_MESSAGE {
            match AetherReply::decode(&payload[..]).unwrap().result.unwrap() {
                Reply::Ended(outcome) => self.ran.outcome = outcome,
                Reply::Done(_) => {}
                Reply::Error(error) => return Err(error),
                other => panic!("{other:?}"),
            }
            return Ok(false);
        }
        let s = usize::from(kind) - 1;
        let offset = u64::from_be_bytes(payload[..8].try_into().unwrap());
        let dropped = u64::from_be_bytes(payload[8..16].try_into().unwrap());
        assert_eq!(offset, self.at[s] + dropped, "each byte once, in order");
        self.at[s] = offset + payload.len() as u64 - 16;
        self.ran.dropped[s] += dropped;
        [&mut self.ran.out, &mut self.ran.err][s].extend_from_slice(&payload[16..]);
        Ok(true)
    }

    pub fn finish(mut self) -> Result<Ran, ErrorInfo> {
        while self.step()? {}
        Ok(self.ran)
    }

    /// Until stdout holds `text`.
    pub fn until(&mut self, text: &str) {
        while !self.ran.text().contains(text) {
            assert!(self.step().unwrap(), "{:?}", self.ran);
        }
    }
}

/// Waits, for as long as a busy machine may take.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

//! Opens what was named, lets a confined child build, and leaves either a whole layer or nothing.
use mklayer::args::{self, Args};
use mklayer::confine::confine;
use mklayer::error::{Failure, Result};
use mklayer::{build, Job};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const FILES: [&str; 3] = ["meta.erofs", "data", "layer.json"];
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

fn main() -> ExitCode {
    match args::parse(std::env::args_os().skip(1)).and_then(run) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("{}", failure.to_json());
            ExitCode::from(1)
        }
    }
}

fn run(args: Args) -> Result<String> {
    let mut inputs: Vec<Box<dyn Read>> = Vec::new();
    for path in &args.inputs {
        inputs.push(if path.as_os_str() == "-" {
            Box::new(std::io::stdin())
        } else {
            Box::new(open_input(path)?)
        });
    }
    let mut made = Made(Vec::new());
    let [meta, data, mut json] = FILES.map(|name| made.create(args.out.join(name)));
    let (meta, data) = (meta?, data?);
    let job = Job {
        inputs,
        meta,
        data,
        whiteouts: args.whiteouts,
        limits: args.limits.clone(),
        collapse_bytes: args.collapse_bytes,
        sync: args.sync,
    };
    let reply = supervise(job, args.progress)?;
    let (layer, used) = reply
        .rsplit_once('\n')
        .ok_or_else(|| Failure::internal("the builder's reply is damaged"))?;
    let json = json.as_mut().map_err(|f| f.clone())?;
    let written =
        writeln!(json, "{layer}").and_then(|()| if args.sync { json.sync_all() } else { Ok(()) });
    written.map_err(|e| Failure::output("layer.json", &e))?;
    made.0.clear();
    Ok(format!("{{\"layer\":{layer},\"inputs\":{used}}}"))
}

fn open_input(path: &Path) -> Result<File> {
    File::open(path).map_err(|e| Failure::argument(format!("cannot open {}: {e}", path.display())))
}

/// Files to remove unless all went well.
struct Made(Vec<PathBuf>);

impl Made {
    fn create(&mut self, path: PathBuf) -> Result<File> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(&path);
        let file =
            file.map_err(|e| Failure::argument(format!("cannot make {}: {e}", path.display())))?;
        self.0.push(path);
        Ok(file)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Builds in a confined child; its reply is layer.json's text, a newline and the number of inputs.
fn supervise(job: Job, progress: bool) -> Result<String> {
    let (limits, seconds) = (job.limits.clone(), job.limits.max_seconds);
    let system =
        |what: &str| Failure::internal(format!("{what}: {}", std::io::Error::last_os_error()));
    let (reader, writer) = pipe().ok_or_else(|| system("pipe"))?;
    // SAFETY: the set is initialised before use; this is the only thread, so a fork copies the whole process.
    unsafe {
        let mut signals = std::mem::zeroed();
        libc::sigemptyset(&mut signals);
        for signal in [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            libc::sigaddset(&mut signals, signal);
        }
        libc::sigprocmask(libc::SIG_BLOCK, &signals, std::ptr::null_mut());
        let parent = libc::getpid();
        let child = libc::fork();
        match child {
            -1 => return Err(system("fork")),
            0 => {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                if libc::getppid() != parent {
                    libc::_exit(1);
                }
                libc::sigprocmask(libc::SIG_UNBLOCK, &signals, std::ptr::null_mut());
                drop(reader);
                work(job, writer, progress)
            }
            _ => {}
        }
        drop(job);
        drop(writer);
        let mut signal = 0;
        let mut status = 0;
        while libc::waitpid(child, &mut status, libc::WNOHANG) == 0 {
            libc::sigwait(&signals, &mut signal);
            if signal != libc::SIGCHLD {
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, &mut status, 0);
                return Err(Failure {
                    reason: "CANCELLED",
                    message: "ended by a signal".into(),
                });
            }
        }
        let mut reply = String::new();
        let _ = File::from(reader).take(1 << 20).read_to_string(&mut reply);
        outcome(&reply, status, seconds, &limits)
    }
}

fn outcome(
    reply: &str,
    status: i32,
    seconds: u64,
    limits: &mklayer::limits::Limits,
) -> Result<String> {
    if let Some(text) = reply.strip_prefix("ok\n") {
        return Ok(text.to_owned());
    }
    let mut lines = reply.splitn(2, '\n');
    if let (Some(reason), Some(message)) = (lines.next(), lines.next()) {
        const REASONS: [&str; 6] = [
            "ARCHIVE_INVALID",
            "ARCHIVE_LIMIT",
            "PATH_LEAVES_ROOT",
            "DISK_FULL",
            "INVALID_ARGUMENT",
            "INTERNAL",
        ];
        let reason = REASONS
            .into_iter()
            .find(|known| *known == reason)
            .unwrap_or("INTERNAL");
        return Err(Failure {
            reason,
            message: message.to_owned(),
        });
    }
    Err(match libc::WTERMSIG(status) {
        libc::SIGALRM => Failure::limit(format!("reading took longer than {seconds} s")),
        libc::SIGABRT => Failure::limit(format!(
            "the archive needs too much memory (limit {})",
            limits.max_heap
        )),
        signal => Failure::internal(format!("the builder ended with signal {signal}")),
    })
}

fn pipe() -> Option<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: `fds` has room for two descriptors, which are owned from here on.
    unsafe {
        if libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return None;
        }
        Some((OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])))
    }
}

/// The child: never returns.
fn work(job: Job, reply: OwnedFd, progress: bool) -> ! {
    let mut reply = File::from(reply);
    let panicked = reply.as_raw_fd();
    std::panic::set_hook(Box::new(move |info| {
        let text = format!("INTERNAL\nthe builder met a fault of its own: {info}");
        // SAFETY: the descriptor stays open as long as this process.
        unsafe { libc::write(panicked, text.as_ptr().cast(), text.len()) };
    }));
    let file_bytes = job.limits.max_bytes.saturating_add(64 << 20);
    let result = confine(file_bytes, job.limits.max_seconds)
        .map_err(|e| Failure::internal(format!("cannot confine the builder: {e}")))
        .and_then(|()| build(job, &mut reporter(progress)));
    let text = match result {
        Ok(built) => format!("ok\n{}\n{}", built.to_json(), built.inputs),
        Err(failure) => format!("{}\n{}", failure.reason, failure.message),
    };
    let _ = reply.write_all(text.as_bytes());
    // SAFETY: ends the process without running the parent's clean-up.
    unsafe { libc::_exit(0) }
}

/// One line of JSON on stdout, five a second.
fn reporter(enabled: bool) -> impl FnMut(u64, u64) {
    let mut last = Instant::now();
    move |bytes, entries| {
        if enabled && last.elapsed() >= PROGRESS_EVERY {
            last = Instant::now();
            let _ = writeln!(
                std::io::stdout(),
                "{{\"bytes\":{bytes},\"entries\":{entries}}}"
            );
        }
    }
}

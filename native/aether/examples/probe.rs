//! Figures of one aether over its socket: idle memory, ping, exec, output.
//!
//!     cargo run --release -p aether --example probe      (as root; builds `sandbox` first: cargo build --release --examples)

#[path = "../tests/sandbox/support.rs"]
mod support;

use std::time::Instant;

use support::*;
use wire::aether_request::Call;
use wire::*;

/// Private memory in KiB.
fn private_kib(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let field = |name: &str| -> u64 {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    field("Private_Dirty:") + field("Private_Clean:")
}

/// CPU milliseconds used so far.
fn cpu_ms(pid: i32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = text
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) * 10.0
}

fn main() {
    let sandbox = TestSandbox::new(&[]);
    let hello = sandbox.hello();
    println!(
        "idle: aether {} KiB private, init {} KiB",
        private_kib(hello.aether_pid),
        private_kib(hello.init_pid)
    );

    let mut client = sandbox.client();
    let start = Instant::now();
    for _ in 0..2000 {
        client.call(Call::Ping(AetherPing {})).unwrap();
    }
    println!(
        "ping with a fork inside: {:.0} us",
        start.elapsed().as_secs_f64() * 1e6 / 2000.0
    );

    let cpu = |pid| cpu_ms(pid);
    let before = (cpu(hello.aether_pid), cpu(hello.init_pid));
    let mut times: Vec<f64> = (0..1000)
        .map(|_| {
            let start = Instant::now();
            assert_eq!(sandbox.run(argv(&["/bin/true"])).code(), 0);
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!(
        "exec /bin/true, one connection each: p50 {:.2} ms, p99 {:.2} ms",
        times[500], times[990]
    );
    let (aether, init) = (
        cpu(hello.aether_pid) - before.0,
        cpu(hello.init_pid) - before.1,
    );
    println!("  CPU per exec: aether {aether:.0} us, init {init:.0} us (1000 execs)");

    let start = Instant::now();
    let threads: Vec<_> = (0..16)
        .map(|_| {
            let clients: Vec<Client> = (0..125).map(|_| sandbox.client()).collect();
            std::thread::spawn(move || {
                for client in clients {
                    assert_eq!(
                        client
                            .start(&fresh_id(), argv(&["/bin/true"]))
                            .unwrap()
                            .finish()
                            .unwrap()
                            .code(),
                        0
                    );
                }
            })
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    println!(
        "exec, 16 in flight: {:.0}/s",
        2000.0 / start.elapsed().as_secs_f64()
    );

    client.open_session("s").unwrap();
    let start = Instant::now();
    for _ in 0..500 {
        sandbox.run(CommandSpec {
            session_id: "s".into(),
            ..sh("x=1")
        });
    }
    println!(
        "call of a session: {:.2} ms",
        start.elapsed().as_secs_f64() * 1e3 / 500.0
    );

    for bytes in ["128k", "1M"] {
        let start = Instant::now();
        let before = cpu(hello.aether_pid);
        let count = if bytes == "1M" { 2048 } else { 16384 };
        let text = format!("dd if=/dev/zero bs={bytes} count={count} status=none");
        let mut run = sandbox.client().start(&fresh_id(), sh(&text)).unwrap();
        let mut got = 0u64;
        let mut buffer = vec![0; 1 << 20];
        // The bytes are counted, not parsed: this is the socket's rate.
        use std::io::Read;
        while got < 2 << 30 {
            got += run.client.stream.read(&mut buffer).unwrap() as u64;
        }
        let used = cpu(hello.aether_pid) - before;
        println!(
            "output, dd bs={bytes}: {:.0} MB/s, aether's CPU {:.2} s/GB",
            got as f64 / 1e6 / start.elapsed().as_secs_f64(),
            used / 1e3 / (got as f64 / 1e9)
        );
        drop(run);
    }
    std::thread::sleep(std::time::Duration::from_millis(500));
    println!(
        "after: aether {} KiB private, init {} KiB",
        private_kib(hello.aether_pid),
        private_kib(hello.init_pid)
    );
}
